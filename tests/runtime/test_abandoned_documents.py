"""What becomes of documents whose query goes away while they are read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from teola import App, Embedding, EngineConfig, Indexing, Runtime, Search
from teola.engine import Source, Splitting
from teola.query.job import Job
from teola_engines.documents import FileLoader
from tests.planted import catches, edited

WAIT_S = 30.0
AGAIN_S = 20.0
"""A document that nobody releases is waited for until the deadline."""


class SlowLoader(FileLoader):
    """A FileLoader that takes very long for the first document. asked: it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    async def split(self, source: Source, splitting: Splitting, encode: Any) -> list[str]:
        if not self.asked.is_set():
            self.asked.set()
            await asyncio.sleep(WAIT_S)
        return await super().split(source, splitting, encode)


@pytest.fixture
def loader() -> SlowLoader:
    return SlowLoader()


@pytest.fixture
def app(loader: SlowLoader, data_dir: Path) -> Iterator[App]:
    engines = {
        "documents": EngineConfig(lambda: loader),
        "vectorstore": EngineConfig("vectorstore", {"data_dir": data_dir}),
    }
    template = Indexing() >> Embedding(inputs={"texts": "question"}) >> Search(top_k=1)
    inputs = {"question": "text", "documents": "documents"}
    with Runtime(engines) as runtime:
        yield App("find", template, inputs=inputs, outputs={"hits": "hits"}, runtime=runtime)


@catches(
    "claims-kept",
    "documents of a query that was cancelled while it read them are never released",
    edited(Job._run, "await asyncio.shield(preparer.release(self.id))", "pass"),
)
@pytest.mark.slow
async def test_another_query_reads_what_one_that_was_cancelled_had_begun_to(
    app: App, loader: SlowLoader
) -> None:
    asked: dict[str, Any] = {
        "inputs": {
            "question": "Who keeps the lamp?",
            "documents": {"name": "notes.md", "text": "Mara keeps the lamp."},
        },
        "tenant": f"abandoned-{uuid4().hex}",
    }
    first = asyncio.ensure_future(app.arun(asked["inputs"], tenant=asked["tenant"]))
    assert await asyncio.to_thread(loader.asked.wait, WAIT_S)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    again = await app.arun(asked["inputs"], tenant=asked["tenant"], deadline_s=AGAIN_S)
    assert [hit.text for hit in again["hits"]] == ["Mara keeps the lamp."]
