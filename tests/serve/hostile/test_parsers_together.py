"""Many documents that need a process each: a few at once are read, and not all for one tenant."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import psutil

from teola.serve.access.auth import KeyFile
from tests.serve.conftest import soon
from tests.serve.hostile.asking import RAG
from tests.serve.hostile.flooding import Flooded, flooded

UPLOADS: Final = 14
AT_ONCE: Final = 3
SHARE: Final = 2
LONG: Final = b"<i></i>" * 300_000 + b"Lamp number %d"
"""Takes a second or more to parse, and is a short text."""
WAIT_S: Final = 60.0


def test_parsers_are_few_however_many_upload(tmp_path: Path, data_dir: Path) -> None:
    with flooded(tmp_path, "naive-rag", "--data-dir", str(data_dir), keys=True) as server:
        other = Flooded(server.url, server.pid, server.log, _key(tmp_path))
        assert _upload(other, b"<p>first</p>").status_code == 200
        with counted(server) as counts, ThreadPoolExecutor(UPLOADS) as pool:
            works = [pool.submit(_upload, server, LONG % i) for i in range(UPLOADS)]
            soon(lambda: max(counts, default=0) >= SHARE, WAIT_S)
            assert _upload(other, b"<p>lamp</p>").status_code == 200
            assert not all(work.done() for work in works)
            assert {work.result().status_code for work in works} == {200}
        assert max(counts) <= AT_ONCE
        assert sorted(counts)[len(counts) // 2] <= SHARE  # while nobody else asked


def _key(folder: Path) -> str:
    return KeyFile(folder / "keys.json").create("other", "other")


def _upload(server: Flooded, page: bytes) -> httpx.Response:
    files = {"documents": ("page.html", page)}
    return server.post(RAG, data={"question": "What burns?"}, files=files)


@contextmanager
def counted(server: Flooded) -> Iterator[list[int]]:
    """How many parsers there were, each time that it was looked."""
    counts: list[int] = []
    over = threading.Event()
    process = psutil.Process(server.pid)

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
