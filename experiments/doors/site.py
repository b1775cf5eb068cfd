"""The server that is attacked: `teola serve` as a process, and what asks it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from experiments.doors import apps, prepared
from experiments.doors.beat import Beats
from experiments.doors.fakes import Fakes

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 240.0
PATIENCE_S: Final = 60.0
"""That one request may take; then nothing has come back."""
DEADLINE_S: Final = 20.0
"""Of queries; to see what a content does to others in that time is enough."""
AT_ONCE_S: Final = 0.5
NOTHING: Final = 0
"""The status where nothing came back."""


@dataclass(slots=True)
class Site:
    """Where a server is, and what it talks to. url: without a slash at its end. query: id of the
    last query that was begun by `before`. number: of the try, so that names can be new."""

    url: str
    fakes: Fakes
    query: str = ""
    number: int = 0

    def ask(self, app: str, inputs: Mapping[str, Any], **more: Any) -> tuple[int, bytes]:
        """A query, and its answer when it is there."""
        body = {"inputs": dict(inputs), "deadline_s": DEADLINE_S, **more}
        return self.post(f"/v1/apps/{app}/queries", body)

    def post(self, path: str, body: Any) -> tuple[int, bytes]:
        return self.send("POST", path, json.dumps(body).encode())

    def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
        kind: str = "application/json",
    ) -> tuple[int, bytes]:
        """Status and body of the answer to a request, which is sent as it is."""
        where = urlsplit(self.url)
        lines = [f"{method} {path} HTTP/1.1", f"host: {where.netloc}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers]
        if method == "POST":
            lines += [f"content-type: {kind}", f"content-length: {len(body)}"]
        head = "\r\n".join([*lines, "", ""]).encode()
        with suppress(OSError, ValueError, IndexError):
            return _exchanged((str(where.hostname), where.port or 80), head + body)
        return NOTHING, b""


def _exchanged(address: tuple[str, int], request: bytes) -> tuple[int, bytes]:
    """An answer that comes before all was sent ends the sending."""
    rest, answer, until = memoryview(request), bytearray(), time.monotonic() + PATIENCE_S
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        connection.setblocking(False)
        while (left_s := until - time.monotonic()) > 0:
            readable, writable, _ = select.select(
                [connection], [connection] if rest else [], [], left_s
            )
            if readable:
                try:
                    piece = connection.recv(1 << 20)
                except ConnectionError:
                    break
                if not piece:
                    break
                answer += piece
                rest = rest[len(rest) :]
            elif writable:
                with suppress(ConnectionError):
                    rest = rest[connection.send(rest[: 1 << 18]) :]
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that runs in a process of its own, and the heart of its loop."""

    site: Site
    process: subprocess.Popen[str]
    beats: Beats

    @property
    def calm(self) -> bool:
        """Whether it answers at once."""
        began = time.monotonic()
        return self.site.send("GET", "/healthz")[0] == 200 and time.monotonic() - began < AT_ONCE_S


# --- what is started ---------------------------------------------------------------------------


@dataclass(slots=True)
class Places:
    """What lies in the scratch folder and outlives a server."""

    folder: Path
    fakes: Fakes
    postgres: str
    beats: Path = field(init=False)
    sqlite: Path = field(init=False)

    def __post_init__(self) -> None:
        self.beats, self.sqlite = self.folder / "beats", self.folder / "rows.db"

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            prepared.BEATS: str(self.beats),
            apps.MCP_URL: f"{self.fakes.url}/mcp",
            apps.SQLITE: str(self.sqlite),
            apps.POSTGRES: self.postgres,
        }


TABLES: Final = (
    "CREATE TABLE long (id integer, said text)",
    "CREATE TABLE wide (id integer, said text)",
    "CREATE TABLE huge (said text)",
)


def fill_sqlite(path: Path) -> None:
    """Tables of many rows, of long ones, and of one value."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in TABLES:
            connection.execute(statement)
        many, long = ((i, "row") for i in range(10**6)), ((i, "x" * 10**6) for i in range(200))
        connection.executemany("INSERT INTO long VALUES (?, ?)", many)
        connection.executemany("INSERT INTO wide VALUES (?, ?)", long)
        connection.execute("INSERT INTO huge VALUES (?)", ("x" * 10**8,))


def fill_postgres(dsn: str) -> None:
    """The same."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        for statement in (
            *TABLES,
            "INSERT INTO long SELECT i, 'row' FROM generate_series(1, 1000000) AS i",
            "INSERT INTO wide SELECT i, repeat('x', 1000000) FROM generate_series(1, 200) AS i",
            "INSERT INTO huge SELECT repeat('x', 100000000)",
        ):
            connection.execute(statement.encode())


def drop_postgres(dsn: str) -> None:
    """Leave a database as it was before."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        connection.execute("DROP TABLE IF EXISTS long, wide, huge")


@contextmanager
def serving(places: Places) -> Iterator[ServerProcess]:
    """A server that is ready, and whose heart beats."""
    module = Path(apps.__file__).relative_to(ROOT)
    words = [*(f"{module}:{name}" for name in apps.APPS), "naive-rag", "--port", "0"]
    words += ["--llm", f"{places.fakes.url}/v1", "--web-search", places.fakes.url]
    words += ["--data-dir", str(places.folder / "data"), "--learn", "off"]
    log = places.folder / "stderr.log"
    with (
        log.open("a") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "teola", "serve", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=places.environment(),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            site = Site(url, places.fakes)
            _await_ready(site, process, log)
            yield ServerProcess(site, process, Beats(places.beats))
        finally:
            process.send_signal(signal.SIGKILL)


def _await_ready(site: Site, process: subprocess.Popen[str], log: Path) -> None:
    until = time.monotonic() + START_S
    warm = {"question": "Who keeps the lamp?", "documents": {"name": "a.md", "text": "Mara."}}
    steps: list[Callable[[], tuple[int, bytes]]] = [
        lambda: site.send("GET", "/readyz"),
        lambda: site.ask("naive-rag", warm),
        lambda: site.ask("preparing", {"question": "nothing"}),
    ]
    for step in steps:
        while (answer := step())[0] != 200:
            if process.poll() is not None or time.monotonic() > until:
                told = log.read_text(errors="replace")[-2000:]
                raise AssertionError(f"the server does not start: {answer[1].decode()}\n{told}")
            time.sleep(0.1)
