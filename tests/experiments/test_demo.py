"""The demo's pictures are made from traces; a simulated one will do."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from experiments.demo import egraph
from experiments.demo.__main__ import _excerpt
from experiments.demo.documents import Documents
from teola.profile import paper
from teola.runtime.observe.trace import Trace
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola_apps.advanced_rag import app

WIDTH = 100


@pytest.fixture(scope="module")
def trace() -> Trace:
    profile = paper("13b")
    plan = Optimiser(app.builder, profile).plan({}, {"chunks": 48})
    traces: list[Trace] = []
    sim = Sim(profile, on_finish=lambda query, _: traces.append(query.trace))
    inputs = {"question": Tokens(14), "chunks": [Tokens(256)] * 48, "scope": Tokens(0)}
    sim.submit(plan, inputs)
    sim.run()
    return traces[0]


def drawn(picture: object) -> list[str]:
    console = Console(width=WIDTH, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as capture:
        console.print(picture)
    return capture.get().splitlines()


def test_graph_table_numbers_the_parents(trace: Trace) -> None:
    assert trace.plan is not None
    graph = trace.plan.graph
    lines = drawn(egraph.table(graph))
    assert max(map(len, lines)) <= WIDTH
    number = {id: str(i) for i, id in enumerate(graph.order, 1)}
    search = next(line for line in lines if " search.search.1 " in line)
    assert f"({number['index.ingest.1']})" in search
    assert search.split()[-1] == number["embed.embed.1"]


def test_renewed_documents_are_other_documents(tmp_path: Path) -> None:
    origin, folder = tmp_path / "docs", tmp_path / "copies"
    origin.mkdir()
    folder.mkdir()
    (origin / "a.md").write_text("One line.")
    documents = Documents(origin, folder)
    first = (folder / "a.md").read_bytes()
    documents.renew()
    assert first.startswith(b"One line.")
    assert (folder / "a.md").read_bytes() != first
    assert (origin / "a.md").read_text() == "One line."


@pytest.mark.parametrize(
    ("answer", "start"), [("“The *lamp* is seen far out.”", "The"), ("“Neither.”", "#")]
)
def test_excerpt_begins_where_the_answer_quotes(answer: str, start: str) -> None:
    text = "# Arrenholm\n\nThe `lamp` is seen far out. " + "More words follow. " * 20
    found = _excerpt(text, answer.replace("*", "")).removeprefix("... ")
    assert found.startswith(start)
    assert len(found) <= 160
