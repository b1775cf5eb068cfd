"""Tables of graphs: no line is wider than it may be, and no name and no number is broken."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from textwrap import wrap

import pytest

from teola.graph import Graph, Guard, Order, Ref
from teola.graph.graph_table import to_text
from teola.profile import paper
from teola.runtime.optimiser import Optimiser
from teola_apps.advanced_rag import app
from tests.graph.test_render import every_kind
from tests.schedule.plans import aggregate, condition, tool

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


# --- beside a slow one, which tries one set of columns after the other ----------------------


def edges() -> Graph:
    """Waits for one, two and three in a row, apart, by each kind of edge, for a branch behind which
    it reads what is done ahead, and for nothing."""
    made = [tool(f"step.{k}", items=10**k) for k in range(10)]
    made.append(condition("if", Ref("step.0", "out")))
    stored = tuple(Order(f"step.{k}", "stored") for k in (1, 2, 3, 5, 8))
    made.append(tool("all", *(f"step.{k}" for k in (0, 2, 3, 5, 6, 7, 9)), after=stored))
    made.append(tool("then", "all", Ref("if", "branch"), guards=(Guard("if", "then"),)))
    made.append(tool("alone", guards=(Guard("if", "otherwise"),)))
    made.append(aggregate("the one that waits for both of them", "then", "alone"))
    made.append(tool("ahead", guards=(Guard("if", "then", speculative=True),)))
    made.append(aggregate("behind", "ahead", "alone"))
    return Graph("edges", made, {"answer": Ref("alone", "out")}, ["question"])


def kind_of(graph: Graph, parent: str, child: str) -> str:
    """Of two kinds of edges, the one that says more."""
    p = graph[child]
    if parent in {guard.condition for guard in p.guards}:
        return "guard"
    return "order" if parent in {order.producer for order in p.after} else "data"


def numbered(graph: Graph, id: str) -> str:
    """Data first, then orders, then guards; each run of numbers without a gap as one."""
    number = {one: k for k, one in enumerate(graph.order, 1)}
    words = []
    for kind, before, behind in (("data", "", ""), ("order", "(", ")"), ("guard", "[", "]")):
        those = {number[one] for one in graph.parents[id] if kind_of(graph, one, id) == kind}
        for first in sorted(those):
            if first - 1 not in those:
                last = next(n for n in range(first, 1000) if n + 1 not in those)
                words.append(f"{before}{first}{f'-{last}' if last > first else ''}{behind}")
    return " ".join(words) or "-"


def named(graph: Graph, id: str) -> str:
    kinds = {one: kind_of(graph, one, id) for one in graph.parents[id]}
    return ", ".join(f"{one} ({of})" if of != "data" else one for one, of in kinds.items()) or "-"


def table(columns: Mapping[str, Sequence[str]], fold: int | None = None) -> list[str]:
    """Names to the left, numbers to the right; fold: where the last column goes on below."""
    left = ("primitive", "op", "engine", "waits for")
    widths = {title: max(map(len, (title, *cells))) for title, cells in columns.items()}
    lines = []
    for row in [[*columns], *map(list, zip(*columns.values(), strict=True))]:
        parts = [[cell] for cell in row]
        if fold is not None:
            parts[-1] = wrap(row[-1], fold) or [""]
        for k in range(len(parts[-1])):
            cells = [part[k] if k < len(part) else "" for part in parts]
            padded = [
                cell.ljust(width) if title in left else cell.rjust(width)
                for cell, (title, width) in zip(cells, widths.items(), strict=True)
            ]
            lines.append("  ".join(padded).rstrip())
    return lines


def slowly(graph: Graph, more: Mapping[str, Mapping[str, str]], width: int) -> list[str]:
    """All columns, with names, if that fits; else with numbers, and without the first column that
    tells least, the first two, ..., until it fits. A column of numbers is no narrower than 16."""
    ids = graph.order
    columns: dict[str, list[str]] = {
        "#": [str(k) for k in range(1, len(ids) + 1)],
        "depth": [str(graph.depth[id]) for id in ids],
        "primitive": [*ids],
        "op": [graph[id].op.value for id in ids],
        "engine": [graph[id].engine or "-" for id in ids],
        "items": [str(graph[id].items) for id in ids],
        **{title: [cells.get(id, "") for id in ids] for title, cells in more.items()},
        "waits for": [named(graph, id) for id in ids],
    }
    whole = table({title: cells for title, cells in columns.items() if title != "#"})
    if all(len(line) <= width for line in whole):
        return whole
    columns["waits for"] = [numbered(graph, id) for id in ids]
    titles = ["depth", "op", "engine", "waits for", "items", *[*more][:-1]]
    for count in range(len(titles) + 1):
        gone = {*titles[:count], *(["#"] if "waits for" in titles[:count] else [])}
        shown = {title: cells for title, cells in columns.items() if title not in gone}
        *_, last = shown.values()
        wide = max(map(len, ([*shown][-1], *last)))
        before = max(map(len, table(shown, 1000))) - wide
        fits = before + (min(wide, 16) if "waits for" in shown else wide) <= width
        if fits or count == len(titles):
            break
    if "waits for" not in shown:
        return table(shown)
    legend = "waits for: numbers of primitives"
    kinds = {edge.kind for edge in graph.edges()}
    if "order" in kinds:
        legend += "; (n) protects an effect and carries no data"
    if "guard" in kinds:
        legend += "; [n] decides whether it runs"
    return [*table(shown, max(16, width - before)), *wrap(legend, width)]


@pytest.mark.parametrize("more", [0, 1, 3])
@pytest.mark.parametrize("made", [edges, every_kind, lambda: Graph("one", [tool("a")], {})])
def test_each_width_has_the_columns_that_fit(made: type[Graph], more: int) -> None:
    graph = made()
    graph.validate()
    times = {title: {graph.order[0]: "12.3456*"} for title in TIMES[:more]}
    widest = max(map(len, to_text(graph, times).splitlines()))
    for width in range(1, widest + 2):
        assert to_text(graph, times, width=width).splitlines() == slowly(graph, times, width), width
    assert to_text(graph, times, width=widest) == to_text(graph, times), "exactly as wide"
