"""Listening to a vLLM's events over ZMQ, for as long as the engine is open.

vLLM publishes and remembers nobody: what is sent while nobody listens is gone. So each time a
connection comes up or breaks off, everything told before is taken back; whether the server was
restarted in between cannot be told, and need not.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from teola.engine import PrefixChange
from teola.errors import InputError

from .vllm_events import StoredBlocks

if TYPE_CHECKING:
    import zmq
    import zmq.asyncio

HELD_MESSAGES: Final = 100_000
"""As many as vLLM holds for us while we are busy; what is more is lost, which its numbers show."""
AT_ONCE: Final = 16

_ENDPOINT: Final = re.compile(r"tcp://[^/*\s]+:\d+|ipc:///?\S+")


def check(endpoint: str, name: str) -> str:
    """The endpoint. Raises InputError if nobody could connect to it."""
    if not _ENDPOINT.fullmatch(endpoint):
        raise InputError(
            f"engine {name!r}: kv_events must look like tcp://host:5557, with a host where the "
            "server's own option has a *"
        )
    return endpoint


class EventFeed:
    """The events of one endpoint. Use from one event loop."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """End all who listen."""
        if not self._end.done():
            self._end.set_result(None)

    async def changes(self, blocks: StoredBlocks) -> AsyncGenerator[PrefixChange, None]:
        """What changes, read by `blocks`, until `close`."""
        with self._subscribed() as (socket, monitor, poller):
            while await self._readable(poller):
                if _connected_or_not(monitor):
                    yield blocks.clear()
                for sequence, payload in _messages(socket):
                    change = blocks.read(sequence, payload)
                    if change != PrefixChange():
                        yield change

    @contextmanager
    def _subscribed(
        self,
    ) -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes], zmq.asyncio.Poller]]:
        import zmq
        import zmq.asyncio

        with zmq.Context() as context:
            socket = context.socket(zmq.SUB)
            socket.setsockopt(zmq.RCVHWM, HELD_MESSAGES)
            socket.subscribe(b"")
            monitor = socket.get_monitor_socket(
                zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
            )
            socket.connect(self._endpoint)
            poller = zmq.asyncio.Poller()
            for one in (socket, monitor):
                poller.register(one, zmq.POLLIN)
            try:
                yield socket, monitor, poller
            finally:
                socket.disable_monitor()
                monitor.close(linger=0)
                socket.close(linger=0)

    async def _readable(self, poller: zmq.asyncio.Poller) -> bool:
        """Waits for something to read; False: the feed is closed."""
        ready = asyncio.ensure_future(poller.poll())
        either: set[asyncio.Future[Any]] = {ready, self._end}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        return not self._end.done()


class PrivateFeed(EventFeed):
    """The events of a vLLM of our own, at a socket that stays where it is when that is started
    again, and that only this user sees: what it tells are the tokens of everybody's prompts.

    config: what vLLM is to be told of it (`KVEventsConfig`).
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="teola-kv-")
        endpoint = f"ipc://{self._folder.name}/events"
        super().__init__(endpoint)
        self.config: dict[str, Any] = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": endpoint,
        }

    def close(self) -> None:
        """End all who listen, and remove the socket."""
        super().close()
        self._folder.cleanup()


def _connected_or_not(monitor: zmq.Socket[bytes]) -> bool:
    """Whether the connection came up or broke off since the last look."""
    return len(list(_received(monitor))) > 0


def _messages(socket: zmq.Socket[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbers and payloads of the messages that are there, a few at most."""
    for _, frames in zip(range(AT_ONCE), _received(socket), strict=False):
        if len(frames) == 3:
            yield int.from_bytes(frames[1], "big"), frames[2]


def _received(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    import zmq

    while True:
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
