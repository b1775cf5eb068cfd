"""Messages that a server of the Model Context Protocol writes, bounded before anything reads them.

A server must not be able to hold up the event loop. So a message may have so many bytes, and one
JSON value for 32 of these: one call into C parses it whole and keeps the interpreter meanwhile,
whatever thread it runs in. What the SDK then checks item by item, on the loop, is cut to so many
items.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from teola.errors import TeolaError

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

    from teola.threads import Threads

MESSAGE_BYTES: Final = 8 * 2**20
"""Bytes of one message."""
VALUE_BYTES: Final = 32
"""A message may hold one JSON value for so many bytes of its limit."""
MOST_ITEMS: Final = 4_096
"""Items of one list that the SDK checks one by one."""
INLINE_BYTES: Final = 64 * 1024
"""Larger messages are read in a thread; for smaller ones the way there would take longer."""

log = logging.getLogger(__name__)

_SLICE: Final = 64 * 1024
LINE: Final = re.compile(rb"\n")
EVENT: Final = re.compile(rb"\n\n|\n\r|\r\r")
"""An empty line, which ends an event of a stream, with any of the three ends of lines."""
WHOLE: Final = re.compile(rb"(?!)")
"""Nothing: the message ends with its stream."""


class MessageRefused(TeolaError):
    """What a server writes is no longer read; the text names the option."""


class Frames:
    """Messages in a stream of bytes, put together in time that is linear in these.

    end: what ends a message, of at most two bytes.
    most: bytes of a message.
    """

    def __init__(self, end: re.Pattern[bytes], most: int) -> None:
        self._end, self._most = end, most
        self._parts: list[bytes] = []
        self._bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that `data` completes, without their ends. Raises MessageRefused."""
        if self._end is EVENT and self._parts:  # its end may begin in the piece before
            before = self._parts.pop()
            self._bytes -= len(before)
            data = before[-1:] + data
            self._keep(before[:-1])
        start = 0
        for end in self._end.finditer(data):
            self._keep(data[start : end.start()])
            start = end.end()
            yield self.rest()
        self._keep(data[start:], ahead=self._end is EVENT)  # its last byte may begin an end

    def rest(self) -> bytes:
        """The message that is not complete yet, which is then forgotten."""
        remainder = b"".join(self._parts)
        self._parts, self._bytes = [], 0
        return remainder

    def _keep(self, part: bytes, *, ahead: int = 0) -> None:
        self._bytes += len(part)
        if self._bytes > self._most + ahead:
            raise MessageRefused(
                f"it wrote a message of more than {self._most} bytes (most_message_bytes)"
            )
        if part:
            self._parts.append(part)


def check_values(message: bytes, most_bytes: int) -> None:
    """Raise MessageRefused if `message` holds more JSON values than fit `most_bytes`."""
    most = most_bytes // VALUE_BYTES
    if sum(map(message.count, (b"[", b"{", b",", b"\n", b"\r"))) < most:
        return
    count = 0
    # a text never goes over the end of a line, so a stray quote hides nothing beyond its own
    for line in message.splitlines():
        count += _values(line)
        if count > most:
            raise MessageRefused(
                f"it wrote a message of more than {most} values, one for {VALUE_BYTES} of "
                f"{most_bytes} bytes (most_message_bytes)"
            )


def _values(line: bytes) -> int:
    """JSON values in a line, at least, and at most twice as many. Texts do not count inside."""
    line = line.replace(rb"\\", b"").replace(rb"\"", b"")
    count, inside = 1, 0
    for start in range(0, len(line), _SLICE):
        pieces = line[start : start + _SLICE].split(b'"')
        between = b"".join(pieces[inside::2])
        count += sum(map(between.count, (b"[", b"{", b",")))
        inside ^= (len(pieces) - 1) % 2
    return count


async def message_of(line: bytes, most_bytes: int, threads: Threads) -> SessionMessage | Exception:
    """A line as the SDK's sessions take it: a ValueError stands for one that is no message. Raises
    MessageRefused."""
    if len(line) <= INLINE_BYTES:
        return _message(line, most_bytes)
    message: SessionMessage | Exception = await threads.run(partial(_message, line, most_bytes))
    return message


def _message(line: bytes, most_bytes: int) -> SessionMessage | Exception:
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    check_values(line, most_bytes)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:  # its text would repeat what the server wrote
        return ValueError("what the server wrote is no message")


def bounded(item: Any) -> tuple[Any, int]:
    """A message with what the SDK checks item by item, on the loop, cut to MOST_ITEMS; and how many
    items are left out. One that cannot be cut becomes a ValueError.

    The schemas of results are left out too. The SDK would hold results against them on the loop: a
    pattern in one can take for ever, and they are no more than what the server says of itself.
    """
    message = getattr(item, "message", None)
    params = getattr(message, "params", None) or {}
    if any(isinstance(value, list) and len(value) > MOST_ITEMS for value in params.values()):
        return ValueError("what the server asks or tells is too long"), 0
    result = getattr(message, "result", None)
    if not isinstance(result, dict):
        return item, 0
    left_out = 0
    for key, value in result.items():
        if isinstance(value, list) and len(value) > MOST_ITEMS:
            over = len(value) - MOST_ITEMS
            left_out += over
            del value[MOST_ITEMS:]
            if key == "content":
                value.append({"type": "text", "text": f"[{over} more parts are left out]"})
    tools = result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)
    return item, left_out


class Ear:
    """A stream of messages, overheard.

    hears: is told each, and says whether to go on.
    ends: is told that there are no more.
    """

    def __init__(
        self, stream: Any, hears: Callable[[object], bool], ends: Callable[[], None]
    ) -> None:
        self._stream, self._hears, self._ends = stream, hears, ends

    @property
    def last_context(self) -> Context | None:
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Ear:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._stream.__anext__()
        except BaseException:
            self._ends()
            raise
        item, left_out = bounded(item)
        if left_out:
            log.warning("%d items of a list that a tool server told are left out", left_out)
        if not self._hears(item):
            self._ends()
            raise StopAsyncIteration
        return item

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Ear:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)
