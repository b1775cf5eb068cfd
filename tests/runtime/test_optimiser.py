"""The cache of plans: what is reused, and what must not be."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace
from typing import Any
from weakref import ReferenceType, ref

import pytest

from teola import (
    App,
    Each,
    Embedding,
    Generate,
    Indexing,
    QueryExpansion,
    Rerank,
    Runtime,
    Search,
)
from teola.errors import InputError
from teola.graph import Aggregation
from teola.graph.ops import GrowParams
from teola.learning import EngineTimes, Learner, Lessons
from teola.passes import PIPELINE
from teola.profile import StepTime, paper
from teola.runtime import optimiser as module
from teola.runtime.optimiser import Optimiser
from teola.schedule.plan import Plan
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind
from teola_apps.advanced_rag import app as advanced_rag
from teola_apps.chat_rag import app as chat_rag
from tests.planted import catches, edited


@pytest.fixture
def rag() -> Optimiser:
    return Optimiser(advanced_rag.builder, paper("13b"))


def test_a_new_document_with_as_many_stages_hits(rag: Optimiser) -> None:
    plan = rag.plan({}, {"chunks": 48})
    assert rag.plan({}, {"chunks": 33}) is plan
    assert rag.plan({}, {"chunks": 64}) is plan
    assert (rag.hits, rag.misses) == (2, 1)


def test_another_number_of_stages_misses(rag: Optimiser) -> None:
    two, three = rag.plan({}, {"chunks": 64}), rag.plan({}, {"chunks": 65})
    assert [p for p in two.ids if p.startswith("index.embed")] == ["index.embed.1", "index.embed.2"]
    assert len([p for p in three.ids if p.startswith("index.embed")]) == 3
    assert rag.hits == 0


def test_a_graph_that_is_too_large_is_not_planned_even_if_another_may_have_it(
    rag: Optimiser,
) -> None:
    sizes = {"chunks": 48}
    with pytest.raises(InputError, match="more primitives than are allowed"):
        rag.plan({}, sizes, most_primitives=5)
    plan = rag.plan({}, sizes)
    assert plan.optimised is not None
    size = len(plan.optimised.p_graph.primitives)
    assert len(rag.plan({}, sizes, most_primitives=size)) == size < len(plan)
    with pytest.raises(InputError, match="more primitives than are allowed"):
        rag.plan({}, sizes, most_primitives=size - 1)


def test_passes_stop_before_a_graph_becomes_too_large() -> None:
    rag = Optimiser(chat_rag.builder, paper("13b"))
    plan = rag.plan({}, {"chunks": 200}, most_primitives=25)
    assert plan.optimised is not None
    refused = [r.reason for r in plan.optimised.rewrites if "more than the 25 allowed" in r.reason]
    assert refused
    assert 16 < len(plan) <= 25


def test_a_long_document_has_no_more_stages_than_its_graph_can_bear(rag: Optimiser) -> None:
    """6,000 chunks would be 188 stages of 32."""
    plan = rag.plan({}, {"chunks": 6000}, most_primitives=512)
    stages = [p for p in plan.primitives if p.origin == "index.embed"]
    assert len(stages) == 16
    assert {p.items for p in stages[:-1]} == {384}
    assert rag.plan({}, {"chunks": 5985}, most_primitives=512) is plan


def test_overrides_and_passes_make_plans_of_their_own(rag: Optimiser) -> None:
    plans = [
        rag.plan({}, {"chunks": 48}),
        rag.plan({"expand": {"n": 2}}, {"chunks": 48}),
        rag.plan({"expand": {"n": 4}}, {"chunks": 48}),
        rag.plan({}, {"chunks": 48}, "none"),
        rag.plan({}, {"chunks": 48}, tuple(PIPELINE)[::-1]),
    ]
    assert len({id(plan) for plan in plans}) == len(plans)
    assert rag.plan({"expand": {"n": 2}}, {"chunks": 48}) is plans[1]


def test_the_last_stage_takes_whatever_there_is(rag: Optimiser) -> None:
    plan = rag.plan({}, {"chunks": 48})
    (_, last), *_ = plan.graph["index.embed.2"].item_refs()
    assert last.items == (32, None)


@pytest.mark.parametrize("mode", ["tree", "refine"])
def test_a_list_with_a_call_for_each_item_is_planned_by_its_length(mode: str) -> None:
    builder = Builder(
        "passages",
        Generate(mode=mode, inputs={"context": "passages"}),
        {"question": Kind.TEXT, "passages": Kind.TEXTS},
        {"answer": "answer"},
    )
    optimiser = Optimiser(builder, paper("13b"))
    for count in (3, 5, 3, 4):
        plan = optimiser.plan({}, {"passages": count})
        leaves = [id for id in plan.ids if id.endswith(".decode") and "merge" not in id]
        assert len(leaves) == count
    assert optimiser.hits == 1


def test_a_list_may_shape_the_graph_under_some_overrides_only() -> None:
    builder = Builder(
        "best",
        Rerank(inputs={"hits": "hits"}) >> Generate(),
        {"question": Kind.TEXT, "hits": Kind.HITS},
        {"answer": "answer"},
    )
    optimiser = Optimiser(builder, paper("13b"))
    assert optimiser.plan({}, {"hits": 2}) is optimiser.plan({}, {"hits": 9})
    refine: dict[str, Any] = {"generate": {"mode": "refine"}}
    two, nine = (optimiser.plan(refine, {"hits": n}) for n in (2, 9))
    assert sum(".decode" in id for id in two.ids) == 2
    assert sum(".decode" in id for id in nine.ids) == 3


@catches(
    "plans-first-in-first-out",
    "the plan that is used most is dropped when it is the oldest",
    edited(Optimiser.plan, "self._plans.move_to_end(key)\n        return kept", "return kept"),
)
def test_what_was_used_last_is_kept(rag: Optimiser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_PLANS", 3)
    oldest, second, _ = (rag.plan({"expand": {"n": n}}, {"chunks": 48}) for n in (2, 3, 4))
    assert rag.plan({"expand": {"n": 2}}, {"chunks": 48}) is oldest
    rag.plan({"expand": {"n": 5}}, {"chunks": 48})
    assert rag.plan({"expand": {"n": 2}}, {"chunks": 48}) is oldest
    assert rag.plan({"expand": {"n": 3}}, {"chunks": 48}) is not second


def test_old_plans_are_dropped(rag: Optimiser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_PLANS", 3)
    for n in range(1, 6):
        rag.plan({"expand": {"n": n}}, {"chunks": 48})
    for n in (5, 4, 3):
        rag.plan({"expand": {"n": n}}, {"chunks": 48})
    assert (rag.hits, rag.misses) == (3, 5)
    rag.plan({"expand": {"n": 2}}, {"chunks": 48})
    assert (rag.hits, rag.misses) == (3, 6)


def test_what_is_kept_of_old_plans_has_a_bound(
    rag: Optimiser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overrides of 100 kB each, which both the plans and their keys hold."""
    monkeypatch.setattr(module, "CACHED_PLANS", 3)
    size, held = 50_000, []
    gc.collect()
    gc.freeze()  # what other tests hold is not looked through again and again
    tracemalloc.start()
    try:
        for n in range(10, 20):
            rag.plan({"generate": {"instruction": f"{n}" * size}}, {"chunks": 48})
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[4] > 3 * size, "nothing is measured"
    assert max(held[5:]) < 1.5 * max(held[:5]), held


def test_the_refined_answer_is_the_last_one_that_exists(rag: Optimiser) -> None:
    plan = rag.plan({}, {"chunks": 48})
    last: Any = plan.graph[plan.graph.outputs["answer"].producer]
    assert last.params.mode is Aggregation.LAST
    assert len(last.input("parts")) == 3


def test_two_profiles_of_one_name_do_not_share_plans() -> None:
    """The facade keeps an optimiser for each profile, not for each profile's name."""
    app = App(
        "a",
        Indexing() >> QueryExpansion() >> Embedding(inputs={"texts": "queries"}) >> Search(),
        inputs={"question": "text", "documents": "documents"},
        outputs={"hits": "hits"},
    )
    wide = paper("13b")
    narrow = replace(
        wide, engines={k: replace(e, max_efficient=8) for k, e in wide.engines.items()}
    )
    with Runtime() as runtime:
        assert app.optimiser(runtime, wide).profile is wide
        assert app.optimiser(runtime, narrow).profile is narrow


# --- plans of the epoch before -------------------------------------------------------------------


ROWS = {"rows": 3}


def _learning(profile: Any) -> tuple[Optimiser, Learner, list[Any]]:
    """An optimiser of an application that grows parts, and what it puts off."""
    learner, coming = Learner(), list[Any]()
    rows = Each(
        Generate(inputs={"question": "row"}), over="rows", item="row", gives={"all": "answer"}
    )
    app = App("grows", rows, inputs={"rows": "texts"}, outputs={"all": "all"})
    return Optimiser(app.builder, profile, learner, later=coming.append), learner, coming


def _an_epoch_begins(learner: Learner) -> None:
    learner.recall(Lessons())


@catches(
    "plans-ever-later",
    "a plan of any age serves",
    edited(Optimiser.plan, "before.profile.epoch == epoch - 1", "True"),
)
@catches(
    "renewed-again-and-again",
    "a plan that is to be made anew is put off by each query",
    edited(Optimiser.plan, "key not in self._coming", "True"),
)
@catches(
    "never-renewed",
    "a plan that was put off is not made",
    edited(Optimiser._renew, "self.plan(", "str("),
)
def test_the_plan_of_the_epoch_before_serves_until_its_successor_is_made() -> None:
    optimiser, learner, coming = _learning(paper("13b"))
    first = optimiser.plan({}, ROWS, at_once=False)
    _an_epoch_begins(learner)
    assert [optimiser.plan({}, ROWS, at_once=False) for _ in range(2)] == [first, first]
    (renew,) = coming
    coming.clear()
    renew()
    second = optimiser.plan({}, ROWS, at_once=False)
    assert second is not first
    assert second.profile.epoch == learner.lessons.epoch
    assert coming == []
    _an_epoch_begins(learner)
    assert optimiser.plan({}, ROWS).profile.epoch == learner.lessons.epoch, "at once"
    for _ in range(2):
        _an_epoch_begins(learner)
    latest = optimiser.plan({}, ROWS, at_once=False)
    assert latest.profile.epoch == learner.lessons.epoch, "no plan is two epochs late"
    assert coming == []


@catches(
    "late-parts-kept",
    "a part keeps its plan of the epoch before as long as the next one lasts",
    edited(module._PartPlans.__call__, "plan.profile.epoch == epoch", "True"),
)
def test_so_does_that_of_a_part() -> None:
    optimiser, learner, coming = _learning(paper("13b"))
    plan = optimiser.plan({}, ROWS)
    assert plan.parts is not None
    (grows,) = (p.params for p in plan.primitives if isinstance(p.params, GrowParams))
    body = next(iter(grows.grower.bodies.values()))
    part = plan.parts(body, {})
    _an_epoch_begins(learner)
    assert [plan.parts(body, {}) for _ in range(2)] == [part, part]
    (renew,) = coming
    renew()
    assert plan.parts(body, {}) is not part
    assert plan.parts(body, {}) is plan.parts(body, {})


@catches(
    "late-without-times",
    "a plan without times serves although times are known by now",
    edited(Optimiser.plan, "== epoch - 1 and before.total_s", "== epoch - 1"),
)
def test_a_plan_without_times_waits_for_none() -> None:
    optimiser, learner, coming = _learning(paper("13b").untimed())
    optimiser.plan({}, ROWS, at_once=False)
    _an_epoch_begins(learner)
    assert optimiser.plan({}, ROWS, at_once=False).profile.epoch == learner.lessons.epoch
    assert coming == []


# --- what a plan takes over from the one before it -----------------------------------------------


SIZES = {"advanced": (advanced_rag, {"chunks": 48}), "chat": (chat_rag, {"chunks": 200})}


def _tables(plan: Plan) -> dict[str, Any]:
    """All that a plan has, also what it works out when it is asked for; of its profile and of the
    decisions of its passes what they say."""
    for name in ("keepable", "texts", "feeding", "beginnings", "shown"):
        getattr(plan, name)
    return {name: value for name, value in vars(plan).items() if name != "parts"}


@catches(
    "old-specs",
    "a plan tells queues and policies what was known before",
    edited(Plan.successor, "made._know(profile)", "made.profile = profile"),
)
@catches(
    "old-beginnings",
    "calls that begin alike are told by the specs of before",
    edited(Plan.successor, 'made.__dict__.pop("beginnings", None)', "None"),
)
@catches(
    "old-decisions",
    "a plan explains what the passes decided before",
    edited(Plan.successor, "made.optimised, made.parts =", "_ ="),
)
@pytest.mark.parametrize("name", SIZES)
def test_a_successor_is_what_a_new_plan_would_be(name: str) -> None:
    (app, sizes), profile, learner = SIZES[name], paper("13b"), Learner()
    optimiser = Optimiser(app.builder, profile, learner)
    first = optimiser.plan({}, sizes)
    assert _tables(first)
    step = profile.engines["llm"].step
    assert step is not None
    slower = replace(step, base_s=step.base_s * 1.5, per_context_s=step.per_context_s * 1.5)
    learner.recall(Lessons(engines={"llm": EngineTimes(step=slower, seen=9)}))
    second = optimiser.plan({}, sizes)
    new = Optimiser(app.builder, optimiser.profile).plan({}, sizes)
    assert second.specs != first.specs
    assert _tables(second) == _tables(new)
    assert second.graph is first.graph
    assert second.members is first.members


@catches(
    "other-lengths",
    "a plan goes on with the p-graph of a list of another length",
    edited(Optimiser.plan, "kept.built_of == built_of", "True"),
)
@catches(
    "other-graph",
    "a plan goes on with the e-graph of before, whatever the passes make by now",
    edited(Optimiser._made, "optimised.e_graph == last.graph", "True"),
)
def test_nothing_is_taken_over_that_would_be_another() -> None:
    profile, learner = paper("13b"), Learner()
    optimiser = Optimiser(advanced_rag.builder, profile, learner)
    first = optimiser.plan({}, {"chunks": 48})
    learner.recall(Lessons())
    other = optimiser.plan({}, {"chunks": 33})
    assert other.graph == Optimiser(advanced_rag.builder, profile).plan({}, {"chunks": 33}).graph
    assert other.graph != first.graph
    # Beside so long a first step no part of a prompt pays for being computed ahead.
    learner.recall(Lessons(engines={"llm": EngineTimes(step=StepTime(9.0), seen=9)}))
    plain = optimiser.plan({}, {"chunks": 33})
    new = Optimiser(advanced_rag.builder, optimiser.profile).plan({}, {"chunks": 33})
    assert plain.graph != other.graph
    assert _tables(plain) == _tables(new)


def test_plans_of_past_epochs_are_let_go() -> None:
    optimiser, learner, _ = _learning(paper("13b"))
    plans = list[ReferenceType[Plan]]()
    for _ in range(4):
        plans.append(ref(optimiser.plan({}, ROWS)))
        _an_epoch_begins(learner)
    assert [plan() is None for plan in plans] == [True, True, True, False]
