"""The far end of `process`: run as a module with the number of an inherited socket.

The first message is the pickled Recipe of an engine; then (id, method, arguments), each answered by
(id, "value" | "error", it), a stream by (id, "item", it) until (id, "end", None). "cancel" ends
what runs under that id. The process ends when the other end of the socket is closed.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
from contextlib import aclosing
from multiprocessing.connection import Connection
from typing import Any

from teola.runtime.hosts.server import STREAMS, EngineServer, portable

ParentMessage = tuple[int, str, tuple[Any, ...]]


class Child:
    """Calls in progress, and the way back."""

    def __init__(self, server: EngineServer, pipe: Connection) -> None:
        self._server, self._pipe = server, pipe
        self._lock = threading.Lock()
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def handle(self, message: ParentMessage) -> None:
        """Begin what is asked for."""
        id, method, arguments = message
        if method == "cancel":
            if id in self._tasks:
                self._tasks[id].cancel()
            return
        run = self._stream if method in STREAMS else self._answer
        self._tasks[id] = asyncio.create_task(run(id, method, arguments))

    async def _answer(self, id: int, method: str, arguments: tuple[Any, ...]) -> None:
        try:
            value = getattr(self._server, method)(*arguments)
            self._send(id, "value", await value if asyncio.iscoroutine(value) else value)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - the process's edge: told to the other side
            self._send(id, "error", portable(error))
        finally:
            self._tasks.pop(id, None)

    async def _stream(self, id: int, method: str, arguments: tuple[Any, ...]) -> None:
        try:
            async with aclosing(getattr(self._server, method)(*arguments)) as stream:
                async for item in stream:
                    self._send(id, "item", item)
            self._send(id, "end", None)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001 - the process's edge: told to the other side
            self._send(id, "error", portable(error))
        finally:
            self._tasks.pop(id, None)

    def _send(self, id: int, kind: str, value: Any) -> None:
        try:
            data = pickle.dumps((id, kind, value), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - an engine's own value may be anything
            data = pickle.dumps((id, "error", portable(TypeError(f"cannot be sent: {error}"))))
        with self._lock:
            self._pipe.send_bytes(data)


async def serve(pipe: Connection) -> None:
    """Serve until the other end is closed, which ends the process at once."""
    child = Child(EngineServer(pipe.recv()), pipe)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            while True:
                loop.call_soon_threadsafe(child.handle, pipe.recv())
        except (EOFError, OSError):
            os._exit(0)

    threading.Thread(target=read, name="parent", daemon=True).start()
    await loop.create_future()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    asyncio.run(serve(Connection(int(sys.argv[1]))))


if __name__ == "__main__":
    main()
