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
from contextlib import ExitStack, suppress
from itertools import count
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Final

from teola.errors import EngineUnavailable
from teola.runtime.hosts.remote import Killed, RemoteEngine
from teola.runtime.hosts.server import Recipe

CLOSE_LIMIT_S: Final = 10.0

Inboxes = dict[int, asyncio.Queue[tuple[str, Any]]]


class ProcessEngine(RemoteEngine):
    """See the module. Messages: (id, method, arguments) there, (id, kind, value) back."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._packed = self.recipe.packed()
        self._process: subprocess.Popen[bytes] | None = None
        self._ids = count()
        self._waiting: Inboxes = {}
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._process is not None, "start first"
        return self._process.pid

    async def start(self) -> None:
        self._loop, self.dead = asyncio.get_running_loop(), None
        try:
            ours = self._launch()
        except OSError as error:  # no memory for it, or no descriptor
            raise EngineUnavailable(f"engine {self.spec.name!r}: no process: {error}") from error
        pipe, self._outbox, self._waiting = Connection(ours.detach()), SimpleQueue(), {}
        name, reading = self.spec.name, (pipe, self._process, self._waiting)
        threading.Thread(target=self._read, args=reading, name=name, daemon=True).start()
        writing = (pipe, self._outbox)
        threading.Thread(target=self._write, args=writing, name=name, daemon=True).start()
        try:
            self._outbox.put(self._packed)
            await self._start()
        except BaseException:
            await self.close()
            raise

    def _launch(self) -> socket.socket:
        """Start the child; our end of the pair. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "teola.runtime.hosts.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            undo.pop_all()
        return ours

    async def close(self) -> None:
        process = self._process
        if process is None:
            return
        self.on_lost = None
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

    def tell(self, method: str, *arguments: Any) -> None:
        if self.dead is None:
            self._send((next(self._ids), method, arguments))

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any]:
        id, inbox = self._open(method, arguments)
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
            raise EngineUnavailable(str(self.dead))
        id, inbox = next(self._ids), asyncio.Queue[tuple[str, Any]]()
        self._waiting[id] = inbox
        self._send((id, method, arguments))
        return id, inbox

    def _send(self, message: tuple[int, str, tuple[Any, ...]]) -> None:
        self._outbox.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def _write(self, pipe: Connection, outbox: SimpleQueue[bytes | None]) -> None:
        """On a thread: a full pipe must not hold the loop."""
        with suppress(OSError):
            while (data := outbox.get()) is not None:
                pipe.send_bytes(data)

    def _read(self, pipe: Connection, process: subprocess.Popen[bytes], waiting: Inboxes) -> None:
        """On a thread: deliver what comes until the child is gone (another may have its place)."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has been closed
            with suppress(EOFError, OSError):
                while True:
                    id, kind, value = pipe.recv()
                    self._loop.call_soon_threadsafe(_deliver, waiting, id, kind, value)
            process.kill()
            code = process.wait()
            pipe.close()
            self._loop.call_soon_threadsafe(self._ended, process, waiting, code)

    def _ended(self, process: subprocess.Popen[bytes], waiting: Inboxes, code: int) -> None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        kind = Killed if code < 0 else EngineUnavailable
        error = kind(f"engine {self.spec.name!r}: its process {how}")
        if process is self._process:
            self._outbox.put(None)
            self.lost(error)
        for inbox in waiting.values():  # to each an error of its own: tracebacks grow
            inbox.put_nowait(("error", kind(str(error))))


def _deliver(waiting: Inboxes, id: int, kind: str, value: Any) -> None:
    if inbox := waiting.get(id):
        inbox.put_nowait((kind, value))
