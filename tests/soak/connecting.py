"""Clients that hold connections and do nothing useful with them, while others want answers."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import httpx
import psutil

from teola.serve.connections import HEAD_S, STALLED_S
from tests.soak.clients import (
    HALF_A_HEAD,
    Stream,
    answered,
    chat,
    connect,
    ended,
    free,
    leave,
    query,
    until,
)
from tests.soak.server import Server

SMALL: Final = 4096
"""Bytes that the kernel takes for a client that reads nothing."""
MARGIN_S: Final = 30.0
"""On a machine that does much besides."""
KEPT_ALIVE_S: Final = 5.0
"""uvicorn closes a connection that is idle for so long after an answer."""
OTHERS: Final = 10
GET: Final = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


def descriptors(server: Server) -> int:
    """Open in its process, but for those to the database, of which the pools take as they need."""
    process = psutil.Process(server.process.pid)
    return int(process.num_fds()) - len(process.net_connections("unix"))


async def never_reading(server: Server, count: int, *, stay: bool) -> dict[str, Any]:
    """Clients open a stream of 12 MB each and never read. stay: nor do they ever leave."""
    await _whole(server)
    before = descriptors(server)
    asks = [query("flood", "go", "stream") if i % 2 else chat("flood", "go") for i in range(count)]
    async with httpx.AsyncClient(timeout=120) as client:
        known, refused = await _cancelled(server, client), await _refused(server, client)
        streams = []
        for ask in asks:
            streams.append(await connect(server, SMALL))
            streams[-1][1].transport.pause_reading()  # type: ignore[attr-defined]
            streams[-1][1].write(ask.to_bytes())
        await answered(server, OTHERS)

        async def cut() -> bool:
            gone = await _cancelled(server, client) - known
            return len(gone) + await _refused(server, client) - refused == count

        seconds = await until(cut, "clients that never read are cut off")
        let_in = len(await _cancelled(server, client) - known)
        await free(server, client)
    if not stay:
        leave(streams)
    gone = await _closed(server, before, STALLED_S + MARGIN_S)
    leave(streams)
    return {
        "clients": count,
        "let_in": let_in,
        "cut_after_s": round(seconds, 2),
        "closed_after_s": round(gone, 2),
    }


async def _cancelled(server: Server, client: httpx.AsyncClient) -> set[str]:
    """Queries of `flood` that were cancelled."""
    wanted = {"app": "flood", "state": "cancelled", "limit": 500}
    found = await client.get(f"{server.url}/v1/queries", params=wanted)
    return {one["query_id"] for one in found.json()["queries"]}


async def _whole(server: Server) -> None:
    """Wait until it has the descriptors that it keeps: the journal is opened beside the engines."""
    async with httpx.AsyncClient(timeout=120) as client:

        async def opened() -> bool:
            return bool((await server.metrics(client)).get("teola_journal_up"))

        await until(opened, "the journal is open")
    await asyncio.sleep(KEPT_ALIVE_S)


async def _refused(server: Server, client: httpx.AsyncClient) -> int:
    found = await server.metrics(client)
    return round(sum(n for name, n in found.items() if name.startswith("teola_refused_total")))


async def idle(server: Server, count: int) -> dict[str, Any]:
    """Clients ask once and keep their connections, which are closed after a while."""
    before = descriptors(server)
    streams = await _many(server, count, GET)
    for reader, _ in streams:
        await reader.readuntil(b'{"status":"ok"}')
    await answered(server, OTHERS)
    await _all_closed(streams, KEPT_ALIVE_S + MARGIN_S)
    await _closed(server, before, MARGIN_S)
    return {"clients": count}


async def half_open(server: Server, count: int) -> dict[str, Any]:
    """Clients connect and say nothing, or half of a request's head, until they are given up."""
    before = descriptors(server)
    streams = await _many(server, count // 2, b"")
    streams += await _many(server, count - count // 2, HALF_A_HEAD)
    await answered(server, OTHERS)
    await _all_closed(streams, HEAD_S + MARGIN_S)
    await _closed(server, before, MARGIN_S)
    return {"clients": count}


async def more_than_descriptors(server: Server, count: int) -> dict[str, Any]:
    """Many more clients than the server has descriptors, of which none says anything."""
    await _whole(server)
    before, streams, most = descriptors(server), list[Stream](), 0
    began = time.monotonic()
    for _ in range(count // 100):
        streams += await _many(server, 100, b"")
        most = max(most, descriptors(server))
        await answered(server, 2)
    leave(streams)
    await _closed(server, before, HEAD_S + MARGIN_S)
    return {
        "clients": len(streams),
        "most_descriptors": most,
        "seconds": round(time.monotonic() - began, 2),
    }


async def _many(server: Server, count: int, first: bytes) -> list[Stream]:
    """Connections, on each of which `first` is said."""
    streams = await asyncio.gather(*(connect(server) for _ in range(count)))
    for _, writer in streams:
        writer.write(first)
    return list(streams)


async def _all_closed(streams: list[Stream], limit_s: float) -> None:
    """Wait until the server has closed them all."""
    async with asyncio.timeout(limit_s):
        await asyncio.gather(*(ended(stream) for stream in streams))
    leave(streams)


async def _closed(server: Server, before: int, limit_s: float) -> float:
    """Wait until it has no more descriptors than before; seconds."""

    async def back() -> bool:
        return descriptors(server) <= before

    return await until(back, f"from {descriptors(server)} descriptors to {before}", limit_s)
