"""What `explain` shows of a query that it ran: the graph that ran, and how each primitive ended."""

from __future__ import annotations

from itertools import pairwise

import pytest

from teola import Runtime
from teola.catalogue import load_app
from teola.explain import Explanation
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
    """Primitive of the e-graph -> its columns from the estimate to the measured time."""
    text = found.text()
    table = text[text.index("e-graph:") : text.index("where the times come from")].splitlines()
    at = [table[1].index(title) + len(title) for title in ("items", "est. s", "queued s", "ran s")]
    return {
        line.split()[1]: [line[a:b].strip() for a, b in pairwise(at)]
        for line in table[2:]
        if line.strip()
    }


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
    for id, (estimate, queued, ran) in shown.items():
        assert "*" not in estimate
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
