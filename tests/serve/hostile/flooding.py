"""A server in a process of its own that is flooded while somebody watches it.

    with flooded(folder, apps="echo", keys=True) as server:     # or: flooded(folder, "naive-rag")
        with watched(server) as watch:
            answer = server.send(b"POST ... HTTP/1.1\r\n", pieces)   # bytes as they are
            server.post("/v1/embeddings", {"model": "embedding", "input": " " * 10**6})
        watch.check()

`watched` asks `/healthz` all the time, each time over a new connection, and reads how much memory
the server has. `check` fails where an answer took longer than `SLOWEST_S` or the server had grown
by more than `GROWN_BYTES` at any time. Ask once before watching whatever loads something at first.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
import psutil

from teola.serve.access.auth import KeyFile
from tests.serve.process import ready
from tests.serve.running import APPS

Result = TypeVar("Result")

SLOWEST_S: Final = 0.5
GROWN_BYTES: Final = 200 * 2**20
EVERY_S: Final = 0.01
"""Between two looks."""
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Flooded:
    """A server. url: without a slash at its end. key: opens it; empty where it has no keys."""

    url: str
    pid: int
    log: Path
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """For whoever may ask."""
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def address(self) -> tuple[str, int]:
        where = urlsplit(self.url)
        assert where.hostname is not None
        assert where.port is not None
        return where.hostname, where.port

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """The answer to a request. body: sent as JSON. more: as httpx takes it."""
        headers = {**self.headers, **more.pop("headers", {})}
        given = more if body is None else {"json": body, **more}
        return httpx.post(self.url + path, headers=headers, timeout=PATIENCE_S, **given)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=self.headers, timeout=PATIENCE_S)

    def send(self, *pieces: bytes, times: int = 1) -> bytes:
        """The first bytes of what the server says to `pieces`, the last of which is sent so many
        times; empty where it says nothing. A server that hangs up is sent no more."""
        with socket.create_connection(self.address, timeout=PATIENCE_S) as connection:
            with suppress(ConnectionError):
                for piece in (*pieces[:-1], *[pieces[-1]] * times):
                    connection.sendall(piece)
            with suppress(ConnectionError):
                return connection.recv(65536)
            return b""


@contextmanager
def flooded(folder: Path, *words: str, apps: str = "", keys: bool = False) -> Iterator[Flooded]:
    """Serve until the end. words: behind `teola serve`. apps: more of them, names with commas out
    of `APPS`. keys: it has some, one of them for us. Its log is in `folder`."""
    file, log, known = folder / "flooded.py", folder / "stderr.log", folder / "keys.json"
    file.write_text(APPS)
    named = [f"{file}:{name}" for name in apps.split(",") if name]
    key = KeyFile(known).create("flooding", "flooding") if keys else ""
    guarded = ["--keys", str(known)] if keys else []
    with ready([*named, *words, *guarded], log) as (process, url):
        yield Flooded(url, process.pid, log, key)


@dataclass(slots=True)
class Watch:
    """What was seen. slowest_s: of all answers. before, peak: bytes of memory of the server alone.
    failed: what went wrong with `/healthz`."""

    before: int
    peak: int = 0
    slowest_s: float = 0.0
    answers: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def grown(self) -> int:
        """Bytes, at its peak."""
        return self.peak - self.before

    def check(self) -> None:
        """Raise AssertionError if the server was held up or grew."""
        told = f"{self.slowest_s:.2f} s, {self.grown / 2**20:+.0f} MiB, {self.answers} answers"
        assert not self.failed, (told, self.failed[:3])
        assert self.answers, told
        assert self.slowest_s <= SLOWEST_S, told
        assert self.grown <= GROWN_BYTES, told


@contextmanager
def watched(server: Flooded) -> Iterator[Watch]:
    """Watch until the end, and a moment longer; the result is whole afterwards."""
    process = psutil.Process(server.pid)
    watch, over = Watch(process.memory_info().rss), threading.Event()
    looks = (_look_at_health, _look_at_memory)
    with_what: tuple[Any, ...] = (server, process)
    threads = [
        threading.Thread(target=look, args=(given, watch, over), daemon=True)
        for look, given in zip(looks, with_what, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        yield watch
        time.sleep(10 * EVERY_S)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _look_at_health(server: Flooded, watch: Watch, over: threading.Event) -> None:
    while not over.wait(EVERY_S):
        began = time.monotonic()
        connection = HTTPConnection(*server.address, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/healthz")
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            watch.failed.append(repr(error))
        else:
            watch.answers += 1
            if status != 200:
                watch.failed.append(str(status))
        finally:
            connection.close()
        watch.slowest_s = max(watch.slowest_s, time.monotonic() - began)


def _look_at_memory(process: psutil.Process, watch: Watch, over: threading.Event) -> None:
    while not over.wait(EVERY_S):
        watch.peak = max(watch.peak, process.memory_info().rss)


def at_once(works: Sequence[Callable[[], Result]]) -> list[Result]:
    """What they return who are all called at the same time, each in a thread."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [task.result() for task in [pool.submit(work) for work in works]]
