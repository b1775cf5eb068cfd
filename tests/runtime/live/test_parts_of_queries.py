"""A part of a live query: what it shares with it, what is kept of it, and whether it streams."""

from __future__ import annotations

from typing import Any

import pytest

from teola.engine import QueryContext
from teola.graph import Grow
from teola.runtime.in_flight import Place
from teola.runtime.live.nesting import Terms
from teola.runtime.live.query import LiveQuery, part_of
from teola.runtime.observe.kept_values import ValueRoom
from teola.runtime.observe.trace import Trace
from teola.runtime.store import Store
from teola.schedule.graph_run import GraphRun
from tests.runtime.sim.test_weights import LOOP
from tests.runtime.test_in_flight import growing, query


def around(room: ValueRoom | None = None, *, streams: bool = True) -> LiveQuery:
    """With one primitive that grows."""
    plan = query(LOOP).plan
    trace, heard = Trace("q", "app", plan, 0.0), list[Any]()
    made = LiveQuery(
        QueryContext("q", "t", 9.0, part_of="program"),
        plan,
        Store(plan, {}),
        GraphRun("q", plan),
        trace,
        None,
        heard.append,
        streams,
        Terms(values=room),
    )
    growing(made)
    return made


def began(made: LiveQuery, **more: Any) -> LiveQuery:
    """Its first part."""
    (grown,) = made.growing.values()
    body = next(iter(grown.params.grower.bodies))
    grow = Grow(body, "0", {"draft": "text"}, **more)
    return part_of(made, "q/x/0", grown.plan_of(grow), Place(grown, "0", 1, grow), 3.0)


@pytest.mark.parametrize("records", [1, 0])
@pytest.mark.parametrize("keeps", [True, False])
def test_what_a_part_gives_is_kept_where_somebody_can_look_at_it(keeps: bool, records: int) -> None:
    room = ValueRoom("small") if keeps else None
    made = around(room)
    made.tally.records = records
    part = began(made)
    part.store.put(0, {"out": "It rains."})
    values = part.trace.values
    assert (values is not None) is (keeps and records > 0)
    if values is not None:
        assert values.room is room
        assert values.outputs(0) == {"out": "It rains."}
        assert values._given == {"draft": "text"}
    assert part.store.kept is values


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("answers", [True, False])
def test_the_part_that_gives_the_answer_streams_where_its_query_does(
    answers: bool, last: bool, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """last: what grows is what answers the query."""
    monkeypatch.setattr(GraphRun, "answers", lambda run, i: last)
    made = around(streams=streams)
    assert began(made, answers=answers).streams is (answers and last and streams)


def test_a_part_ends_with_its_query_and_counts_with_it() -> None:
    """Whether its life is over is its own."""
    made = around()
    part = began(made)
    context = part.context
    assert (context.query_id, context.tenant, context.deadline) == ("q/x/0", "t", 9.0)
    assert context.program == made.context.program == "program"
    assert (part.tally, part.terms, part.watcher) == (made.tally, made.terms, made.watcher)
    assert part.outermost is made
    part.store.put_slice(0, 0, 1, 1, {"out": "It rains."})
    assert made.tally.held_bytes == part.store.held_bytes > 0
    assert part.done is None
    part.left_alone()
    assert (part.context.life.over, made.context.life.over) == (True, False)
