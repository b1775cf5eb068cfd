"""How large a request's body may be, and how slowly it may come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from teola.serve.intake.bodies import JSON_BYTES
from teola.serve.problems import Problem, TooLarge, TooSlow, answer, problem

FORM_BYTES: Final = 64 * 2**20
PATIENCE_S: Final = 30.0
"""Seconds that any body may take; more for large ones:"""
SLOWEST: Final = 64 * 2**10
"""bytes a second, without the patience."""
LINGER_S: Final = 2.0
"""How long what is left of a body is still read once its request has been refused."""


class Bounded:
    """Refuses bodies that are too long or too slow, at the latest when they have become so.

    takes_forms: whether the route of a request does; all others take JSON."""

    def __init__(
        self,
        app: ASGIApp,
        takes_forms: Callable[[Scope], bool],
        refused: Callable[[Problem, Scope], None] = lambda problem, scope: None,
    ) -> None:
        self._app, self._takes_forms, self._refused = app, takes_forms, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        announced = headers.get(b"content-length", b"0")
        empty = announced == b"0" and b"transfer-encoding" not in headers
        form = self._takes_forms(scope) and is_form(Headers(scope=scope))
        most = FORM_BYTES if form else JSON_BYTES
        body = _Body(receive, send, most, empty)
        if announced.isdigit() and int(announced) > most:
            refusal = problem(_too_large(most))
            self._refused(refusal, scope)
            await answer(scope["path"], refusal)(scope, receive, body.send)
            return
        await self._app(scope, body.receive, body.send)


def is_form(headers: Headers) -> bool:
    """Whether the body is a form with files, whatever it may hold."""
    kind = headers.get("content-type", "")
    if "form-data" not in kind.lower():
        return False
    return parse_options_header(kind)[0] == b"multipart/form-data"


class _Body:
    """One body on its way in, and the answer on its way out. most: bytes. empty: there is none."""

    def __init__(self, receive: Receive, send: Send, most: int, empty: bool) -> None:
        self._receive, self._send, self._most = receive, send, most
        self._until = asyncio.get_running_loop().time() + PATIENCE_S
        self._seen, self._whole = 0, empty

    async def receive(self) -> Message:
        """The next part, and later what befalls the connection. Raises TooLarge, TooSlow."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until + self._seen / SLOWEST):
                message = await self._receive()
        except TimeoutError:
            raise TooSlow(
                "the body of the request did not come in time; send it without pauses"
            ) from None
        self._seen += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._seen > self._most:
            raise _too_large(self._most)
        return message

    async def send(self, message: Message) -> None:
        """Before the end of an answer that came before the body did, take in the rest of that: a
        connection closed with something unread in it may take the answer along."""
        if self._whole or message["type"] != "http.response.body" or message.get("more_body"):
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while not self._whole:
                    part = await self._receive()
                    self._whole = not part.get("more_body", False)
        await self._send({"type": "http.response.body", "body": b""})


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is larger than {most // 2**20} MiB")
