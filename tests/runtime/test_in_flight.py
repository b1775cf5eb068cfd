"""What of a query in flight grows, and who is told of lists that are being written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from teola import App, Generate, QueryExpansion
from teola.graph import CountsParts, Grow, GrowParams
from teola.policies.asker import Asker
from teola.profile import Cost, Profile, StepTime
from teola.runtime.in_flight import (
    Growing,
    Place,
    Query,
    grows,
    is_heard,
    may_feed,
    part_run,
    part_trace,
    told_port,
)
from teola.runtime.observe.trace import Trace
from teola.runtime.optimiser import Optimiser
from teola.runtime.store import Store
from teola.runtime.tally import Tally
from teola.schedule.events import Completed, Started, State
from teola.schedule.graph_run import GraphRun
from teola.workflow.components.each import Going
from tests.runtime.sim.test_weights import (
    LLM,
    LOOP,
    MAP,
    PART_S,
    PREFILL_S,
    PROFILE,
    STEP_S,
    habits,
)
from tests.schedule.plans import plan as plan_by_hand
from tests.schedule.plans import tool

PLANNED = 8
EXPECTED = 4
"""Turns of the loop, by its author."""
SEEN = (3, 3, 2, 1)
"""Of three runs, all had a turn, two a second one, one a third."""


def query(
    app: App, turns: tuple[int, ...] = (), component: str = "loop", known: Profile = PROFILE
) -> Query:
    if turns:
        known = replace(known, habits=habits(turns, component))
    plan = Optimiser(app.builder, known).plan({}, {"rows": PLANNED} if app is MAP else {})
    store, trace = Store(plan, {}), Trace("q", app.name, plan, 0.0)
    return Query("q", plan, store, GraphRun("q", plan), trace)


def growing(around: Query) -> Growing:
    """Its one primitive that grows; a map knows of no item yet."""
    ((i, params),) = (
        (i, p.params)
        for i, p in enumerate(around.plan.primitives)
        if isinstance(p.params, GrowParams)
    )
    grower = params.grower
    made = Going(grower, {}) if around.plan.graph.name == "map" else grower.growth({"draft": ""})
    return grows(around, i, made)


@pytest.mark.parametrize("seen", [(), SEEN])
@pytest.mark.parametrize("turns", range(12))
def test_turns_that_follow_are_those_that_followed_before_and_else_those_of_the_author(
    turns: int, seen: tuple[int, ...]
) -> None:
    """Beyond the longest run that was seen, the author's word counts again."""
    made = growing(query(LOOP, seen))
    made.turns = turns
    assert made.counted is None
    followed = {0: 2.0, 1: 1.0, 2: 0.5, 3: 0.0} if seen else {}
    planned = 2.0 if seen else EXPECTED
    assert made.coming() == pytest.approx(followed.get(turns, max(0.0, planned - turns)))


@pytest.mark.parametrize("seen", [(), SEEN])
@pytest.mark.parametrize("written", [0, 1, 2, 3, 12])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_items_that_follow_are_the_lists_and_while_it_is_written_as_many_at_least(
    turns: int, written: int, seen: tuple[int, ...]
) -> None:
    if turns > written:
        return
    made = growing(query(MAP, seen, "each"))
    assert isinstance(made.counted, CountsParts)
    assert isinstance(made.growth, Going)
    made.turns, made.growth.count = turns, written
    assert made.coming() == written - turns, "the list is complete"
    made.fed = written
    usual = {0: 2.0, 1: 1.0, 2: 0.5}[turns] if seen else PLANNED - turns
    assert made.coming() == pytest.approx(max(usual, written - turns))


LISTS = App(
    "lists",
    QueryExpansion(n=3) >> Generate(inputs={"context": "queries"}),
    inputs={"question": "text"},
    outputs={"asked": "queries", "end": "answer"},
)


@pytest.mark.parametrize("tells", ["", "asked", "end", "asked end"])
def test_who_began_a_part_is_told_of_the_lists_that_it_asked_to_be_told_of(tells: str) -> None:
    """By the call that writes it, and of no other call."""
    around = query(LOOP)
    plan = Optimiser(LISTS.builder, PROFILE).plan({}, {})
    trace = Trace("q/loop/0", "lists", plan, 0.0)
    part = Query("q/loop/0", plan, Store(plan, {}), GraphRun("q/loop/0", plan), trace)
    heads = {port: plan.head[plan.index[ref.producer]] for port, ref in plan.graph.outputs.items()}
    assert len({*heads.values()}) == 2
    assert [told_port(part, head) for head in heads.values()] == ["", ""], "it is no part"
    grow = Grow("body", "0", {}, tells=frozenset(tells.split()))
    part.place = Place(growing(around), "0", 1, grow)
    for port, head in heads.items():
        assert told_port(part, head) == (port if port in tells.split() else "")
        fed = head in plan.feeding
        assert is_heard(part, head) == (fed or port in tells.split())


# --- parts ------------------------------------------------------------------------------------


def part_of(around: Query, now: float, coming: float = 0.0) -> tuple[GraphRun, Trace, Place]:
    """A part of the one primitive that grows, as drivers begin it."""
    grown = growing(around) if not around.growing else next(iter(around.growing.values()))
    body = next(iter(grown.params.grower.bodies))
    plan = grown.plan_of(Grow(body, "0", {}))
    place = Place(grown, "0", 1, Grow(body, "0", {}), coming)
    return (
        part_run(around, "q/x/0", plan, place, now),
        part_trace(around, "q/x/0", plan, place, now),
        place,
    )


@pytest.mark.parametrize("times", [1.0, 0.25, 0.0])
@pytest.mark.parametrize("coming", [0.0, 3.0])
def test_a_part_has_its_querys_time_and_what_follows_it_behind_it(
    times: float, coming: float
) -> None:
    """times: of what a call takes; without any nobody knows how old the query is."""
    llm = replace(
        LLM, step=StepTime.of(Cost(base_s=PREFILL_S * times), Cost(base_s=STEP_S * times))
    )
    known = replace(PROFILE, engines={"llm": llm}) if times else PROFILE.untimed()
    around = query(LOOP, known=known)
    asker = Asker("t", "a", "p", 0.5)
    outer = around.run = GraphRun("q", around.plan, asker, began=2.0, deadline=9.0, behind_s=7.0)
    run, _, place = part_of(around, 3.0, coming)
    assert (run.asker, run.began, run.deadline) == (asker, 3.0, 9.0)
    call_s = PART_S * times
    assert outer.total_s == pytest.approx((EXPECTED + 1) * call_s)
    assert run.total_s == pytest.approx(outer.total_s), "it weighs as its query"
    follows = (1 + coming) * call_s if times else 2.0  # the two primitives of the last call
    assert run.behind_s == pytest.approx(7.0 + follows)
    assert run.admitted == (2.0 if times else 3.0)
    assert place.recorded


def test_a_part_whose_time_is_known_weighs_as_itself_in_a_query_whose_time_is_not() -> None:
    around, known = query(LOOP, known=PROFILE.untimed()), query(LOOP)
    _, _, place = part_of(around, 3.0)
    run = part_run(around, "q/x/0", known.plan, place, 3.0)
    assert run.total_s == pytest.approx((EXPECTED + 1) * PART_S)


def test_as_many_parts_are_recorded_as_may_be() -> None:
    around = query(LOOP)
    around.tally.records = 2
    made = [part_of(around, 3.0) for _ in range(3)]
    assert [place.recorded for _, _, place in made] == [True, True, False]
    assert around.trace.inner == [trace for _, trace, _ in made[:2]]
    assert around.tally.records == 0
    for _, trace, place in made:
        assert (trace.query_id, trace.app, trace.admitted) == ("q/x/0", "loop", 3.0)
        assert trace.parent == ("q", around.plan.ids[place.growing.i])


def test_a_part_is_planned_for_as_many_items_as_its_lists_have() -> None:
    """By the template that it names, or by its own."""
    asked: list[tuple[Any, Mapping[str, int]]] = []
    made = growing(query(MAP))
    grower, plan = made.params.grower, made.query.plan
    made.query.plan = SimpleNamespace(parts=lambda *given: asked.append(given))  # type: ignore[assignment]
    inputs = {"row": "text", "rows": ["a", "b"], "none": [], "pair": (1, 2)}
    own = object()
    for grow in (Grow("item", "0", inputs), Grow("item", "1", {}, made=own)):
        made.plan_of(grow)
    made.query.plan = plan
    assert asked == [(grower.bodies["item"], {"rows": 2, "none": 0}), (own, {})]


def test_what_has_ended_lets_go_of_what_it_holds_once() -> None:
    around = query(LOOP)
    around.tally.held_bytes = 100
    made = growing(around)
    made.held_bytes = 60
    made.waiting.append(iter(()))
    for _ in range(2):
        made.close()
        assert (made.over, made.held_bytes, [*made.waiting]) == (True, 0, [])
        assert around.tally.held_bytes == 40


# --- lists ------------------------------------------------------------------------------------


def test_a_primitive_is_fed_once_all_else_that_it_reads_is_there_and_as_long_as_it_is_awaited() -> (
    None
):
    """It reads a list that is being written, and two other values."""
    made = plan_by_hand(tool("list"), tool("one"), tool("two"), tool("end", "list", "one", "two"))

    def fed(*ended: str, state: State | None = None, by: str = "list") -> bool:
        run = GraphRun("q", made)
        run.handle(Started({}), 0.0)
        for id in ended:
            run.handle(Completed(made.index[id], {"out": 1}), 0.0)
        run.state = state
        around = Query("q", made, Store(made, {}), run, Trace("q", "a", made, 0.0))
        return may_feed(around, made.index["end"], made.index[by])

    assert not fed()
    assert not fed("one")
    assert not fed("two")
    assert fed("one", "two")
    assert not fed("one", "two", state=State.FAILED)
    assert not fed("one", "two", by="one"), "the list is not there"


def test_a_prompt_is_as_long_as_all_its_pieces_that_are_computed_with_it() -> None:
    made = query(LOOP)
    i = made.plan.index["last.prefill"]
    made.store.prompt_tokens = {i: 100, 7: 20, 8: 3}.__getitem__  # type: ignore[method-assign]
    assert made.prompt_tokens(i) == 100
    made.run.fused[i] = (7, 8)
    assert made.prompt_tokens(i) == 123


def test_a_query_counts_for_itself_unless_it_is_given_a_tally() -> None:
    around = query(LOOP)
    tally = Tally(parts=3)
    for given in (tally, None):
        made = Query("q", around.plan, around.store, around.run, around.trace, given)
        assert (made.tally is tally) == (given is tally)
    assert Query("q", around.plan, around.store, around.run, around.trace).tally == Tally()
