"""What a query weighs that grows: turns and items times their part, as learned or as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from teola import App, Each, Generate, Loop, component
from teola.habit import Habit
from teola.learning import Learner
from teola.passes import estimate
from teola.policies.work import Work
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.runtime import in_flight as module
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import Dispatch
from teola.schedule.graph_run import GraphRun
from tests.planted import catches, edited

STEP_S, PREFILL_S, TOKENS = 0.01, 0.05, 16
CALL_S = PREFILL_S + (TOKENS - 1) * STEP_S
"""The first token comes with the prefill; estimates count the answer's tokens, all of them."""
PART_S = PREFILL_S + TOKENS * STEP_S
LLM = EngineProfile(
    step=StepTime.of(Cost(base_s=PREFILL_S), Cost(base_s=STEP_S)),
    max_batch=1 << 16,
    max_sequences=4,
)
PROFILE = Profile("by hand", {"llm": LLM})


@component(outputs="better", pure=True)
async def better(draft: str, answer: str) -> str:
    return f"{draft} {answer}"


LOOP = App(
    "loop",
    Loop(
        Generate(inputs={"context": "draft"}) >> better,
        carry={"draft": "better"},
        until=lambda text: False,
        reads=["better"],
        gives=["better"],
        expect=4,
    )
    >> Generate(name="last", inputs={"context": "better"}),
    inputs={"question": "text", "draft": "text"},
    outputs={"end": "answer"},
)
BODY = Generate(name="note", inputs={"question": "row"})
MAP = App(
    "map",
    Each(BODY, over="rows", item="row", gives={"notes": "answer"})
    >> Generate(name="last", inputs={"context": "notes"}),
    inputs={"question": "text", "rows": "texts"},
    outputs={"end": "answer"},
)


class Seen(Sim):
    """Keeps the works that are sent to the model."""

    works: list[Work]

    def dispatch(self, command: Dispatch, now: float) -> None:
        if command.engine == "llm":
            self.works += [work for work, _, _ in command.slices]
        super().dispatch(command, now)


def sent(
    app: App, profile: Profile = PROFILE, learner: Learner | None = None, rows: int = 0
) -> list[Work]:
    sim = Seen(profile, outcomes=Planned(answer_tokens=TOKENS), learner=learner)
    sim.works = []
    plan = Optimiser(app.builder, profile, learner).plan({}, {"rows": rows} if rows else {})
    given = {"question": Tokens(16), "draft": Tokens(9), "rows": [Tokens(9)] * rows}
    sim.submit(plan, {name: given[name] for name in plan.graph.inputs}, app=app.name)
    (result,) = sim.run()
    assert result.error is None
    return sim.works


def habits(turns: tuple[int, ...], component: str = "loop") -> Mapping[Any, Habit]:
    return {("loop" if component == "loop" else "map", component): Habit(calls=9, turns=turns)}


@catches(
    "a-part-alone",
    "a part's work is told how long its part is, and not how long its query",
    edited(module.part_run, "run.total_s - plan.total_s if timed else 0.0", "0.0"),
)
def test_a_turn_weighs_as_its_query_and_has_the_turns_behind_it_that_are_expected() -> None:
    """Four turns are expected and come, then a call that reads what they gave."""
    turns, last = sent(LOOP)[:4], sent(LOOP)[4]
    assert [work.total_s for work in turns] == pytest.approx([5 * PART_S] * 4)
    assert [work.behind_s for work in turns] == pytest.approx([k * PART_S for k in (4, 3, 2, 1)])
    assert last.total_s == pytest.approx(5 * PART_S)
    assert (last.behind_s, last.longer_s) == (0.0, 0.0)


@catches(
    "outer-forgotten",
    "a part of a part is told what follows the inner one only",
    edited(module.part_run, "behind_s = run.behind_s + max", "behind_s = max"),
)
def test_a_turn_inside_a_turn_has_all_behind_it_that_follows_either() -> None:
    """Twice two turns and a call, and a last one: all one after the other, as is expected."""
    more: dict[str, Any] = {"until": lambda text: False, "expect": 2}
    inner = Loop(
        Generate(inputs={"context": "draft"}) >> better,
        carry={"draft": "better"},
        reads=["better"],
        gives=["better"],
        name="inner",
        **more,
    )
    noted = Generate(name="note", inputs={"context": "better"}, outputs={"answer": "noted"})
    outer = Loop(inner >> noted, carry={"draft": "noted"}, reads=["noted"], gives=["noted"], **more)
    last = Generate(name="last", inputs={"context": "noted"})
    inputs = {"question": "text", "draft": "text"}
    works = sent(App("loop", outer >> last, inputs=inputs, outputs={"end": "answer"}))
    assert [work.total_s / PART_S for work in works] == pytest.approx([7] * 7)
    left = [(work.behind_s + work.spec.estimate.rest_s) / PART_S for work in works]
    assert left == pytest.approx([7, 6, 5, 4, 3, 2, 1])


def test_what_follows_a_turn_is_learned_and_nothing_follows_a_loop_that_has_ended() -> None:
    """Of ten runs, nine had two turns and one eight. So 2.6 are expected at first; in the third
    turn it is known that it will be eight; and four there were."""
    known = replace(PROFILE, habits=habits((10, 10, 10, 1, 1, 1, 1, 1, 1)))
    *turns, last = sent(LOOP, known)
    found = [work.total_s / PART_S for work in turns]
    assert found == pytest.approx([1 + 2.6, 1 + 2.6, 1 + 8, 1 + 8])
    assert [work.behind_s / PART_S for work in turns] == pytest.approx([2.6, 1.6, 6, 5])
    assert last.total_s / PART_S == pytest.approx(5.0)


@catches(
    "planned-items",
    "a map weighs as many items as were planned, and not those that are there",
    edited(module.Growing.coming, "listed = self.counted.count - turns", "listed = 8 - turns"),
)
def test_a_map_weighs_as_many_items_as_its_list_has() -> None:
    """Planned for 8, come with 200; four at a time."""
    sim = Seen(PROFILE, outcomes=Planned(answer_tokens=TOKENS))
    sim.works = []
    plan = Optimiser(MAP.builder, PROFILE).plan({}, {"rows": 8})
    assert plan.total_s == pytest.approx(9 * PART_S)
    sim.submit(plan, {"question": Tokens(9), "rows": [Tokens(9)] * 200})
    sim.run()
    *items, last = sim.works
    assert {round(work.total_s / PART_S, 6) for work in items} == {201}
    waves = [work.behind_s / PART_S for work in items]
    assert waves[0] == pytest.approx(199 / 4 + 1)
    assert waves[-1] == pytest.approx(1.0)
    assert last.total_s / PART_S == pytest.approx(201)


def test_turns_are_learned_in_a_run_and_counted_in_the_next_plan() -> None:
    learner = Learner()
    sent(LOOP, learner=learner)
    assert learner.snapshot().habits["loop", "loop"].turns == (1, 1, 1, 1, 1)
    sent(MAP, learner=learner, rows=100)
    found = learner.snapshot().habits["map", "each"]
    assert found.turns_after(0) == 100
    known = replace(PROFILE, habits=learner.snapshot().habits)
    builder = MAP.builder
    graph = builder.build(builder.configure({}), {"rows": 3})
    expected = estimate.growth(graph, graph["each.grow"], known)
    assert (expected.times, expected.beside) == (100, 4)


def test_what_grows_weighs_nothing_where_the_times_of_its_parts_are_not_known() -> None:
    plan = Optimiser(MAP.builder, PROFILE.untimed()).plan({}, {"rows": 8})
    assert (plan.total_s, plan.grows) == (0.0, {})
    tools = App(
        "tools",
        Each(BODY, over="rows", item="row", gives={"notes": "answer"}),
        inputs={"rows": "texts"},
        outputs={"notes": "notes"},
    )
    for profile, known in ((PROFILE, True), (PROFILE.untimed(), False)):
        made = Optimiser(tools.builder, profile).plan({}, {"rows": 8})
        assert bool(made.total_s) is known
    assert GraphRun("q", plan).total_s == 0.0


def turns_of_maps(**more: Any) -> App:
    """Turns that never say that they are done, each with a map."""
    inner = Each(BODY, over="rows", item="row", gives={"notes": "answer"}, at_once=2)
    return App(
        "nested",
        Loop(
            inner >> Generate(name="last", inputs={"context": "notes"}),
            carry={},
            until=lambda text: False,
            reads=["answer"],
            gives=["answer"],
            **more,
        ),
        inputs={"question": "text", "rows": "texts"},
        outputs={"end": "answer"},
    )


def test_growth_within_growth_counts_as_its_product() -> None:
    """Three turns are expected, each with a map of eight."""
    nested = turns_of_maps(expect=3)
    plan = Optimiser(nested.builder, PROFILE).plan({}, {"rows": 8})
    (found,) = plan.grows.values()
    assert found.part_total_s == pytest.approx(9 * PART_S)
    assert found.part_s == pytest.approx(5 * PART_S)
    assert plan.total_s == pytest.approx(27 * PART_S)


@catches(
    "a-turn-is-new",
    "a part is as old as itself, and not as its query",
    edited(module.part_run, "run.admitted if timed else now", "now"),
)
def test_a_part_is_as_old_as_the_query_that_its_user_asked_for_at_any_depth() -> None:
    nested = turns_of_maps()
    for profile, known in ((PROFILE, True), (PROFILE.untimed(), False)):
        sim = Seen(PROFILE, outcomes=Planned(answer_tokens=TOKENS))
        sim.works = []
        plan = Optimiser(nested.builder, profile).plan({}, {"rows": 4})
        given = {"question": Tokens(9), "rows": [Tokens(9)] * 4}
        sim.submit(plan, given, at=3.0)
        sim.run()
        assert len(sim.works) == 10
        began = [work.began for work in sim.works]
        assert began[0] == 3.0 < began[2] < began[-1]
        assert [work.admitted for work in sim.works] == ([3.0] * 10 if known else began)
