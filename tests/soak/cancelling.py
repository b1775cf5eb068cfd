"""Crowds of clients that leave in the middle of their queries, and how soon all is free again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from typing import Any, Final

import httpx

from tests.soak.clients import Ask, Stream, chat, connect, document, free, leave, query, text
from tests.soak.server import Server

MOST: Final = 5
"""Clients of a crowd."""
ARRIVE_S: Final = 0.5
STAY_S: Final = 0.7
"""They come within the former, and leave together at most the latter after that."""

log = logging.getLogger(__name__)


def asked(rng: random.Random) -> Ask:
    """A query that takes a while: in a queue, reading documents, prefilling or decoding."""
    mode = rng.choice(("sync", "stream"))
    kind = rng.random()
    if kind < 0.25:
        return query("narrow", "next, please", mode)
    if kind < 0.65:
        documents = [document(rng, rng.randrange(200, 4000)) for _ in range(rng.randrange(1, 4))]
        return query("naive-rag", "Who keeps the lamp?", mode, documents=documents)
    if kind < 0.75:
        return chat("naive-rag", "Who keeps the lamp?", documents=[document(rng, 1000)])
    return chat("scribe", text(rng, rng.randrange(5, 1200)))


async def cancelling(server: Server, count: int, seed: int) -> dict[str, Any]:
    """`count` clients leave before their queries have ended; seconds until nothing is held of what
    a crowd had asked, once for each of it. where: what their queries were doing."""
    rng, took, where, crowds = random.Random(seed), [], Counter[str](), 0
    slowest: list[tuple[float, list[str], list[str]]] = []
    async with httpx.AsyncClient(timeout=120) as client:
        while len(took) < count:
            seconds, last, doing = await _crowd(server, client, rng)
            took += [seconds] * sum(doing.values())
            slowest = sorted([*slowest, (round(seconds, 3), last, sorted(doing))])[-5:]
            where += doing
            crowds += 1
            assert crowds < 9 or len(took) > crowds // 3, "hardly anybody leaves in the middle"
            if crowds % 20 == 0:
                log.info("%d of %d have left", len(took), count)
    took.sort()
    return {
        "left": len(took),
        "crowds": crowds,
        "where": dict(where.most_common()),
        "slowest": slowest,
        "p50_s": round(took[len(took) // 2], 3),
        "p99_s": round(took[min(len(took) - 1, int(len(took) * 0.99))], 3),
        "max_s": round(took[-1], 3),
    }


async def _crowd(
    server: Server, client: httpx.AsyncClient, rng: random.Random
) -> tuple[float, list[str], Counter[str]]:
    """Seconds until all is free, what was held last, and what each of them left."""
    known = {one["query_id"] for one in await _listed(server, client)}
    size = rng.randint(1, MOST)
    arrivals = [(rng.uniform(0, ARRIVE_S), asked(rng)) for _ in range(size)]
    streams = await asyncio.gather(*(_arrive(server, after, ask) for after, ask in arrivals))
    await asyncio.sleep(rng.uniform(0, STAY_S))
    leave(streams)
    seconds, last = await free(server, client)
    new = [one for one in await _listed(server, client) if one["query_id"] not in known]
    assert not [one for one in new if one["state"] in ("running", "failed")], new
    gone = [one["query_id"] for one in new if one["state"] == "cancelled"]
    return seconds, last, Counter([await _doing(server, client, id) for id in gone])


async def _arrive(server: Server, after: float, ask: Ask) -> Stream:
    await asyncio.sleep(after)
    stream = await connect(server)
    stream[1].write(ask.to_bytes())
    return stream


async def _listed(server: Server, client: httpx.AsyncClient) -> list[dict[str, Any]]:
    found = await client.get(f"{server.url}/v1/queries", params={"limit": 100})
    listed: list[dict[str, Any]] = found.json()["queries"]
    return listed


async def _doing(server: Server, client: httpx.AsyncClient, id: str) -> str:
    """What a query was doing when it was cancelled: the operations that were not done."""
    found = await client.get(f"{server.url}/v1/queries/{id}/trace")
    if found.status_code == 404:
        return "before its admission"
    spans = found.json()["spans"]
    open_ = {span["op"] for span in spans if span["state"] in ("cancelled", "failed")}
    if open_:
        return " and ".join(sorted(open_))
    return "in a queue" if any(s["op"] == "optimise" for s in spans) else "reading documents"
