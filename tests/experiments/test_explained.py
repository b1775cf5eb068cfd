"""What explain says before a query, held against the query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.common import pages
from experiments.explained import __main__ as explained
from experiments.explained.measure import asked_of, row
from experiments.real_engines import calls
from experiments.real_engines.servers import embedded
from experiments.real_engines.workload import APPS
from teola.engine import Splitting
from teola_engines.documents.splitting import split
from tests.experiments.test_real_engines import CHUNKS, SmallWorkload, answer
from tests.fake_openai import FakeOpenAI


def report(*runs: dict[str, Any]) -> dict[str, Any]:
    machine = {"cpu": "one", "cores": 2, "load_1min": 0.1}
    return {
        "worst_error": explained.worst(runs),
        "runs": list(runs),
        "about": {"quick": False},
        "machine": machine,
    }


def test_the_worst_error_is_of_second_queries_and_either_way() -> None:
    first, third = row("naive-rag", 45, 1, None, 9.0), row("naive-rag", 45, 3, 1.0, 4.0)
    low, high = row("naive-rag", 45, 2, 3.0, 4.0), row("chat-rag", 45, 2, 4.4, 4.0)
    assert explained.worst([first, low, third, high]) == 0.25
    assert explained.worst([first, high, third]) == pytest.approx(0.1)
    assert explained.worst([first, low, row("chat-rag", 45, 2, None, 4.0)]) is None


def test_the_section_says_what_was_not_known(tmp_path: Path) -> None:
    made = report(row("naive-rag", 45, 1, None, 9.0), row("naive-rag", 45, 2, 3.0, 4.0))
    section = explained.section(made, pages.picture("explained"))
    assert "| naive-rag | 45 | 1 | not known yet | 9.00 |  |" in section
    assert "| naive-rag | 45 | 2 | 3.00 | 4.00 | -25% |" in section
    explained.plot(made, tmp_path / "explained.svg")
    assert "45 chunks" in (tmp_path / "explained.svg").read_text()


@pytest.fixture(scope="module")
def dsn(servers: None) -> Iterator[str]:
    with embedded() as (dsn, _):
        yield dsn


@pytest.mark.slow
@pytest.mark.parametrize("app", APPS)
async def test_one_query_teaches_enough_to_explain_the_next(app: str, dsn: str) -> None:
    """Real embedder, reranker and store; a stand-in for the remote LLM."""
    with FakeOpenAI(answer, tokenizes=True) as llm:
        async with calls.opened(llm.url, llm.model, dsn) as engines:
            workload = SmallWorkload(
                lambda text: split(text, Splitting(), engines.shared.encode), Path()
            )
            rows = await asked_of(engines, workload, app, CHUNKS, 2, lambda what: None)
    assert rows[0]["explained_s"] is None
    assert rows[1]["explained_s"] > 0
