"""Reranking each search's hits as they come, on real engines: the same passages and answer.

The service that writes the rewritings answers with a digest of its prompt, so that equal answers
mean equal prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from teola import EngineConfig, Result, Runtime
from teola.passes import PIPELINE
from teola_apps.advanced_rag import app as advanced_rag
from tests.fake_openai import FakeOpenAI

OTHERS = ",".join(name for name in PIPELINE if name != "split_reranking")
QUESTIONS = ("What is there to know about the piers?", "How are the islands served?")
REWRITINGS = "How long is pier 7?\nWhich pier was built in 1931?\nWhat do ferries carry?"


def says(messages: Any) -> str:
    prompt = messages[-1]["content"]
    return REWRITINGS if "Rewritings:" in prompt else sha256(prompt.encode()).hexdigest()


@pytest.fixture(scope="module")
def document() -> str:
    """Forty passages; several look alike, so that searches overlap."""
    return "\n\n".join(
        f"# Pier {i}\n\nPier {i} is {40 + i} metres long and was built in {1900 + i}. "
        f"Ferries carry {('mail', 'cars', 'timber')[i % 3]} from it to island {i % 7}."
        for i in range(40)
    )


@pytest.fixture
def runtime(data_dir: Path) -> Iterator[Runtime]:
    model = {"dtype": "float32", "threads": 1}
    engines = {
        "embedding": EngineConfig("embedding", model),
        "rerank": EngineConfig("rerank", model),
        "vectorstore": EngineConfig("vectorstore", {"data_dir": data_dir}),
    }
    with FakeOpenAI(says) as server:
        engines["llm"] = EngineConfig("openai", {"url": server.url})
        with Runtime(engines, debug=True, profile="paper-13b", learn=False) as runtime:
            yield runtime


def ask(runtime: Runtime, question: str, document: str, passes: str) -> Result:
    advanced_rag.runtime, before = runtime, advanced_rag.runtime
    try:
        return advanced_rag.run(
            question=question,
            documents={"name": "piers.md", "text": document},
            overrides={"index.chunk_size": 48, "index.overlap": 0},
            passes=passes,
            deadline_s=120,
        )
    finally:
        advanced_rag.runtime = before


def test_real_engines_give_the_same_answer(runtime: Runtime, document: str) -> None:
    for question in QUESTIONS:
        whole, split = (ask(runtime, question, document, passes) for passes in (OTHERS, "all"))
        assert split.answer == whole.answer
        assert [hit.id for hit in split["sources"]] == [hit.id for hit in whole["sources"]]
        for mine, theirs in zip(split["sources"], whole["sources"], strict=True):
            assert mine.score == pytest.approx(theirs.score, abs=1e-5)
        assert scored(split) == scored(whole) > 16, "each hit once"
        assert {"rerank.rerank.1", "rerank.rerank.2"} <= ran(split)
        assert "rerank.rerank" in ran(whole)


def ran(result: Result) -> set[str]:
    assert result.trace is not None
    return {span.primitive for span in result.trace.spans if span.state == "done"}


def scored(result: Result) -> int:
    """Hits that went to the reranker."""
    assert result.trace is not None
    spans = result.trace.spans
    return sum(s.hi - s.lo for s in spans if s.op == "reranking" and s.state == "done")
