"""Whole applications on real engines: large batches, unexpected lists, a model that misbehaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from teola import App, Embedding, EngineConfig, Generate, Runtime
from teola.engine import Request, Source
from teola.errors import DeadlineExceeded, QueryFailed
from teola_apps.advanced_rag import app as advanced_rag
from teola_engines.embedding import MiniLM
from tests.fake_openai import Fail, FakeOpenAI, Hang, Stream
from tests.scripted_model import make_scripted_model

# --- an embedding of 300 items ----------------------------------------------------------------

ITEMS, LARGEST = 300, 32


class Counting(MiniLM):
    """MiniLM that remembers how many texts came with each batch."""

    def __init__(self, **options: Any) -> None:
        super().__init__(dtype="float32", max_batch=LARGEST, **options)
        self.batches: list[int] = []

    def execute(self, requests: Sequence[Request]) -> Any:
        self.batches.append(sum(len(request.inputs["texts"]) for request in requests))
        return super().execute(requests)


@pytest.fixture(scope="module")
def embedder() -> Counting:
    return Counting()


@pytest.fixture(scope="module")
def embedding(embedder: Counting) -> Iterator[App]:
    with Runtime({"embedding": lambda: embedder}) as runtime:
        yield App(
            "embedding",
            Embedding(inputs={"texts": "pages"}),
            inputs={"pages": "texts"},
            outputs={"vectors": "vectors"},
            runtime=runtime,
        )


@pytest.mark.parametrize("passes", ["none", "all"])
def test_many_items_go_through_in_batches_beside_other_queries(
    embedding: App, embedder: Counting, passes: str
) -> None:
    sizes = (ITEMS, 1, 7, ITEMS)
    pages = [[f"Page {i} of {passes} query {q}" for i in range(n)] for q, n in enumerate(sizes)]
    embedding.home.start(embedding.home.ensure(["embedding"])).result()
    embedder.batches.clear()
    results = embedding.batch([{"pages": texts} for texts in pages], passes=passes)
    assert [result.state for result in results] == ["ok"] * len(sizes)
    assert sum(embedder.batches) == sum(sizes)
    assert max(embedder.batches) <= LARGEST
    assert results[1].latency_s < results[0].latency_s, "a small query waits for no large one"
    shared = embedder._shared
    assert shared is not None
    for texts, result in zip(pages, results, strict=True):
        expected = np.stack(shared.embed(texts, "query", LARGEST))
        assert np.abs(np.stack(result["vectors"]) - expected).max() < 1e-5


# --- two or five rewritings where three were asked for -----------------------------------------

TOPICS = {
    "lighthouse": "How tall is the lighthouse of Arrenholm?",
    "ferry": "When does the ferry to the islands leave in the morning?",
    "bakery": "Who bakes the rye bread in the old bakery?",
    "museum": "Which ships are shown in the museum by the harbour?",
    "school": "How many pupils does the village school have?",
}
"""Rewritings of one question, each of which finds a document of its own."""


def rewritings(count: int) -> list[str]:
    return list(TOPICS.values())[:count]


def asked(app: App, runtime: Runtime, **more: Any) -> Any:
    app.runtime, before = runtime, app.runtime
    documents = [Source(name, text=f"{text} That is told here.") for name, text in TOPICS.items()]
    try:
        return app.run(
            question="What is there to see?",
            documents=documents,
            overrides={"search.top_k": 1, "rerank.top_k": 5, "generate.max_tokens": 8},
            deadline_s=60,
            tenant=f"rewritings-{time.monotonic_ns()}",
            **more,
        )
    finally:
        app.runtime = before


def with_llm(llm: EngineConfig, data_dir: Path) -> Runtime:
    return Runtime(
        {
            "llm": llm,
            "embedding": EngineConfig("embedding", {"dtype": "float32"}),
            "vectorstore": EngineConfig("vectorstore", {"data_dir": data_dir}),
        }
    )


@pytest.mark.parametrize("count", [2, 5])
def test_a_service_that_writes_another_number_of_items(count: int, data_dir: Path) -> None:
    def says(messages: Any) -> str:
        expanding = "Rewritings:" in messages[-1]["content"]
        return "\n".join(rewritings(count)) if expanding else "There is much to see."

    with (
        FakeOpenAI(says) as server,
        with_llm(EngineConfig("openai", {"url": server.url}), data_dir) as runtime,
    ):
        for passes in ("none", "all"):
            result = asked(advanced_rag, runtime, passes=passes)
            found = {hit.document for hit in result["sources"]}
            assert found == set(list(TOPICS)[: min(count, 3)])
            assert result["answer"] == "There is much to see."


@pytest.mark.parametrize("count", [2, 5])
def test_a_model_that_writes_another_number_of_items(
    count: int, tmp_path: Path, data_dir: Path
) -> None:
    lines = [f"{line}\n" for line in rewritings(count)]
    model = make_scripted_model(tmp_path / "model", lines, chat_template=True)
    with with_llm(EngineConfig("transformers", {"model": model}), data_dir) as runtime:
        for passes in ("none", "all"):
            result = asked(advanced_rag, runtime, passes=passes)
            found = {hit.document for hit in result["sources"]}
            assert found == set(list(TOPICS)[: min(count, 3)])
            assert result["answer"] == "".join(lines).strip()


# --- a service that misbehaves towards one query, beside others --------------------------------

CURSED = "zebra"
GOOD = "The answer is forty-two."


@contextmanager
def asking(server: FakeOpenAI, **options: Any) -> Iterator[App]:
    """An application of one call to the service, on a runtime of its own."""
    llm = EngineConfig("openai", {"url": server.url, **options})
    with Runtime({"llm": llm}) as runtime:
        outputs = {"answer": "answer"}
        yield App(
            "asking", Generate(), inputs={"question": "text"}, outputs=outputs, runtime=runtime
        )


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        (Stream("reset", 2), "broke off"),
        (Stream("cut", 2), "broke off"),
        (Stream("end", 2), "ended its stream before the answer was complete"),
        (Stream("garbage", 2), "no completion stream"),
        (Stream("stall", 2), r"was silent for 0\.5 s"),
        (Hang(), r"was silent for 0\.5 s"),
        (Fail(200, body=b"<html>welcome</html>"), "ended its stream"),
        (Fail(500), r"failed \(500"),
        (
            Fail(400, "This model's maximum context length is 4096 tokens.", code=400),
            "exceed the context of 4096 tokens",
        ),
    ],
    ids=lambda value: getattr(value, "then", None) or type(value).__name__,
)
async def test_one_query_fails_clearly_and_the_others_are_answered(
    behaviour: Fail | Stream | Hang, says: str
) -> None:
    with FakeOpenAI(GOOD, token_delay_s=0.02) as server:
        server.cursed[CURSED] = behaviour
        with asking(server, timeout_s=0.5) as app:
            bad = asyncio.create_task(app.arun(question=f"Why {CURSED}?", deadline_s=20))
            good = [app.arun(question=f"Why {i}?", deadline_s=20) for i in range(6)]
            async with asyncio.timeout(20):
                answers = await asyncio.gather(*good)
                with pytest.raises(QueryFailed, match=says) as caught:
                    await bad
        assert [result.answer for result in answers] == [GOOD] * 6
        message = str(caught.value)
        assert message.startswith("component 'generate', ")
        assert "\n" not in message
        assert await asyncio.to_thread(server.wait, lambda: server.in_flight == 0)


async def test_a_service_that_hangs_costs_its_query_the_deadline_and_the_others_nothing() -> None:
    with FakeOpenAI(GOOD) as server:
        server.cursed[CURSED] = Hang()
        with asking(server, timeout_s=60.0) as app:
            await app.arun(question="Is everything running?")
            began = time.monotonic()
            bad = asyncio.create_task(app.arun(question=f"Why {CURSED}?", deadline_s=1.5))
            answers = await asyncio.gather(*(app.arun(question=f"Why {i}?") for i in range(6)))
            assert not bad.done()
            with pytest.raises(DeadlineExceeded, match="deadline"):
                await bad
            assert time.monotonic() - began < 10.0
        assert [result.answer for result in answers] == [GOOD] * 6
        assert await asyncio.to_thread(server.wait, lambda: server.in_flight == 0)
