"""What a run measured of each primitive: tries, slices and pieces are put together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from teola import App, Embedding, QueryExpansion
from teola.explain_measured import MeasuredGraph
from teola.graph import Graph
from teola.runtime.observe.trace import Span

APP = App(
    "x",
    QueryExpansion(n=4) >> Embedding(inputs={"texts": "queries"}),
    inputs={"question": "text"},
    outputs={"vectors": "vectors"},
)
GRAPH = APP.builder.build(APP.builder.configure({}), {})
EMBED, DECODE = "embed.embed", "expand.decode"


def span(
    of: str, queued: float, start: float, end: float, lo: int = 0, hi: int = 1, state: str = "done"
) -> Span:
    return Span(of, "op", "c", "e", queued, start, end, lo=lo, hi=hi, state=state)


def measured(*spans: Span, graph: Graph = GRAPH) -> MeasuredGraph:
    trace: Any = SimpleNamespace(spans=list(spans))
    return MeasuredGraph.of(trace, graph)


def test_slices_are_one_from_the_first_to_the_last() -> None:
    found = measured(
        span(EMBED, 0.0, 1.0, 2.0, 0, 2),
        span(EMBED, 0.5, 1.5, 4.0, 2, 4),
        span(DECODE, 0.0, 0.25, 0.5),
    )
    assert (found.queued[EMBED], found.ran[EMBED]) == (1.0, 3.0)
    assert (found.queued[DECODE], found.ran[DECODE]) == (0.25, 0.25)
    assert found.items[EMBED] == 4


def test_a_try_that_failed_took_no_time_and_its_items_came_once() -> None:
    found = measured(
        span(EMBED, 0.0, 0.5, 9.0, 0, 2, "failed"),
        span(EMBED, 1.0, 3.0, 4.0, 0, 2),
        span(EMBED, 1.0, 3.5, 5.0, 1, 3),
    )
    assert (found.queued[EMBED], found.ran[EMBED]) == (2.0, 2.0)
    assert found.items[EMBED] == 3
    assert found.states == {EMBED: "done"}


@pytest.mark.parametrize(
    ("state", "items"), [("failed", 2), ("cancelled", 2), ("skipped", 0), ("fused", 0)]
)
def test_what_was_not_done_has_a_state_and_no_time(state: str, items: int) -> None:
    found = measured(span(EMBED, 0.0, 1.0, 2.0, 0, 2, state), span(DECODE, 0.0, 1.0, 2.0))
    assert set(found.ran) == set(found.queued) == {DECODE}
    assert found.states == {EMBED: state, DECODE: "done"}
    assert found.items[EMBED] == items
    assert found.items[DECODE] == GRAPH[DECODE].items, "it takes no list"


def test_pieces_that_ran_at_the_same_time_count_once() -> None:
    """Of a primitive of which no piece ran there is no time."""
    one, other = EMBED, DECODE
    found = measured(span(one, 0, 1.0, 3.0), span(one, 0, 6.0, 7.0), span(other, 0, 2.0, 4.0))
    origin = {one: EMBED, other: EMBED, "expand.prefill": "expand.prefill"}
    assert found.of_origins(origin, GRAPH) == {EMBED: 4.0}


def test_items_of_pieces_are_added_where_both_take_lists() -> None:
    found = measured(span(EMBED, 0, 1, 2, 0, 3), span(DECODE, 0, 1, 2, 0, 1))
    every = {EMBED: EMBED, DECODE: DECODE}
    items = found.items_of(every, GRAPH, GRAPH)
    assert (items[EMBED], items[DECODE]) == (3, GRAPH[DECODE].items)
    joined = found.items_of({EMBED: EMBED, DECODE: EMBED}, GRAPH, GRAPH)
    assert joined[EMBED] == 3, "what joins the pieces takes no list"
