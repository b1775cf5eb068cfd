"""A corpus that searches, and what its indexer tells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from teola_engines.websearch import Corpus, corpus_indexing


@asynccontextmanager
async def searching(data_dir: Path, folder: Path | None, **options: Any) -> AsyncIterator[Corpus]:
    engine = Corpus(folder=folder, data_dir=data_dir, dtype="float32", **options)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


@contextmanager
def told(count: int) -> Iterator[asyncio.Event]:
    """Set when the indexer has told of `count` documents."""
    event = asyncio.Event()

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            nonlocal count
            count -= 1
            if count == 0:
                event.set()

    log, handler = logging.getLogger(corpus_indexing.__name__), Counting()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield event
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
