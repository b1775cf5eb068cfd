"""Clients that say exactly what they are told, byte by byte, and leave when they like."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from tests.soak.server import Server

LIMIT_S: Final = 120.0
HALF_A_HEAD: Final = b"POST /v1/apps/null/queries HTTP/1.1\r\nhost: lo"
VOCABULARY: Final = (
    "lamp harbour keeper herring boat tide rope market barrel oil winter letter garden bridge "
    "engine river clock window paper silver tower forest copper signal bread stone candle ladder"
)
WORDS: Final = VOCABULARY.split()

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: what it is for, its path, and its body as JSON."""

    kind: str
    path: str
    body: dict[str, Any]

    def to_bytes(self, *, close: bool = True) -> bytes:
        """As it travels. close: the connection ends with the answer."""
        body = json.dumps(self.body).encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{'connection: close' if close else 'x-soak: 1'}\r\n"
        )
        return f"{head}\r\n".encode() + body


def query(app: str, question: str, mode: str = "sync", **inputs: Any) -> Ask:
    """A query in our own form."""
    body = {"inputs": {"question": question, **inputs}, "mode": mode}
    return Ask(f"{app} {mode}", f"/v1/apps/{app}/queries", body)


def chat(app: str, question: str, **more: Any) -> Ask:
    """A streamed query in OpenAI's form."""
    messages = [{"role": "user", "content": question}]
    body = {"model": app, "messages": messages, "stream": True, **more}
    return Ask(f"{app} chat", "/v1/chat/completions", body)


def text(rng: random.Random, words: int) -> str:
    """Sentences that mean nothing; no two calls give the same."""
    found = [rng.choice(WORDS) for _ in range(words)]
    found[7::8] = [f"{word} {rng.randrange(10**6)}." for word in found[7::8]]
    return " ".join(found)


def document(rng: random.Random, words: int) -> dict[str, str]:
    """An inline document that nobody has sent before."""
    return {"name": f"{rng.randrange(10**9)}.md", "text": text(rng, words)}


async def connect(server: Server, receive_buffer: int | None = None) -> Stream:
    """A connection; receive_buffer: bytes that the kernel may take for us."""
    where = urlsplit(server.url)
    assert where.hostname is not None
    ours = socket.socket()
    if receive_buffer is not None:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(ours, (where.hostname, where.port))
    return await asyncio.open_connection(sock=ours)


async def ended(stream: Stream) -> bool:
    """Wait until the server has closed it; nothing is kept of what it said."""
    try:
        while await stream[0].read(2**16):
            pass
    except ConnectionError:
        pass
    return True


def leave(streams: list[Stream]) -> None:
    """Go, all at the same moment, without another word."""
    for _, writer in streams:
        writer.transport.abort()


async def until(true: Callable[[], Awaitable[bool]], what: str, limit_s: float = LIMIT_S) -> float:
    """Wait for something; how many seconds that took."""
    began = time.monotonic()
    while not await true():
        assert time.monotonic() - began < limit_s, f"{what}: not within {limit_s:.0f} s"
        await asyncio.sleep(0.005)
    return time.monotonic() - began


async def free(
    server: Server, client: httpx.AsyncClient, limit_s: float = LIMIT_S
) -> tuple[float, list[str]]:
    """Wait until nothing is held for any query; how many seconds that took, and what was last."""
    held: dict[str, float] = {}

    async def nothing() -> bool:
        nonlocal held
        found = await server.held(client)
        held = found or held
        return not found

    try:
        return await until(nothing, "free", limit_s), sorted(held)
    except AssertionError:
        raise AssertionError(f"held {limit_s:.0f} s after all clients left: {held}") from None


async def answered(server: Server, count: int) -> None:
    """Others, each on a connection of its own, ask and get an answer."""
    for i in range(count):
        async with httpx.AsyncClient(base_url=server.url, timeout=LIMIT_S) as client:
            asked = query("null", f"question {i}")
            response = await client.post(asked.path, json=asked.body)
            assert response.json()["outputs"] == {"answer": f"question {i}"}
