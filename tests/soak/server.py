"""A `teola serve` in a process of its own, and what can be seen of it from outside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import psycopg

from teola.query.query_files import PREFIX
from teola_engines.vectorstore import EmbeddedPostgres
from tests.serve.process import await_ready, started

SERVED: Final = "tests/soak/served.py"
STOP_S: Final = 120.0
MIB: Final = 2**20
GAUGES: Final = ("teola_queries_running", "teola_queue_depth", "teola_instance_in_flight")
PENDING: Final = "SELECT count(*) FROM teola.documents WHERE NOT ready"
SESSIONS: Final = """
SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%')
FROM pg_stat_activity WHERE application_name = 'teola'
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A server's process at one moment. memory_mib: what it has allocated; rss_mib: with the pages
    of mapped files, which the kernel maps and drops as it likes, some MiB of a library at a time;
    database_mib: what PostgreSQL's processes have for themselves. sockets: of TCP. sessions: of the
    database, in_transaction: that have one open and do nothing. tasks: on its event loop."""

    memory_mib: float
    rss_mib: float
    database_mib: float
    descriptors: int
    sockets: int
    threads: int
    children: int
    tasks: int
    sessions: int
    in_transaction: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Server:
    """A server that runs. temporary: its folder for temporary files."""

    process: subprocess.Popen[str]
    url: str
    data_dir: Path
    temporary: Path
    log: Path
    admin: str | None = None

    @property
    def told(self) -> str:
        """What it wrote to stderr."""
        return self.log.read_text(errors="replace")

    def stop(self) -> tuple[int, float]:
        """SIGTERM; its exit code, and how many seconds it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S), time.monotonic() - began

    # --- what it holds ------------------------------------------------------------------------

    async def metrics(self, client: httpx.AsyncClient) -> dict[str, float]:
        """Every sample of /metrics, by its name with labels."""
        text = (await client.get(f"{self.url}/metrics")).text
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    async def held(self, client: httpx.AsyncClient) -> dict[str, float]:
        """What queries still hold: engines' queues and slots, the list of those that run, rows."""
        found = await self.metrics(client)
        held = {name: n for name, n in found.items() if name.startswith(GAUGES) and n}
        running = {"state": "running", "limit": 1}
        listed = (await client.get(f"{self.url}/v1/queries", params=running)).json()["queries"]
        held |= {f"query {one['query_id']}": 1.0 for one in listed}
        if self.admin and not held and (rows := self.ask(PENDING)[0]):
            held["pending documents"] = float(rows)
        return held

    def ask(self, statement: str) -> tuple[Any, ...]:
        """One row of the database, as the superuser sees it."""
        assert self.admin is not None
        with psycopg.connect(self.admin, autocommit=True) as connection:
            return connection.execute(statement).fetchone() or ()

    async def seen(self, client: httpx.AsyncClient) -> Seen:
        """Its process now."""
        tasks = (await self.metrics(client))["teola_tasks"]
        process = psutil.Process(self.process.pid)
        sessions, in_transaction = self.ask(SESSIONS) if self.admin else (0, 0)
        memory = process.memory_info()
        return Seen(
            round((memory.rss - memory.shared) / MIB, 2),
            round(memory.rss / MIB, 2),
            round(sum(map(_private, self._database())) / MIB, 2),
            process.num_fds(),
            len(process.net_connections("tcp")),
            process.num_threads(),
            len(process.children(recursive=True)),
            int(tasks),
            sessions,
            in_transaction,
        )

    def _database(self) -> list[psutil.Process]:
        pid = EmbeddedPostgres(self.data_dir).pid() if self.admin else None
        if pid is None:
            return []
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]

    def left(self) -> list[str]:
        """Its temporary files and folders, but for the empty one that uploads come into."""
        found = {*self.temporary.glob("teola-*")} - {*self.temporary.glob(f"{PREFIX}*")}
        return sorted(path.name for path in (*found, *self.temporary.glob(f"{PREFIX}*/*")))


def _private(process: psutil.Process) -> int:
    """Memory that a process shares with nobody; shared buffers are of a fixed size."""
    with suppress(psutil.Error):
        return int(process.memory_full_info().uss)
    return 0


@contextmanager
def serving(
    *apps: str,
    store: bool = False,
    options: Sequence[str] = (),
    descriptors: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """A server of `apps`, ready; stopped in the end. store: they use the vector store.
    descriptors: that it may have at most."""
    data_dir, other = (Path(tempfile.mkdtemp(prefix=f"teola-soak-{n}-")) for n in ("data", "tmp"))
    (other / "tmp").mkdir()
    words = [*apps, *options, "--data-dir", str(data_dir)]
    few = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors)] if descriptors else []
    given = {**os.environ, "TMPDIR": str(other / "tmp"), **(environment or {})}
    log, database = other / "log", EmbeddedPostgres(data_dir) if store else None
    try:
        with started(words, log, environment=given, prefix=few) as (process, url):
            try:
                await_ready(process, url, log)
                admin = database.start()[0] if database else None
                yield Server(process, url, data_dir, other / "tmp", log, admin)
            finally:
                _end(process)
    finally:
        if database is not None:
            database.close()
        shutil.rmtree(data_dir, ignore_errors=True)
        shutil.rmtree(other, ignore_errors=True)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
