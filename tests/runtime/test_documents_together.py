"""Many documents that need a process each: a few at once are read, and not all for one tenant."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from teola import Runtime
from teola.engine import Source, Splitting
from tests.serve.conftest import soon

DOCUMENTS: Final = 14
AT_ONCE: Final = 3
SHARE: Final = 2
LONG: Final = "<i></i>" * 30_000 + "<p>Lamp number {} burns oil.</p>"
"""Takes a moment to parse, and is a short text."""
WAIT_S: Final = 120.0


def test_parsers_are_few_however_many_queries(runtime: Runtime, tmp_path: Path) -> None:
    async def prepare(tenant: str, number: int) -> int:
        path = tmp_path / f"{tenant}{number}.html"
        path.write_text(LONG.format(number))
        preparer, owner = runtime.preparer("embedding", "vectorstore"), f"{tenant}{number}"
        try:
            prepared = await preparer.prepare(
                [Source(path.name, path=path)],
                owner=owner,
                tenant=tenant,
                collection=None,
                filters={},
                splitting=Splitting(),
            )
            return len(prepared.chunks)
        finally:
            await preparer.release(owner)

    with counted() as counts:
        flood = [runtime.start(prepare("flooding", i)) for i in range(DOCUMENTS)]
        soon(lambda: SHARE in counts, WAIT_S)
        alone = max(counts)
        other = runtime.start(prepare("other", 0))
        assert [work.result(WAIT_S) for work in (*flood, other)] == [1] * (DOCUMENTS + 1)
    assert alone == SHARE
    assert max(counts) <= AT_ONCE


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many parsers this process had, each time that it was looked."""
    counts: list[int] = []
    over = threading.Event()
    process = psutil.Process()

    def look() -> None:
        while not over.wait(0.02):
            counts.append(sum(_parses(child) for child in process.children(recursive=True)))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        over.set()
        thread.join()


def _parses(process: psutil.Process) -> bool:
    try:
        return any(word.endswith("parser.py") for word in process.cmdline())
    except psutil.Error:
        return False
