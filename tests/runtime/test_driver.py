"""What both drivers do with commands, with errors, and with what grows: in virtual time.

Long because a driver is one class, and its growths are tried by one script.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import rshift
from types import SimpleNamespace
from typing import Any

import pytest

from teola import App, Condition, Each, Generate, QueryExpansion
from teola.errors import BudgetSpent, EngineError, QueryFailed
from teola.graph import Grow, Growth, Op, Remarks
from teola.learning import Learner
from teola.profile import Cost, EngineProfile, Profile
from teola.runtime.driver import _part_gave
from teola.runtime.in_flight import Query
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.sim.sim_rows import SimRow
from teola.runtime.values import Tokens
from teola.schedule.events import (
    Cause,
    Dispatch,
    Ejected,
    Finish,
    FirstTokenLate,
    Recovered,
    Retuned,
    SetTimer,
    Skipped,
    State,
    Timer,
    Waits,
)
from teola.schedule.faults import PolicyFailed
from tests.runtime.sim.test_sim import one_call
from tests.runtime.sim.test_weights import BODY, CALL_S, LLM, LOOP, PROFILE, TOKENS, turns_of_maps
from tests.runtime.sim.test_weights import MAP as WEIGHED
from tests.runtime.test_in_flight import growing, query
from tests.schedule.plans import plan, tool

# --- what is logged -------------------------------------------------------------------------

SECRET = "text of a document"
WHY = Cause(ValueError(SECRET))


@pytest.mark.parametrize(
    ("command", "level", "event", "message", "fields"),
    [
        (
            Ejected("llm", 1, 31.26, WHY),
            "WARNING",
            "engine_ejected",
            "engine llm: instance 1 is sent nothing for 30 s: ValueError",
            {"engine": "llm", "instance": 1, "for_s": 30.3, "error_type": "ValueError"},
        ),
        (
            FirstTokenLate("llm", 1, 7.26, elsewhere=True),
            "WARNING",
            "engine_late",
            "engine llm: instance 1 gave no token for 7 s",
            {"engine": "llm", "instance": 1, "after_s": 7.3, "elsewhere": True},
        ),
        (
            Recovered("llm", 1),
            "INFO",
            "engine_recovered",
            "engine llm: instance 1 works again",
            {"engine": "llm", "instance": 1},
        ),
        *(
            (
                Waits("llm", 1, "q", 2, until, WHY),
                "INFO",
                "engine_refuses",
                f"engine llm: instance 1 refuses (ValueError); the call waits for {for_s} s",
                {"engine": "llm", "instance": 1, "for_s": for_s, "error_type": "ValueError"},
            )
            for until, for_s in ((3.26, 2.3), (1.0, 0.0), (0.5, 0.0))
        ),
        (
            Retuned("llm", "batching", {"gap": 0.5, "name": "x"}),
            "INFO",
            "policy_tuned",
            "engine llm: batching policy tuned: gap=0.5, name=x",
            {"engine": "llm", "kind": "batching", "options": "gap=0.5, name=x", "refused": ""},
        ),
        (
            Retuned("llm", "routing", {"gap": -1}, "too small"),
            "WARNING",
            "policy_tuned",
            "engine llm: routing policy tuned: gap=-1 refused (too small)",
            {"engine": "llm", "kind": "routing", "options": "gap=-1", "refused": "too small"},
        ),
    ],
)
def test_an_engines_fate_is_told_in_a_sentence_and_in_fields_without_what_it_said(
    caplog: pytest.LogCaptureFixture,
    command: Any,
    level: str,
    event: str,
    message: str,
    fields: Mapping[str, Any],
) -> None:
    with caplog.at_level(logging.INFO, "teola.runtime.driver"):
        Sim(PROFILE)._perform([command], 1.0)
    (record,) = caplog.records
    assert (record.levelname, record.event) == (level, event)  # type: ignore[attr-defined]
    assert record.getMessage() == message
    assert record.fields == fields  # type: ignore[attr-defined]
    assert SECRET not in record.getMessage()


@pytest.mark.parametrize("cause", [None, ZeroDivisionError("oops")])
def test_a_policys_failure_is_told_with_where_it_was_raised(
    caplog: pytest.LogCaptureFixture, cause: Exception | None
) -> None:
    error = EngineError("policy 'x' failed")
    error.__cause__ = cause
    Sim(PROFILE)._perform([PolicyFailed("llm", error)], 1.0)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == "policy 'x' failed; what was queued there has failed"
    told = None if cause is None else (ZeroDivisionError, cause, None)
    assert record.exc_info == told


# --- errors ---------------------------------------------------------------------------------


class Broken(Sim):
    """Keeps what broke."""

    def __init__(self) -> None:
        slow = EngineProfile(costs={Op.TOOL_CALL: Cost(base_s=1.0)})
        super().__init__(Profile("two", {"llm": LLM, "python": slow}))
        self.told: list[tuple[list[str], Exception, float]] = []

    def broke(self, runs: Sequence[str], error: Exception, now: float) -> None:
        self.told.append((list(runs), error, now))


def of_two_engines() -> Broken:
    """A query at either engine, and rows at the model's."""
    sim = Broken()
    sim.submit(one_call(), {"question": Tokens(10)}, id="asks")
    sim.submit(plan(tool("t")), {}, id="works")
    sim.ask_rows([SimRow(Tokens(9), 900)] * 2, id="rows")
    sim.run(until=0.0)
    assert {*sim.queries, *sim.rows} == {"asks", "works", "rows"}
    return sim


ERROR = KeyError("lost")


def raises(*_: Any) -> Any:
    raise ERROR


@pytest.mark.parametrize(
    ("where", "act", "runs"),
    [
        ("handle", lambda sim: sim.handle(Timer("llm"), 3.5), ["asks", "rows"]),
        ("handle", lambda sim: sim.handle(Timer("python"), 3.5), ["works"]),
        ("tell", lambda sim: sim.tell("works", Skipped("works", 0), 3.5), ["works"]),
        ("flush", lambda sim: sim.run_once(3.5), ["asks", "works", "rows"]),
    ],
)
def test_an_error_of_the_core_concerns_whom_the_event_was_of(
    where: str,
    act: Callable[[Sim], None],
    runs: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an error of a round the other engines still have theirs."""
    sim = of_two_engines()
    method, count = getattr(sim.core, where), 0

    def once(*given: Any) -> Any:
        nonlocal count
        count += 1
        return raises() if count == 1 else method(*given)

    monkeypatch.setattr(sim.core, where, once)
    sim.core.unsettled.update(sim.core.queues)
    act(sim)
    assert sim.told == [(runs, ERROR, 3.5)]
    if where == "flush":
        assert not sim.core.unsettled


def test_an_error_of_a_command_concerns_whom_the_command_is_for_and_those_behind_it_go_on() -> None:
    sim = of_two_engines()
    done: list[Any] = []

    def fails(command: Any, now: float) -> None:
        done.append(command)
        sim._perform([Recovered("llm", 7)], now)
        raise ERROR

    sim.dispatch = sim.abort = sim.set_timer = fails  # type: ignore[method-assign]
    sim.recovered = lambda command, now: done.append(command)  # type: ignore[method-assign]
    work = sim.core.queues["llm"].works["asks", 0]
    batch = Dispatch("llm", 0, 1, ((work, 0, 1),))
    timer = SetTimer("llm", 9.0)
    sim._perform([batch, timer, Recovered("llm", 1)], 3.5)
    assert sim.told == [(["asks"], ERROR, 3.5), ([], ERROR, 3.5)]
    later = [Recovered("llm", 1), Recovered("llm", 7), Recovered("llm", 7)]
    assert done == [batch, timer, *later], "what is given meanwhile comes after all"
    sim.told.clear()
    sim._perform([Skipped("works", 99)], 4.5)
    ((runs, error, now),) = sim.told
    assert (runs, type(error), now) == (["works"], IndexError, 4.5)


# --- what queries wait for ------------------------------------------------------------------


def test_a_query_that_ends_says_for_what_it_waited_and_for_how_long() -> None:
    """The model's server refuses the first call, and is asked again after 40 s. A tool runs one
    call at a time, so some wait without any limit."""
    slow = EngineProfile(costs={Op.TOOL_CALL: Cost(base_s=3.0)}, max_batch=1, instances=1)
    profile = Profile("two", {"llm": LLM, "python": slow})
    waits: dict[str, list[tuple[str, float, float]]] = {}

    def look(query: Query, _: object) -> None:
        waits[query.id] = [
            (span.state, round(span.end, 6), span.limited_s) for span in query.trace.spans
        ]

    sim = Sim(profile, outcomes=Planned(answer_tokens=TOKENS), on_finish=look)
    sim.refuse("llm", 0, at=0.0, lasts_s=30.0, after_s=40.0)
    asks = {"question": Tokens(9)}
    sim.submit(one_call(), asks, id="refused", deadline_s=7.0)
    sim.submit(one_call(), asks, id="behind", at=2.0, deadline_s=5.2)
    sim.submit(one_call(), asks, id="hurried", at=2.0, deadline_s=0.6)
    sim.submit(one_call(), asks, id="left", at=2.0, cancel_after_s=4.0)
    sim.submit(one_call(), asks, id="patient", at=10.0)
    for id in ("runs", "stands"):
        sim.submit(plan(tool("t")), {}, id=id, deadline_s=2.0)
    maps = Optimiser(MAP.builder, profile).plan({}, {"rows": 3})
    sim.submit(maps, {**asks, "rows": [Tokens(9)] * 3}, id="maps", at=3.0, deadline_s=3.0)
    late = "query {} did not finish before its deadline"
    assert {result.id: str(result.error or "") for result in sim.run()} == {
        "refused": f"{late.format('refused')}: it takes no more calls now",
        "behind": f"{late.format('behind')}: it waited for the rate limit of engine 'llm', 5 s",
        "hurried": f"{late.format('hurried')}: it waited for the rate limit of engine 'llm', 1 s",
        "left": "query left was cancelled",
        "patient": "",
        "runs": late.format("runs"),
        "stands": late.format("stands"),
        "maps": f"{late.format('maps')}: it waited for the rate limit of engine 'llm', 3 s",
    }
    assert waits["refused"] == [("failed", 0.0, 0.0), ("cancelled", 7.0, 7.0)]
    assert waits["behind"] == [("cancelled", 5.2, pytest.approx(5.2))]
    assert waits["left"] == [("cancelled", 4.0, 4.0)]
    assert waits["stands"] == [("cancelled", 2.0, 0.0)]
    (sent, _) = waits["patient"]
    assert (sent[0], sent[2]) == ("done", pytest.approx(30.0))


KEYS = [("q", 0), ("q/each/1", 0), ("q/each/1", 1), ("q/each/11", 0), ("r", 0)]


@pytest.mark.parametrize(
    ("over", "left"),
    [
        (("q/each/1", 0), [0, 2, 3, 4]),
        (("q/each/1", 9), [0, 1, 2, 3, 4]),
        (("q/each/1", None), [0, 3, 4]),
        (("q/each/7", None), [0, 1, 2, 3, 4]),
        (("q", 0), [1, 2, 3, 4]),
        (("q", None), [4]),
        (("r", None), [0, 1, 2, 3]),
        (("s", None), [0, 1, 2, 3, 4]),
    ],
)
def test_who_no_longer_waits_is_forgotten_with_all_parts_and_nobody_else(
    over: tuple[str, int | None], left: list[int]
) -> None:
    sim = Sim(PROFILE)
    for run, primitive in KEYS:
        sim._perform([Waits("llm", 0, run, primitive, 9.0, Cause(ValueError(run)))], 1.0)
    sim._forget_refusals(*over)
    known = {key: why for refused in sim.refusals.values() for key, why in refused.items()}
    assert known == {KEYS[k]: KEYS[k][0] for k in left}
    assert [*sim.refusals] == [run for run in "qr" if any(key[0].startswith(run) for key in known)]


def test_what_is_skipped_after_it_was_done_is_let_go_of() -> None:
    gone: list[Any] = []
    sim = Sim(PROFILE, outcomes=Planned(answer_tokens=TOKENS))
    sim.submit(one_call(), {"question": Tokens(9)}, id="q")
    sim.run(until=CALL_S / 2)
    sim.forgotten = gone.append  # type: ignore[method-assign]
    (held,) = sim.queries["q"].store.values.values()
    sim._perform([Skipped("q", 0)], CALL_S / 2)
    assert gone == [held]
    assert not sim.queries["q"].store.values


# --- growth ---------------------------------------------------------------------------------

MAP = App(
    "map",
    Each(BODY, over="rows", item="row", gives={"notes": "answer"}, at_once=2)
    >> Generate(name="last", inputs={"context": "notes"}),
    inputs={"question": "text", "rows": "texts"},
    outputs={"end": "answer"},
)
MAP_ALONE = App(
    "map",
    Each(BODY, over="rows", item="row", gives={"notes": "answer"}, at_once=2),
    inputs={"question": "text", "rows": "texts"},
    outputs={"notes": "notes"},
)
Heard = tuple[str, ...]


@dataclass
class Script:
    """A growth. steps: what it does when it hears something for the first time: keys of parts
    that follow, or an error that it raises. heard: all that it was told."""

    steps: dict[Heard, Iterable[str] | Exception]
    said: Remarks = field(default_factory=Remarks)
    heard: list[Heard] = field(default_factory=list)
    items: int = 0

    def hear(self, *told: str) -> Iterable[Grow]:
        self.heard.append(told)
        step = self.steps.pop(told, ())
        if isinstance(step, Exception):
            raise step
        return (Grow("item", key, {"row": Tokens(9)}) for key in step)

    def begin(self) -> Iterable[Grow]:
        return self.hear("begin")

    def told(self, key: str, port: str, item: Any) -> Iterable[Grow]:
        self.items += 1
        return self.hear("told", key, port, str(self.items))

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Iterable[Grow]:
        return self.hear("ended", key)

    def failed(self, key: str, error: Exception) -> Iterable[Grow]:
        return self.hear("failed", key)

    def result(self) -> Mapping[str, Any]:
        self.hear("result")
        return {"notes": [Tokens(3)]}

    def remarks(self) -> Remarks:
        self.hear("remarks")
        return self.said


class Scripted(Planned):
    def __init__(self, script: Script) -> None:
        super().__init__(answer_tokens=TOKENS)
        self.script = script

    def growth(self, query: Query, i: int) -> Growth:
        return self.script

    def branch(self, query: Query, i: int) -> str:
        return "otherwise"


class Bed(Sim):
    """Simulates one query that grows by a script. begun: keys of its parts, and when they
    began. causes: why the query is a partial one."""

    def __init__(self, script: Script, primitives: float, learner: Learner | None = None) -> None:
        super().__init__(PROFILE, outcomes=Scripted(script), learner=learner)
        self.primitives = primitives
        self.begun: list[tuple[str, float]] = []
        self.causes: list[tuple[str, Exception]] = []
        self.outer: Query

    def begin(self, query: Query, now: float) -> None:
        if query.place is None:
            self.outer = query
            query.tally.primitives = self.primitives
        else:
            self.begun.append((query.place.key, round(now / CALL_S, 6)))
        super().begin(query, now)

    def finished(self, query: Query, command: Finish, now: float) -> None:
        if query is self.outer:
            causes = (cause.error for cause in command.reasons)
            self.causes += zip(command.missing, causes, strict=True)
        super().finished(query, command, now)


def grown(
    steps: Mapping[Heard, Iterable[str] | Exception],
    primitives: float = 100,
    said: Remarks | None = None,
    app: App = MAP,
    learner: Learner | None = None,
    **more: Any,
) -> tuple[Bed, Script]:
    script = Script(dict(steps), said or Remarks())
    bed = Bed(script, primitives, learner)
    made = Optimiser(app.builder, PROFILE).plan({}, {"rows": 4})
    given = {"question": Tokens(9), "rows": [Tokens(9)] * 4}
    bed.submit(made, {name: given[name] for name in made.graph.inputs}, app="map", **more)
    bed.run()
    assert not bed.queries
    assert not bed.outer.growing
    assert bed.outer.tally.primitives == primitives, "what has ended makes room"
    return bed, script


SIZE = 2
"""Primitives of a part."""


@pytest.mark.parametrize(
    ("primitives", "beside"), [(SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (9 * SIZE, 2)]
)
def test_as_many_parts_run_as_may_and_as_there_is_room_for_in_the_order_of_what_they_follow(
    primitives: int, beside: int
) -> None:
    """What follows the end of a part comes after what waits; two at once at most."""
    steps = {("begin",): "abcd", ("ended", "a"): "fg", ("ended", "c"): "e"}
    bed, script = grown(steps, primitives)
    keys = "abcdfge"
    assert bed.begun == [(key, pytest.approx(k // beside)) for k, key in enumerate(keys)]
    ends = [("ended", key) for key in keys]
    assert script.heard == [("begin",), *ends, ("result",), ("remarks",)]
    assert bed.results[0].state is State.OK


def spans(bed: Bed) -> dict[str, tuple[str, float, float]]:
    """Of the query around: state, begin and end of each primitive, in calls."""
    return {
        span.primitive: (span.state, round(span.start / CALL_S, 6), round(span.end / CALL_S, 6))
        for span in bed.outer.trace.spans
    }


@pytest.mark.parametrize("parts", ["", "a", "abc"])
def test_a_primitive_grows_until_nothing_runs_and_nothing_follows(parts: str) -> None:
    learner = Learner()
    bed, script = grown({("begin",): parts}, learner=learner)
    ends = -(-len(parts) // 2)
    assert spans(bed)["each.grow"] == ("done", 0.0, ends)
    assert spans(bed)["last.decode"][2] == ends + 1
    assert script.heard[-2:] == [("result",), ("remarks",)]
    part_traces = [part.query_id for part in bed.outer.trace.inner]
    assert part_traces == [f"q0/each/{key}" for key in parts]
    assert {part.parent for part in bed.outer.trace.inner} <= {("q0", "each.grow")}
    habit = learner.snapshot().habits["map", "each"]
    assert habit.turns == (1,) * (1 + len(parts)), "none, one and so on were exceeded by one run"


def test_what_had_to_stop_is_a_part_of_an_answer_and_says_nothing_of_how_often_it_repeats() -> None:
    learner = Learner()
    said = Remarks(notices=("stopped early",), cut="its budget is spent")
    bed, _ = grown({("begin",): "ab"}, said=said, learner=learner)
    (result,) = bed.results
    assert result.state is State.PARTIAL
    assert bed.outer.trace.notices == ["each: stopped early"]
    assert [component for component, _ in bed.causes] == ["each"]
    assert repr(bed.causes[0][1]) == repr(BudgetSpent("its budget is spent"))
    assert ("map", "each") not in learner.snapshot().habits


@pytest.mark.parametrize(
    ("at", "heard", "parts"),
    [
        (("begin",), 1, []),
        (("ended", "a"), 2, ["ok", "cancelled"]),
        (("ended", "b"), 3, ["ok", "ok", "cancelled"]),
        (("result",), 6, ["ok"] * 4),
        (("remarks",), 7, ["ok"] * 4),
    ],
)
def test_a_growth_that_raises_fails_once_with_that_and_its_parts_end(
    at: Heard, heard: int, parts: list[str]
) -> None:
    """Whatever of it ends by that is not told."""
    steps = {("begin",): "abcd", at: KeyError("lost")}
    bed, script = grown(steps)
    (result,) = bed.results
    assert (result.state, repr(result.error)) == (State.FAILED, "KeyError('lost')")
    assert (script.heard[-1], len(script.heard)) == (at, heard)
    assert [part.state for part in bed.outer.trace.inner] == parts
    state, _, _ = spans(bed)["each.grow"]
    assert state == "failed"


ASKS = Generate(name="ask", outputs={"answer": "asked"})
MORE = Generate(name="more", inputs={"context": "asked"}, outputs={"answer": "more"})
BESIDE = App(
    "map",
    Each(BODY, over="rows", item="row", gives={"notes": "answer"}, at_once=2)
    >> ASKS
    >> Condition(lambda text: True, reads=["asked"], then=MORE)
    >> Generate(name="last", inputs={"context": "notes"}),
    inputs={"question": "text", "rows": "texts"},
    outputs={"end": "answer", "more": "more"},
)


def test_what_is_skipped_beside_a_growth_leaves_it_alone() -> None:
    """The condition is decided in the middle of it."""
    learner = Learner()
    bed, script = grown({("begin",): "abcdefgh"}, app=BESIDE, learner=learner)
    assert learner.snapshot().habits["map", "condition"].branches == {"otherwise": 1}
    told = spans(bed)
    grew_until, decided_at = told["each.grow"][2], told["condition.test"][2]
    assert 0 < decided_at < grew_until
    assert told["more.prefill"] == ("skipped", decided_at, decided_at)
    assert bed.results[0].state is State.OK
    assert [part.state for part in bed.outer.trace.inner] == ["ok"] * 8
    assert script.heard[-1] == ("remarks",)


FED = App(
    "map",
    QueryExpansion(n=3)
    >> Each(
        Generate(name="note", inputs={"question": "row"}),
        over="queries",
        item="row",
        gives={"notes": "answer"},
    )
    >> Generate(name="last", inputs={"context": "notes"}),
    inputs={"question": "text"},
    outputs={"end": "answer"},
)


def test_a_growth_is_told_each_item_once_as_it_is_written_and_then_that_the_list_is_complete() -> (
    None
):
    """Two parts that follow the first item run until the third is there."""
    steps = {("told", "", "queries", "1"): "ab", ("told", "", "queries", "3"): "c"}
    bed, script = grown(steps, app=FED)
    items = [("told", "", "queries", str(k)) for k in (1, 2, 3)]
    ends = [("ended", key) for key in "ab"]
    last = [("ended", ""), ("ended", "c"), ("result",), ("remarks",)]
    assert script.heard == [("begin",), *items[:2], *ends, items[2], *last]
    first, third = spans(bed)["each.grow"][1], spans(bed)["expand.decode"][2]
    assert bed.begun == [("a", first), ("b", first), ("c", third)]
    assert 0.25 < first < third
    assert spans(bed)["each.grow"] == ("done", first, third + 1)


def test_a_key_is_free_again_when_its_part_has_ended_and_is_taken_until_then() -> None:
    steps = {("begin",): "ab", ("ended", "a"): "a", ("ended", "b"): "b"}
    bed, _ = grown(steps, app=MAP_ALONE)
    assert bed.results[0].outputs == {"notes": [Tokens(3)]}
    assert bed.begun == [("a", 0.0), ("b", 0.0), ("a", 1.0), ("b", 1.0)]
    assert bed.results[0].state is State.OK
    bed, script = grown({("begin",): "aa"})
    (result,) = bed.results
    assert (result.state, str(result.error)) == (State.FAILED, "'each' has two parts called 'a'")
    assert (bed.begun, script.heard) == ([("a", 0.0)], [("begin",)])


@pytest.mark.parametrize("place", [("llm", 0, 99), ("llm", 9, 0)])
def test_what_another_try_has_written_is_not_told(place: tuple[str, int, int]) -> None:
    """Its instance is gone, or it was sent anew."""
    bed, script = grown({("told", "", "queries", "1"): "a"}, app=FED)
    before = [*script.heard]
    made = Optimiser(FED.builder, PROFILE).plan({}, {})
    bed.submit(made, {"question": Tokens(9)}, id="again", at=bed.now)
    bed.run(until=bed.now + 0.05)
    works = bed.core.queues["llm"].works
    (((_, head), work),) = works.items()
    bed.wrote(bed.outer, head, place, 0, Tokens(3), bed.now)
    bed.wrote(bed.outer, head + 1, place, 0, Tokens(3), bed.now)
    assert script.heard == before
    assert not work.streamed
    assert not bed.outer.written
    ((instance, batch),) = work.flying.values()
    bed.wrote(bed.outer, head, ("llm", instance, batch), 0, Tokens(3), bed.now)
    assert work.streamed
    assert script.heard == [*before, ("begin",), ("told", "", "queries", "4")]


# --- how growth ends with its query -----------------------------------------------------------


class Purse:
    """Room for a last answer."""

    def __init__(self) -> None:
        self.back = 0

    kept_tokens = 1.0

    def keep(self, prompt_tokens: int, answer_tokens: int) -> bool:
        return True

    def may(self, prompt_tokens: int, answer_tokens: int) -> bool:
        return True

    def give_back(self) -> None:
        self.back += 1


@dataclass
class Spending(Script):
    """One that bounds what it spends, and says what it has done so far. took: of each part."""

    purse: Purse | None = None
    took: list[tuple[str, int, int]] = field(default_factory=list)

    def spent(self, key: str, prompt_tokens: int, generated_tokens: int) -> None:
        self.took.append((key, prompt_tokens, generated_tokens))

    def within(self, outer: Any, key: str) -> None:
        raise AssertionError("it is inside no other")

    def result(self) -> Mapping[str, Any]:
        return {**super().result(), "steps": ({"tool": key} for key, _, _ in self.took)}


@pytest.mark.parametrize("kind", [Script, Spending])
@pytest.mark.parametrize("app", [MAP, MAP_ALONE])
def test_what_a_growth_has_so_far_is_kept_when_its_query_ends_if_anybody_asks_for_it(
    kind: type[Script], app: App
) -> None:
    """In the middle of the second pair of parts. Clients ask for outputs; whoever bounds what it
    spends tells what it has done."""
    before = {"tool": "before"}
    script = kind({("begin",): "abcd"})
    spends = isinstance(script, Spending)
    if spends:
        script.purse = Purse()
    bed = Bed(script, 100)
    made = Optimiser(app.builder, PROFILE).plan({}, {"rows": 4})
    given = {"question": Tokens(9), "rows": [Tokens(9)] * 4}
    bed.submit(
        made,
        {name: given[name] for name in made.graph.inputs},
        app="map",
        cancel_after_s=1.5 * CALL_S,
    )
    bed.run(until=CALL_S / 2)
    bed.outer.trace.steps = (before,)
    bed.run()
    assert bed.results[0].state is State.CANCELLED
    assert [part.state for part in bed.outer.trace.inner] == ["ok", "ok", "cancelled", "cancelled"]
    took = [part.latency_s / CALL_S for part in bed.outer.trace.inner]
    assert took == pytest.approx([1, 1, 0.5, 0.5])
    asked = app is MAP_ALONE or spends
    ends = [("begin",), ("ended", "a"), ("ended", "b")]
    assert script.heard == ([*ends, ("result",)] if asked else ends), "and of its end nothing"
    assert [made["notes"] for made in bed.outer.left.values()] == [[Tokens(3)]] * asked
    done = [{"tool": "a"}, {"tool": "b"}] if spends else []
    assert bed.outer.trace.steps == (before, *done)
    assert bed.outer.tally.primitives == 100
    if spends:
        assert script.purse is not None
        assert script.purse.back == 1
        prompt = script.took[0][1]
        assert prompt > 9
        assert script.took == [("a", prompt, TOKENS), ("b", prompt, TOKENS)]


def test_what_a_growth_so_far_raises_hides_nothing_of_how_its_query_ends() -> None:
    bed, script = grown(
        {("begin",): "ab", ("result",): ValueError("nothing yet")},
        app=MAP_ALONE,
        cancel_after_s=CALL_S / 2,
    )
    assert bed.results[0].state is State.CANCELLED
    assert script.heard == [("begin",), ("result",)]
    assert bed.outer.left == {}


@pytest.mark.parametrize("how", ["cancel_after_s", "deadline_s"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_that_grows_side_by_side_ends_with_its_query(count: int, how: str) -> None:
    """The first part of each is there by then, and more would follow."""
    notes = [
        Each(BODY, name=f"each{k}", over="rows", item="row", gives={f"n{k}": "answer"}, at_once=2)
        for k in range(count)
    ]
    outputs = {f"n{k}": f"n{k}" for k in range(count)}
    app = App("maps", reduce(rshift, notes), inputs={"rows": "texts"}, outputs=outputs)
    sim = Sim(PROFILE, outcomes=Planned(answer_tokens=TOKENS))
    made = Optimiser(app.builder, PROFILE).plan({}, {"rows": 4})
    sim.submit(made, {"rows": [Tokens(9)] * 4}, id="q", **{how: 1.5 * CALL_S})
    sim.run(until=1.49 * CALL_S)
    assert {id.split("/")[1] for id in sim.queries if id != "q"} == {n.name for n in notes}
    sim.run(until=1.51 * CALL_S)
    assert not sim.queries
    assert not sim.core.runs


class Depths(Sim):
    """Keeps how deep each part is."""

    def begin(self, query: Query, now: float) -> None:
        if query.place is not None:
            self.__dict__.setdefault("found", []).append((query.place.depth, query.id.count("/")))
        super().begin(query, now)


def test_a_part_is_as_deep_as_there_are_growths_around_it() -> None:
    sim = Depths(PROFILE, outcomes=Planned(answer_tokens=TOKENS))
    turns = turns_of_maps(expect=2)
    made = Optimiser(turns.builder, PROFILE).plan({}, {"rows": 2})
    sim.submit(made, {"question": Tokens(9), "rows": [Tokens(9)] * 2})
    sim.run()
    found = sim.__dict__["found"]
    assert sorted(depth for depth, _ in found) == [1, 1, 2, 2, 2, 2]
    assert all(names == 3 * depth for depth, names in found), "a component, a body and a number"


@pytest.mark.parametrize(("app", "gathers"), [(WEIGHED, True), (LOOP, False)])
def test_a_growth_holds_what_all_its_parts_gave_or_the_last_of_them(
    app: App, gathers: bool
) -> None:
    """All outputs of a part, one byte a character; one byte more than may be is too much."""
    around = query(app)
    made = growing(around)
    assert made.params.grower.gathers is gathers
    around.tally.held_bytes, heard = 5, list[tuple[str, Any]]()
    made.growth = SimpleNamespace(ended=lambda *given: heard.append(given) or ())  # type: ignore[assignment]
    sizes = [(100, 20), (0, 7), (300, 1)]
    held = 0
    for key, (one, two) in zip("abc", sizes, strict=True):
        outputs = {"answer": "x" * one, "more": "y" * two}
        held = held * gathers + one + two
        around.tally.bytes = 5 + held
        assert _part_gave(made, key, outputs) == ()
        assert heard[-1] == (key, outputs)
        assert (made.held_bytes, around.tally.held_bytes) == (held, 5 + held)
    around.tally.bytes = 5 + held * gathers + 301
    with pytest.raises(QueryFailed, match=f"'{made.component}' holds more than"):
        _part_gave(made, "d", {"answer": "x" * 302})
    around.store.weighs = False
    before = made.held_bytes
    assert _part_gave(made, "e", {"answer": "x" * 999}) == ()
    assert made.held_bytes == before
