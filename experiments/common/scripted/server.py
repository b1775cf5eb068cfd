"""A model server on a real socket whose manners are those of a kind and whose answers are a script.

    server = Scripted(manners("Mistral"))
    server.replies.append(Reply(("Par", "is.")))
    async with server:
        ...  server.url

What it says to a request is decided in this order: is there such a page, is the key right, does it
have the model, does it know the fields, does the prompt fit; then the script (`faults`, first come,
first served); then `rule`, which an experiment gives; and then a reply. Connections, what was asked
and how each request ended are noted in `seen`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self

from experiments.common.http_requests import ClientLeft, read_request, unless_left
from experiments.common.scripted.headers import budget_headers, prompt_of
from experiments.common.scripted.kinds import Manners
from experiments.common.scripted.refusals import CONTEXT, Refuses
from experiments.common.scripted.streams import Reply, stream_events, whole_answer

KEY: Final = "sk-scripted"
CREATED: Final = 1_760_000_000
_LINGER: Final = struct.pack("ii", 1, 0)
"""A socket that is closed with it sends RST."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuses as its kind does in a situation of `refusals`. seconds: what it says to wait."""

    situation: str
    seconds: int = 2


@dataclass(frozen=True, slots=True)
class Breaks:
    """Begins to answer, and after so many pieces: `reset` (RST), `cut` (closed within the body),
    `end` (a proper end of a body that is not finished), `stall` (silence), or `stream` (the error
    that its kind sends within a stream)."""

    how: str
    after: int = 0


@dataclass(frozen=True, slots=True)
class Raw:
    """These bytes as the body, in these pieces."""

    body: tuple[bytes, ...]
    status: int = 200
    type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer, until the client goes."""


Fault = Refuse | Breaks | Raw | Hang


@dataclass(slots=True)
class Seen:
    """One request. pieces: of its answer, that were sent. left: the client went before its end.
    status: 0 while nothing was answered."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    began: float
    ended: float | None = None
    status: int = 0
    pieces: int = 0
    left: bool = False

    @property
    def prompt(self) -> str:
        return prompt_of(self.body)

    @property
    def tokens(self) -> int:
        """Of the prompt, at four characters each."""
        return len(self.prompt) // 4 + 1


Rule = Callable[[Seen], Awaitable[Fault | Reply | None]]


class Scripted:
    """The server. rule: is asked for each completion that gets past the checks. port: 0 takes
    a free one. context: tokens that it takes."""

    def __init__(
        self, manners: Manners, *, rule: Rule | None = None, port: int = 0, context: int = CONTEXT
    ) -> None:
        self.manners, self.rule, self.port, self.context = manners, rule, port, context
        self.key = KEY
        self.over: Callable[[Seen], None] = lambda seen: None
        """Is told when a request has ended, however it did."""
        self.reply = Reply()
        self.faults: deque[Fault] = deque()
        self.seen: list[Seen] = []
        self.budgets: dict[str, int] = {}
        """What headers say is left: `requests`, `tokens`, and `reset` in seconds."""
        self.now: Callable[[], float] = time.monotonic
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.manners.path}"

    @property
    def calls(self) -> list[Seen]:
        """Completions that were asked for."""
        return [one for one in self.seen if one.path.endswith("completions")]

    # --- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Listens, at the same port as before if it did."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, backlog=512, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listens no more, and resets what is open, as a process that is killed does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task, writer in list(self._connections.items()):
            _reset(writer)
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._connection(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = b""
        try:
            while (received := await read_request(ahead, reader)) is not None:
                seen = Seen(received.path, received.headers, received.body, self.now())
                self.seen.append(seen)
                ahead = await self._watched(seen, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _watched(
        self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """Answers, and stops when the client leaves; what the client sent ahead."""
        try:
            return await unless_left(self._answer(seen, writer), reader)
        except ClientLeft:
            seen.left = True
            raise
        finally:
            seen.ended = self.now()
            self.over(seen)

    # --- answers --------------------------------------------------------------------------------

    async def _answer(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        sent = _Sent(seen, writer, self)
        path = seen.path.removeprefix(self.manners.path)
        if seen.path == "/version" and self.manners.version:
            await sent.json(200, {"version": self.manners.version})
        elif not seen.path.startswith(self.manners.path) or path not in PAGES:
            await sent.json(*self.manners.lost)
        elif (refused := self._checks(seen, path)) is not None:
            await sent.refuses(*refused)
        elif path == "/models":
            entry = {"id": self.manners.model, "object": "model", "created": CREATED}
            listed = {"object": "list", "data": [entry | dict(self.manners.listed)]}
            await sent.json(200, listed)
        else:
            said: Fault | Reply | None = self.faults.popleft() if self.faults else None
            if said is None and self.rule is not None:
                said = await self.rule(seen)
            await sent.says(said)

    def _checks(self, seen: Seen, path: str) -> tuple[Refuses, dict[str, object]] | None:
        """What is wrong with the request itself."""
        manners, body = self.manners, seen.body
        knows: dict[str, object] = {
            "model": body.get("model"),
            "limit": self.context,
            "asked": seen.tokens,
            "seconds": 2,
        }
        situation = ""
        if manners.keyed and seen.headers.get("authorization") != f"Bearer {self.key}":
            situation = "key"
        elif path == "/models":
            return None
        elif body.get("model") != manners.model and not manners.any_model:
            situation = "model"
        elif unknown := self._unknown(body):
            situation, knows["field"] = "field", unknown
        elif seen.tokens > self.context:
            situation = "long"
        refuses = manners.refuses.get(situation)
        return None if refuses is None else (refuses, knows)

    def _unknown(self, body: Mapping[str, Any]) -> str | None:
        """The first field that the server does not take."""
        if self.manners.warm_only and body.get("temperature", 1) != 1:
            return "temperature"
        return next((name for name in self.manners.unknown if name in body), None)


PAGES: Final = ("/models", "/chat/completions", "/completions")


class _Sent:
    """Writes the answer to one request."""

    def __init__(self, seen: Seen, writer: asyncio.StreamWriter, server: Scripted) -> None:
        self._seen, self._writer, self._server = seen, writer, server
        self._manners = server.manners

    async def says(self, said: Fault | Reply | None) -> None:
        server, knows = self._server, {"model": self._seen.body.get("model")}
        if isinstance(said, Refuse):
            more = {"seconds": said.seconds, "limit": server.context, "asked": 9 * server.context}
            await self.refuses(self._manners.refuses[said.situation], knows | more)
        elif isinstance(said, Hang):
            await asyncio.Event().wait()
        elif isinstance(said, Raw):
            await self._raw(said)
        else:
            await self._replies(said if isinstance(said, Reply) else server.reply, said)

    async def _replies(self, reply: Reply, said: Fault | Reply | None) -> None:
        """An answer, of which something may go wrong in the middle."""
        if not self._seen.body.get("stream"):
            if isinstance(said, Breaks):
                self._breaks(said)
            await asyncio.sleep(reply.first_s + reply.each_s * (len(reply.pieces) - 1))
            answer, self._seen.pieces = whole_answer(self._manners, reply, self._seen.body)
            await self.json(200, answer, budgets=True)
            return
        await self._stream(reply, said if isinstance(said, Breaks) else None)

    async def _stream(self, reply: Reply, breaks: Breaks | None) -> None:
        pieces = 0
        self._head(200, "text/event-stream; charset=utf-8", {}, budgets=True)
        for event, is_piece in stream_events(self._manners, reply, self._seen.body):
            if breaks is not None and pieces >= breaks.after and await self._broken(breaks):
                return
            if is_piece:
                await asyncio.sleep(reply.each_s if pieces else reply.first_s)
                pieces += 1
                self._seen.pieces = pieces
            await self._chunk(event)
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _broken(self, breaks: Breaks) -> bool:
        if breaks.how == "stall":
            await asyncio.Event().wait()
        if breaks.how == "stream":
            refuses = self._manners.refuses["stream"]
            name = f"event: {refuses.event}\n" if refuses.event else ""
            text = refuses.text(model=self._manners.model)
            await self._chunk(f"{name}data: {text}\n\n".encode())
        elif breaks.how != "end":
            self._breaks(breaks)
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        return True

    def _breaks(self, breaks: Breaks) -> None:
        if breaks.how == "reset":
            _reset(self._writer)
        self._writer.transport.abort()
        raise ConnectionResetError

    # --- bytes ----------------------------------------------------------------------------------

    async def json(self, status: int, value: Any, *, budgets: bool = False) -> None:
        """A body of JSON."""
        await self._whole(status, json.dumps(value), "application/json", {}, budgets=budgets)

    async def refuses(self, refuses: Refuses, knows: Mapping[str, object]) -> None:
        """An answer of the kind, filled in."""
        headers = {
            name: value.replace("{seconds}", str(knows.get("seconds", 2)))
            for name, value in refuses.headers.items()
        }
        body = refuses.text(**knows)
        type = "text/plain" if isinstance(refuses.body, str) else "application/json"
        await self._whole(refuses.status, body, type, headers, budgets=True)

    async def _raw(self, raw: Raw) -> None:
        self._head(raw.status, raw.type, raw.headers)
        for piece in raw.body:
            await self._chunk(piece)
            await asyncio.sleep(0)
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _whole(
        self, status: int, text: str, type: str, headers: Mapping[str, str], *, budgets: bool
    ) -> None:
        body = text.encode()
        length = {"content-length": str(len(body))}
        self._head(status, type, {**headers, **length}, budgets=budgets)
        self._writer.write(body)
        await self._writer.drain()

    def _head(
        self, status: int, type: str, headers: Mapping[str, str], *, budgets: bool = False
    ) -> None:
        self._seen.status = status
        if budgets and self._server.budgets:
            headers = {**headers, **budget_headers(self._manners.budgets, self._server.budgets)}
        if "content-length" not in headers:
            headers = {**headers, "transfer-encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: {type}\r\n{lines}\r\n".encode())

    async def _chunk(self, data: bytes) -> None:
        self._writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self._writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes a connection with RST."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
    writer.transport.abort()
