"""Rendering, against files in `snapshots/`: change them on purpose, and look at what changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teola.errors import UnknownName
from teola.graph import Graph, Guard, Order
from teola.graph.graph_table import to_text
from teola.graph.render import render, to_json
from tests.schedule.plans import Ref, aggregate, call, condition, tool

SNAPSHOTS = Path(__file__).parent / "snapshots"


def every_kind() -> Graph:
    """Every kind of edge, an engine call, a component with a quotation mark."""
    stored = Order("store", "an effect", effect=True)
    primitives = [
        tool("store", items=40, batchable=True),
        condition("if"),
        *call("expand", 2),
        tool("then", "expand.0", guards=(Guard("if", "then"),)),
        tool("else", "expand.1", after=(stored,), guards=(Guard("if", "otherwise"),)),
        aggregate('say "both"', "then", "else"),
    ]
    made = Graph("test", primitives, {"answer": Ref('say "both"', "out")}, ["question"])
    made.validate()
    return made


@pytest.fixture
def graph() -> Graph:
    return every_kind()


@pytest.mark.parametrize("form", ["text", "mermaid", "dot"])
def test_snapshots(graph: Graph, form: str) -> None:
    assert render(graph, form) + "\n" == (SNAPSHOTS / f"graph.{form}").read_text()


def test_json_snapshot(graph: Graph) -> None:
    found = json.dumps(to_json(graph), indent=1) + "\n"
    assert found == (SNAPSHOTS / "graph.json").read_text()


def test_further_columns(graph: Graph) -> None:
    text = to_text(graph, {"est. s": {"store": "0.100", "expand.0": "2.000"}})
    head, *rows = text.splitlines()
    at = head.index("est. s")
    cells = [row[at : at + 6].strip() for row in rows]
    assert [cell for cell in cells if cell] == ["0.100", "2.000"]


def test_how_many_items_a_primitive_has_is_said_from_two_on() -> None:
    counts = {1: "", 2: " × 2", 3: " × 3"}
    made = [tool(f"s{count}", items=count, batchable=True) for count in counts]
    text = render(Graph("test", made, {}), "mermaid")
    for count, said in counts.items():
        assert f's{count}<br>tool_call{said}"' in text


def test_names_are_quoted_as_each_form_wants_it() -> None:
    made = Graph('a "b"', [tool('c\\d "e"\nf')], {})
    quoted = "c\\\\d 'e'\\nf"
    dot = render(made, "dot").splitlines()
    assert dot[0] == "digraph \"a 'b'\" {"
    assert dot[3] == f'  subgraph cluster_0 {{ label="{quoted}";'
    assert dot[4].startswith(f'    "{quoted}" [label="{quoted}\\ntool_call", shape=box,')
    mermaid = render(made, "mermaid").splitlines()
    assert mermaid[1:3] == [
        f'  subgraph c0["{quoted}"]', f'    n0["{quoted}<br>tool_call"]',
    ]  # fmt: skip


def test_rendering_is_deterministic(graph: Graph) -> None:
    again = Graph(graph.name, graph.primitives, graph.outputs, graph.inputs)
    assert render(graph, "mermaid") == render(again, "mermaid")


def test_an_unknown_format_is_refused(graph: Graph) -> None:
    with pytest.raises(UnknownName, match="unknown format 'png'"):
        render(graph, "png")
