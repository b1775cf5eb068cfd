"""Requests of HTTP/1.1 as the model servers of experiments and tests read them, and who leaves.

Standard library only: a peer's process, which has an environment of its own, may read this too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, Final, NamedTuple

FORM: Final = "application/x-www-form-urlencoded"


class Received(NamedTuple):
    """One request. headers: by their names in small letters. body: of JSON; {} if it has none, and
    of a form its text."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class ClientLeft(ConnectionResetError):
    """The client closed its connection before its answer had ended."""


async def read_request(ahead: bytes, reader: asyncio.StreamReader) -> Received | None:
    """The next request; None at the end of the connection. ahead: bytes that were read before."""
    try:
        head = ahead + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    raw = await reader.readexactly(int(headers.get("content-length", 0)))
    if FORM in headers.get("content-type", ""):
        return Received(method, path, headers, raw.decode())
    return Received(method, path, headers, json.loads(raw) if raw else {})


async def unless_left(answer: Coroutine[Any, Any, None], reader: asyncio.StreamReader) -> bytes:
    """Run `answer` to its end, or until the client leaves; the bytes that it sent ahead.

    Raises ClientLeft, and what `answer` raises.
    """
    loop = asyncio.get_running_loop()
    answering, watching = loop.create_task(answer), loop.create_task(reader.read(1))
    try:
        await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done() and not watching.result():
            raise ClientLeft
        await answering
        return watching.result() if watching.done() else b""
    finally:
        answering.cancel()
        watching.cancel()
        await asyncio.gather(answering, watching, return_exceptions=True)
