"""ProcessEngine: an engine in a child process of its own, spoken with over a socket pair.

What its threads and libraries do there does not hold the interpreter lock here, and when it dies
(or is killed for its memory) nothing else does. The child ends when this process does.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Final

from teola.engine import Delta
from teola.errors import EngineUnavailable
from teola.runtime.hosts.remote import RemoteEngine
from teola.runtime.hosts.server import Recipe

CLOSE_LIMIT_S: Final = 10.0
_END: Final = object()


class ProcessEngine(RemoteEngine):
    """See the module. Messages: (id, method, arguments) there, (id, kind, value) back."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._packed = recipe.packed()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ids = count()
        self._waiting: dict[int, asyncio.Queue[tuple[str, Any]]] = {}
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._closing = False

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._process is not None, "start first"
        return self._process.pid

    async def start(self) -> None:
        self._loop, self._closing, self.dead = asyncio.get_running_loop(), False, None
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "teola.runtime.hosts.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._pipe, self._outbox = Connection(ours.detach()), SimpleQueue()
        name = self.spec.name
        for work in (self._read, self._write):
            arguments = (self._pipe, self._outbox, self._process)
            threading.Thread(target=work, args=arguments, name=name, daemon=True).start()
        try:
            self._outbox.put(self._packed)
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        process, self._closing = self._process, True
        if process is None:
            return
        with suppress(Exception):  # whatever its end is, it ends
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self.ask("close")
        self.kill()
        self._process = None
        await asyncio.to_thread(process.wait)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._outbox.put(None)

    async def ask(self, method: str, *arguments: Any) -> Any:
        id, inbox = self._open(method, arguments)
        try:
            kind, value = await inbox.get()
        except asyncio.CancelledError:
            self._send((id, "cancel", ()))
            raise
        finally:
            self._waiting.pop(id, None)
        if kind == "error":
            raise value
        return value

    async def stream(self, *arguments: Any) -> AsyncGenerator[Delta]:
        id, inbox = self._open("generate", arguments)
        ended = False
        try:
            while not ended:
                kind, value = await inbox.get()
                ended = kind != "item"
                if kind == "error":
                    raise value
                if kind == "item":
                    yield value
        finally:
            self._waiting.pop(id, None)
            if not ended:
                self._send((id, "cancel", ()))

    # --- messages ---------------------------------------------------------------------------

    def _open(
        self, method: str, arguments: tuple[Any, ...]
    ) -> tuple[int, asyncio.Queue[tuple[str, Any]]]:
        if self.dead is not None:
            raise self._death()
        id, inbox = next(self._ids), asyncio.Queue[tuple[str, Any]]()
        self._waiting[id] = inbox
        self._send((id, method, arguments))
        return id, inbox

    def _send(self, message: tuple[int, str, tuple[Any, ...]]) -> None:
        self._outbox.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def _write(self, pipe: Connection, outbox: SimpleQueue[bytes | None], process: Any) -> None:
        """On a thread: a full pipe must not hold the loop."""
        with suppress(OSError):
            while (data := outbox.get()) is not None:
                pipe.send_bytes(data)

    def _read(self, pipe: Connection, outbox: SimpleQueue[bytes | None], process: Any) -> None:
        """On a thread: deliver what comes until the child is gone."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has been closed
            with suppress(EOFError, OSError):
                while True:
                    id, kind, value = pipe.recv()
                    self._loop.call_soon_threadsafe(self._deliver, id, kind, value)
            outbox.put(None)
            process.kill()
            code = process.wait()
            pipe.close()
            self._loop.call_soon_threadsafe(self._ended, code)

    def _deliver(self, id: int, kind: str, value: Any) -> None:
        if inbox := self._waiting.get(id):
            inbox.put_nowait((kind, value))

    def _ended(self, code: int) -> None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        error = EngineUnavailable(f"engine {self.spec.name!r}: its process {how}")
        if self._closing:
            self.dead = error
        else:
            self.lost(error)
        for inbox in self._waiting.values():
            inbox.put_nowait(("error", self._death()))

    def _death(self) -> EngineUnavailable:
        """A fresh error for each who asks: a traceback grows on one that is raised again."""
        return EngineUnavailable(str(self.dead))
