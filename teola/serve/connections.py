"""Connections: how many there are at once, and when one is given up that says or takes nothing.

uvicorn closes a connection on which nothing comes after an answer. Left to itself it waits for a
first request forever, and takes connections until no descriptor is left, neither for the database
nor for an upload. Here every request's head has to come within `HEAD_S`, and once `most`
connections are open, each new one takes the place of the one that has been idle for longest.

The parser keeps a head until it is whole, whatever its size. Here what comes of a head is counted
as it comes, and of the trailers behind a chunked body, which nobody reads, so they are dropped.

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
from http import HTTPStatus
from typing import Any, Final, cast

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from teola.serve.access.answer_headers import HEADERS
from teola.serve.problems import Problem

HEAD_S: Final = 10.0
"""Seconds in which the head of a request must have come."""
HEAD_BYTES: Final = 64 * 2**10
HEAD_FIELDS: Final = 100
"""The most that a head may have, and the trailers of a request."""
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
LARGE: Final = Problem(
    431,
    "too_large",
    f"the head of a request has at most {HEAD_FIELDS} headers and {HEAD_BYTES // 2**10} KiB",
)
MALFORMED: Final = Problem(400, "malformed", "this is not HTTP/1.1 that can be read")

_Idle = OrderedDict["ClientConnection", None]
OnRefused = Callable[[Problem], None]


class _Large(ValueError):
    """A head or the trailers are too large."""


class ClientConnection(HttpToolsProtocol):
    """One client. idle: the connections on which no request is being answered, in the order in
    which they became so. most: connections at once. refused: is told who finds no room, and of
    what cannot be read."""

    def __init__(
        self, *given: Any, idle: _Idle, most: int, refused: OnRefused, **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self._idle, self._most, self._refused = idle, most, refused
        self._head: asyncio.TimerHandle | None = None
        self._fed = self._named = self._fields = 0
        """Size of the head or the trailers that are coming: bytes as they came, then bytes and
        number of the headers that are whole."""
        self._behind = False
        """Whether the head is whole: what comes belongs to the body or is trailers."""
        self._turned = False
        """Whether a head, a body or all of a request has come to an end in the last bytes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._most and not self._make_room():
            self._refuse(FULL)
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
        """In place of uvicorn's, which logs a line for each request that it cannot read."""
        self._unset_keepalive_if_required()
        self._turned = False
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # nothing else is spoken here, and who asks for it is answered in HTTP/1.1
        except HttpParserError as error:
            large = isinstance(error.__context__, _Large)
            self._refuse(LARGE if large else MALFORMED)
            return
        if not self._turned:
            self._fed += len(data)
            if self._fed > HEAD_BYTES:
                self._refuse(LARGE)
                return
        if self._head is None and self in self._idle:
            self._expect_a_head()

    def _refuse(self, problem: Problem) -> None:
        """Hang up, and say why unless an answer has already begun."""
        self._refused(problem)
        cycle = self.cycle
        begun = cycle is not None and cycle.response_started
        if begun and not self._behind:
            begun = not cycle.response_complete  # else it was the answer to an earlier request
        if not begun and not self.pipeline:
            self.transport.write(_refusal(problem))
        self.transport.close()

    def _turn(self, *, behind: bool) -> None:
        """Something else comes from now on."""
        self._fed = self._named = self._fields = 0
        self._behind, self._turned = behind, True

    def _count(self, size: int, fields: int) -> None:
        """Raise _Large if there is too much of it."""
        self._named += size
        self._fields += fields
        if self._named > HEAD_BYTES or self._fields > HEAD_FIELDS:
            raise _Large

    def on_message_begin(self) -> None:
        self._turn(behind=False)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url), 0)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value), 1)
        if not self._behind:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._turn(behind=True)
        self._idle.pop(self, None)
        self._expect_nothing()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._turn(behind=True)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._turn(behind=False)
        super().on_message_complete()

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


def protocol(most: int, refused: OnRefused = lambda problem: None) -> type[asyncio.Protocol]:
    """What uvicorn makes connections of. most: at once. refused: is told of each one more."""
    make = partial(ClientConnection, idle=OrderedDict(), most=most, refused=refused)
    return cast("type[asyncio.Protocol]", make)


def most_connections() -> int:
    """How many connections leave descriptors for everything else."""
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
    options = {
        "TCP_KEEPIDLE": SILENT_S,
        "TCP_KEEPINTVL": ASKED_S,
        "TCP_KEEPCNT": ASKED,
        "TCP_USER_TIMEOUT": STALLED_S * 1000,
    }
    for name, value in options.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _refusal(problem: Problem) -> bytes:
    """The response for a client whose connection ends with it."""
    body = json.dumps(problem.body()).encode()
    again = "retry-after: 1\r\n" if problem.retryable else ""
    head = (
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{again}"
        "connection: close\r\n"
    )
    more = b"".join(b"%b: %b\r\n" % header for header in HEADERS)
    return head.encode() + more + b"\r\n" + body
