"""Connections: how many there are at once, and when one is given up that says or takes nothing.

uvicorn closes a connection on which nothing comes after an answer. Left to itself it waits for a
first request forever, and takes connections until no descriptor is left, neither for the database
nor for an upload. Here every request's head has to come within `HEAD_S`, and once `most`
connections are open, each new one takes the place of the one that has been idle for longest.

A client that takes nothing of what is sent, or is gone without having said so, is given up by the
kernel (`give_up_the_dead`): its connection then ends as if it had been closed, and its query with
it. Nothing of this costs anything while tokens flow.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from teola.serve.problems import Problem

HEAD_S: Final = 10.0
"""Seconds in which the head of a request must have come."""
STALLED_S: Final = 30
"""Seconds that a client may take nothing of what is there for it."""
SILENT_S: Final = 60
"""Seconds without a byte after which a client is asked whether it is still there."""
ASKED_S: Final = 10
ASKED: Final = 3
"""How long it has to say so, and how often it is asked."""
RESERVE: Final = 64
"""Descriptors that are not for connections: the database's, engines', uploaded files'."""
FULL: Final = Problem(
    503, "overloaded", "too many connections are open; try again in a moment", True
)

_Idle = OrderedDict["Connection", None]
Refused = Callable[[Problem], None]


class Connection(HttpToolsProtocol):
    """One client. idle: the connections on which no request is being answered, in the order in
    which they became so. most: connections at once. refused: is told who finds no room."""

    def __init__(self, *given: Any, idle: _Idle, most: int, refused: Refused, **named: Any) -> None:
        super().__init__(*given, **named)
        self._idle, self._most, self._refused = idle, most, refused
        self._head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._most and not self._make_room():
            self._refused(FULL)
            transport.write(_refusal())
            transport.close()
            return
        self._idle[self] = None
        self._expect_a_head()

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest; whether there was one."""
        while self._idle:
            oldest, _ = self._idle.popitem(last=False)
            if not oldest.transport.is_closing():
                oldest.transport.abort()
                return True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle.pop(self, None)
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is None and self in self._idle:
            self._expect_a_head()

    def on_headers_complete(self) -> None:
        self._idle.pop(self, None)
        self._expect_nothing()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        pipelined = bool(self.pipeline)
        super().on_response_complete()
        if not pipelined and not self.transport.is_closing():
            self._idle[self] = None

    def _expect_a_head(self) -> None:
        self._head = self.loop.call_later(HEAD_S, self.timeout_keep_alive_handler)

    def _expect_nothing(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


def protocol(most: int, refused: Refused = lambda found: None) -> type[asyncio.Protocol]:
    """What uvicorn makes connections of. most: at once. refused: is told of each one more."""
    made = partial(Connection, idle=OrderedDict(), most=most, refused=refused)
    return cast("type[asyncio.Protocol]", made)


def most_connections() -> int:
    """As many as leave descriptors for everything else."""
    try:
        import resource
    except ImportError:  # where there are no such limits
        return 4096
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return 2**16
    return max(1, min(allowed - RESERVE, allowed * 3 // 4))


def give_up_the_dead(listener: socket.socket) -> None:
    """Let the kernel end connections of `listener` whose clients take or answer nothing, as far as
    this system can."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {
        "TCP_KEEPIDLE": SILENT_S,
        "TCP_KEEPINTVL": ASKED_S,
        "TCP_KEEPCNT": ASKED,
        "TCP_USER_TIMEOUT": STALLED_S * 1000,
    }
    for name, value in wanted.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _refusal() -> bytes:
    """The response for a client that finds no room."""
    body = json.dumps(FULL.body()).encode()
    head = (
        f"HTTP/1.1 {FULL.status} Service Unavailable\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
