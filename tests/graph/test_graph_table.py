"""Tables of graphs: no line is wider than it may be, and no name and no number is broken."""

from __future__ import annotations

import re

import pytest

from teola.graph import Graph
from teola.graph.graph_table import to_text
from teola.profile import paper
from teola.runtime.optimiser import Optimiser
from teola_apps.advanced_rag import app
from tests.graph.test_render import every_kind

TIMES = ("est. s", "queued s", "ran s")


@pytest.fixture(scope="module")
def wide() -> Graph:
    """An e-graph of some fifty primitives, searches that wait for many among them."""
    return Optimiser(app.builder, paper("13b")).plan({}, {"chunks": 480}).graph


@pytest.mark.parametrize("width", [48, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("more", [0, 1, 3])
def test_lines_fit_and_names_are_whole(wide: Graph, width: int, more: int) -> None:
    times = {title: dict.fromkeys(wide.order, "12.3456*") for title in TIMES[:more]}
    lines = to_text(wide, times, width=width).splitlines()
    assert max(map(len, lines)) <= width
    named = [line for line in lines if any(id in line.split() for id in wide.order)]
    assert len(named) == len(wide)
    if more:
        assert sum("12.3456*" in line for line in lines) == len(wide)  # the last of the times stays


def test_numbers_stand_for_the_primitives_in_their_lines(wide: Graph) -> None:
    head, *rows = to_text(wide, width=80).splitlines()
    at, number = head.index("waits for"), {id: n for n, id in enumerate(wide.order, 1)}
    cells: dict[str, str] = {}
    for row in rows:
        if row.startswith("waits for"):
            break
        if named := row[:at].split():
            last = next(word for word in named if word in number)
            assert number[last] == int(named[0])
        cells[last] = f"{cells.get(last, '')} {row[at:]}"
    for id, cell in cells.items():
        found = set[int]()
        for first, end in re.findall(r"(\d+)(?:-(\d+))?", cell):
            found.update(range(int(first), int(end or first) + 1))
        assert found == {number[one] for one in wide.parents[id]}, id
    assert "(" in cells["search.search"]  # searches wait for ingestion, without its data


def test_a_table_with_room_names_all(wide: Graph) -> None:
    assert to_text(wide, width=10_000) == to_text(wide)
    assert "waits for: numbers" not in to_text(wide)


def test_kinds_of_edges_are_explained_where_they_occur() -> None:
    narrow = to_text(every_kind(), width=60)
    assert "(n) protects an effect" in narrow
    assert "[n] decides whether it runs" in narrow


def test_items_that_came_stand_in_place_of_those_planned(wide: Graph) -> None:
    came = {id: 7_000 + k for k, id in enumerate(wide.order)}
    text = to_text(wide, items=came)
    assert all(str(count) in text for count in came.values())
