"""The demo's pictures are made from traces; a simulated one will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.demo import picture
from experiments.demo.__main__ import DOCS, FILES, _excerpt
from experiments.demo.documents import Documents
from teola.profile import paper
from teola.runtime.observe.recorded import Recorded
from teola.runtime.observe.trace import Trace
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola_apps.advanced_rag import app


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


@pytest.mark.parametrize("width", [60, 80])
def test_the_graph_is_a_line_for_each_engine(trace: Trace, width: int) -> None:
    lines = [line.plain for line in picture.lines(Recorded.of(trace), width)]
    assert len(lines) <= 5
    assert max(map(len, lines)) <= width
    assert {line.split()[0] for line in lines} == {"embedding", "vectorstore", "rerank", "llm"}
    (llm,) = (line for line in lines if line.startswith("llm"))
    assert llm.endswith("expand ×4, generate ×6")
    assert picture.WORKS in llm


def test_its_files_are_there() -> None:
    assert len(FILES) == 3
    assert all((DOCS / name).is_file() for name in FILES)


def test_renewed_documents_are_other_documents(tmp_path: Path) -> None:
    origin, folder = tmp_path / "docs", tmp_path / "copies"
    origin.mkdir()
    folder.mkdir()
    (origin / "a.md").write_text("One line.")
    documents = Documents(origin, ["a.md"], folder)
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
