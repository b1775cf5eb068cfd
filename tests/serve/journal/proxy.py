"""A way to PostgreSQL that can fall silent: it takes what comes and forwards nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.engines.vectorstore.conftest import temporary_folder

NAME = ".s.PGSQL.5432"


class Proxy:
    """See the module. dsn: of the way through it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        there = conninfo_to_dict(dsn)
        self.dsn = make_conninfo(dsn, host=str(folder), port=5432)
        self._from, self._to = folder / NAME, Path(str(there["host"])) / NAME
        self._loop = asyncio.new_event_loop()
        self._open, self._ended = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._listens = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def start(self) -> None:
        """Returns when it listens."""
        self._thread.start()
        assert self._listens.wait(20)

    def silence(self) -> None:
        """Forward nothing from now on."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def resume(self) -> None:
        """Forward everything again, also what came meanwhile."""
        self._loop.call_soon_threadsafe(self._open.set)

    def cut(self) -> None:
        """Break all connections; new ones are taken."""
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        """End, with all connections."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(20)
        self._loop.close()

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _run(self) -> None:
        async with await asyncio.start_unix_server(self._serve, self._from):
            self._listens.set()
            await self._ended.wait()
            self._open.set()
            self._cut()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if others:
                await asyncio.wait(others, timeout=10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            back, out = await asyncio.open_unix_connection(self._to)
            self._writers |= {writer, out}
            await asyncio.gather(self._pump(reader, out), self._pump(back, writer))
            self._writers -= {writer, out}

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(2**16):
                await self._open.wait()
                target.write(piece)
                await target.drain()
        await self._open.wait()
        target.close()


@contextmanager
def proxied(dsn: str) -> Iterator[Proxy]:
    """A proxy to the server that `dsn` leads to by a local socket."""
    with temporary_folder() as folder:
        folder.chmod(0o755)
        proxy = Proxy(dsn, folder)
        proxy.start()
        try:
            yield proxy
        finally:
            proxy.close()
