"""What of a query in flight grows, and who is told of lists that are being written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola import App, Generate, QueryExpansion
from teola.graph import CountsParts, Grow, GrowParams
from teola.runtime.in_flight import Growing, Place, Query, grows, is_heard, told_port
from teola.runtime.observe.trace import Trace
from teola.runtime.optimiser import Optimiser
from teola.runtime.store import Store
from teola.schedule.graph_run import GraphRun
from teola.workflow.components.each import Going
from tests.runtime.sim.test_weights import LOOP, MAP, PROFILE, habits

PLANNED = 8
EXPECTED = 4
"""Turns of the loop, by its author."""
SEEN = (3, 3, 2, 1)
"""Of three runs, all had a turn, two a second one, one a third."""


def query(app: App, turns: tuple[int, ...] = (), component: str = "loop") -> Query:
    known = replace(PROFILE, habits=habits(turns, component)) if turns else PROFILE
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
