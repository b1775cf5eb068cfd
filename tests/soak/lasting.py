"""A mix of applications for a while, a tenth of whose clients leave: what grows, what stays."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import numpy as np

from tests.soak.clients import Ask, chat, document, free, query, text, until
from tests.soak.server import Seen, Server

WORKERS: Final = 6
LEAVING: Final = 0.1
KNOWN: Final = 30
"""Documents that come again and again."""
NEW: Final = 0.1
"""How many of the documents nobody has sent before."""
STAY_S: Final = {"null sync": 0.005, "naive-rag sync": 0.3, "scribe chat": 0.8}
"""A client that leaves does so within this time."""
SETTLE_S: Final = 60.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Load:
    """Clients that ask until they are told to end. ended: by kind and how."""

    server: Server
    rng: random.Random
    ended: Counter[str] = field(default_factory=Counter)
    documents: list[dict[str, str]] = field(default_factory=list)
    workers: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.documents = [document(self.rng, 300) for _ in range(KNOWN)]

    def next(self) -> Ask:
        kind = self.rng.random()
        if kind < 0.6:
            return query("null", text(self.rng, 10))
        if kind < 0.85:
            new = self.rng.random() < NEW
            given = document(self.rng, 300) if new else self.rng.choice(self.documents)
            return query("naive-rag", text(self.rng, 8), documents=[given])
        return chat("scribe", text(self.rng, 60), max_tokens=40)

    async def worker(self) -> None:
        async with httpx.AsyncClient(base_url=self.server.url, timeout=120) as client:
            while True:
                await self._one(client, self.next())

    async def _one(self, client: httpx.AsyncClient, ask: Ask) -> None:
        leaving = self.rng.random() < LEAVING
        stay_s = self.rng.uniform(0, STAY_S[ask.kind]) if leaving else None
        state = "left"
        with suppress(TimeoutError):
            async with asyncio.timeout(stay_s):
                state = str((await client.post(ask.path, json=ask.body)).status_code)
        self.ended[f"{ask.kind} {state}"] += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.workers = [asyncio.create_task(self.worker()) for _ in range(WORKERS)]
        try:
            yield
            self.check()
        finally:
            for task in self.workers:
                task.cancel()
            await asyncio.gather(*self.workers, return_exceptions=True)

    def check(self) -> None:
        """Raise what ended a worker, if one has ended."""
        for task in self.workers:
            if task.done():
                task.result()


async def lasting(server: Server, warm: int, seconds: float, seed: int) -> dict[str, Any]:
    """What the server looked like before, after, and all the while; memory in MiB a minute.

    warm: queries before anything is measured; the server keeps the last 512.
    """
    load = Load(server, random.Random(seed))
    async with httpx.AsyncClient(timeout=120) as client:
        async with load.running():
            await until(lambda: _ended(load, warm), "warm", limit_s=600)
        await free(server, client)
        before = await server.seen(client)
        load.ended.clear()
        async with load.running():
            samples = await _watch(server, client, seconds)
        await free(server, client)
        after = await _settled(server, client, before)
    skipped = min(60.0, seconds / 2)
    return {
        "seconds": seconds,
        "queries": dict(load.ended),
        "before": before.to_json(),
        "after": after.to_json(),
        "server_mib_a_minute": _slope(samples, skipped, "memory_mib"),
        "database_mib_a_minute": _slope(samples, skipped, "database_mib"),
        "temporary_files": server.left(),
        "memory_mib": [seen.memory_mib for _, seen in samples],
        "rss_mib": [seen.rss_mib for _, seen in samples],
    }


async def _ended(load: Load, count: int) -> bool:
    load.check()
    return load.ended.total() >= count


async def _watch(
    server: Server, client: httpx.AsyncClient, seconds: float
) -> list[tuple[float, Seen]]:
    began, samples = time.monotonic(), []
    every = max(1.0, seconds / 120)
    while (at := time.monotonic() - began) < seconds:
        samples.append((at, await server.seen(client)))
        if len(samples) % 12 == 0:
            log.info("%.0f of %.0f s: %s", at, seconds, samples[-1][1])
        await asyncio.sleep(every)
    return samples


async def _settled(server: Server, client: httpx.AsyncClient, before: Seen) -> Seen:
    """Its process once what it had is given back, or after a while in any case."""
    after = await server.seen(client)

    async def back() -> bool:
        nonlocal after
        after = await server.seen(client)
        now, then = (_given_back(seen) for seen in (after, before))
        return all(a <= b for a, b in zip(now, then, strict=True))

    with suppress(AssertionError):
        await until(back, "settled", SETTLE_S)
    return after


def _given_back(seen: Seen) -> tuple[int, ...]:
    """What must not grow. The database's pool may, to its bound."""
    descriptors = seen.descriptors - seen.sessions
    return descriptors, seen.sockets, seen.children, seen.tasks, seen.in_transaction


def _slope(samples: list[tuple[float, Seen]], skipped: float, what: str) -> float:
    """By linear regression over what came after the first seconds."""
    found = [(at / 60, getattr(seen, what)) for at, seen in samples if at >= skipped]
    minutes, sizes = np.array(found).T
    return round(float(np.polyfit(minutes, sizes, 1)[0]), 3)
