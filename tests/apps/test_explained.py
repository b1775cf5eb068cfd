"""What `explain` shows of a query that it ran: the graph that ran, and how each primitive ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola import Runtime
from teola.catalogue import load_app
from teola.explain import Explanation
from teola.graph import Op
from teola.profile import Profile
from tests.conftest import PAGES

INPUTS = {
    "question": "Who looks after the lamp of the lighthouse?",
    "documents": [{"name": name, "text": text} for name, text in PAGES.items()],
}


@pytest.fixture
def indexed(runtime: Runtime) -> Explanation:
    """Of a query whose documents the store had already."""
    app = load_app("advanced-rag")
    before, app.runtime = app.runtime, runtime
    try:
        app.run(INPUTS)
        return app.explain(INPUTS, analyze=True)
    finally:
        app.runtime = before


def rows(found: Explanation) -> dict[str, list[str]]:
    """Primitive of the e-graph -> items, seconds queued, seconds that it ran."""
    text = found.text()
    table = text[text.index("e-graph:") : text.index("where the times come from")].splitlines()
    skipped = 1 if "est. s" in table[1] else 0
    cells = [line.split() for line in table[2:] if line.strip()]
    return {row[1]: [row[4], *row[5 + skipped : 7 + skipped]] for row in cells}


def test_the_graphs_are_those_that_ran(indexed: Explanation) -> None:
    assert indexed.result is not None
    assert indexed.result.trace is not None
    plan = indexed.result.trace.plan
    assert plan is not None
    assert list(indexed.optimised.e_graph.order) == list(plan.graph.order)
    items = {p["id"]: p["items"] for p in indexed.to_json()["p_graph"]["primitives"]}
    assert items["index.embed"] == 0


def test_every_primitive_says_how_long_it_ran_or_that_it_did_not(indexed: Explanation) -> None:
    assert indexed.result is not None
    assert indexed.result.trace is not None
    states = {span.primitive: span.state for span in indexed.result.trace.spans}
    shown = rows(indexed)
    assert set(shown) == set(indexed.optimised.e_graph.order)
    skipped = [id for id in shown if states[id] == "skipped"]
    assert skipped
    for id, (_, queued, ran) in shown.items():
        if id in skipped:
            assert (queued, ran) == ("-", "skipped")
        else:
            assert float(queued) >= 0
            assert float(ran.rstrip("*")) >= 0


def test_the_critical_path_is_the_measured_one(indexed: Explanation) -> None:
    path = indexed.to_json()["measured"]["critical_path"]
    marked = {id for id, row in rows(indexed).items() if row[-1].endswith("*")}
    assert marked == set(path) - {"load", "optimise"}
    assert any(id.startswith("generate") for id in marked)
    assert not any(id.startswith("index") for id in marked)


def test_nothing_is_unknown_of_what_was_measured(indexed: Explanation) -> None:
    found = replace(indexed, profile=Profile("declared", {}))
    text = found.text()
    assert "?" not in text
    assert "est. s" not in text
    assert "not known yet" not in text
    assert "llm: not known before; measured in this run" in text


def test_the_items_are_those_that_came(indexed: Explanation) -> None:
    assert indexed.result is not None
    assert indexed.result.trace is not None
    spans = [s for s in indexed.result.trace.spans if s.op == "reranking"]
    came = sum(s.hi - s.lo for s in spans if s.state == "done")
    assert 0 < came < indexed.optimised.p_graph["rerank.rerank"].items
    shown = rows(indexed)
    pieces = [p.id for p in indexed.optimised.e_graph.primitives if p.op is Op.RERANKING]
    assert sum(int(shown[id][0]) for id in pieces) == came  # in one piece, or as searches end
    assert shown["index.embed"][0] == "0"  # the store had them already


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(indexed: Explanation, width: int) -> None:
    for found in (indexed, load_app("advanced-rag").explain(profile="paper-13b")):
        lines = found.text(width).splitlines()
        assert max(map(len, lines)) <= width
        words = {word for line in lines for word in line.split()}
        assert set(found.optimised.e_graph.order) <= words
        assert set(found.optimised.p_graph.order) <= words


def test_what_was_declined_for_one_reason_is_one_line() -> None:
    found = load_app("advanced-rag").explain(profile="paper-13b")
    declined = [r for r in found.optimised.rewrites if not r.applied]
    kinds = {(r.pass_name, r.reason) for r in declined}
    lines = [line for line in found.text().splitlines() if line.startswith(" - ")]
    assert len(lines) == len(kinds) < len(declined)
