"""Engines' processes are killed while clients ask: no query is lost, and none is answered wrong."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from contextlib import suppress
from typing import Any, Final

import httpx
import psutil

from tests.soak.clients import free, query, until
from tests.soak.server import Server

APP: Final = "steady"
QUESTIONS: Final = 20
AT_ONCE: Final = 6
QUERIES_A_KILL: Final = 5
CHILDREN: Final = 4
"""Two instances of each of two engines."""
TRIES: Final = 3
"""After so many failures of one primitive its query may fail."""
RETURN_S: Final = 120.0

log = logging.getLogger(__name__)


class Range:
    """Queries, some at a time, and who shoots. right: the answers that nobody disturbed."""

    def __init__(self, server: Server, client: httpx.AsyncClient, rng: random.Random) -> None:
        self.server, self.client, self.rng = server, client, rng
        self.right: dict[str, str] = {}
        self.states: Counter[str] = Counter()
        self.done = self.wrong = self.lost = self.failed_tries = 0

    async def ask(self, question: str) -> dict[str, Any]:
        asked = query(APP, question)
        response = await self.client.post(f"{self.server.url}{asked.path}", json=asked.body)
        found: dict[str, Any] = response.json()
        return {"state": "ok", **found, "query_id": response.headers["x-query-id"]}

    async def learn(self) -> None:
        """The right answers."""
        for i in range(QUESTIONS):
            question = f"question {i}?"
            self.right[question] = (await self.ask(question))["outputs"]["answer"]

    async def one_after_another(self, left: list[str]) -> None:
        """Ask until there are none left."""
        while left:
            question = left.pop()
            found = await self.ask(question)
            failures = await self._failures(found["query_id"])
            self.failed_tries += failures.total()
            state = "failed" if "error" in found else found["state"]
            self.states[state] += 1
            if state == "ok":
                self.wrong += found["outputs"]["answer"] != self.right[question]
            elif max(failures.values(), default=0) < TRIES:
                self.lost += 1
                log.warning("lost: %s", found)
            self.done += 1

    async def _failures(self, id: str) -> Counter[str]:
        """Tries that failed, by primitive."""
        trace = await self.client.get(f"{self.server.url}/v1/queries/{id}/trace")
        return Counter(s["primitive"] for s in trace.json()["spans"] if s["state"] == "failed")

    async def whole(self) -> bool:
        """Whether all instances run; one that dies five times while it starts is given up."""
        await asyncio.sleep(0.02)
        found = await self.server.metrics(self.client)
        return all(up for name, up in found.items() if name.startswith("teola_instance_up"))

    async def shoot(self, kills: int) -> None:
        """Kill one process after the other, when all are there again."""
        for k in range(kills):
            after = QUERIES_A_KILL * k

            async def due(after: int = after) -> bool:
                there = self.done >= after and len(children(self.server)) == CHILDREN
                return there and await self.whole()

            await until(due, f"kill {k}", RETURN_S)
            await asyncio.sleep(self.rng.uniform(0.0, 0.2))
            with suppress(psutil.NoSuchProcess):
                self.rng.choice(children(self.server)).kill()
            if k % 10 == 9:
                log.info("%d of %d kills", k + 1, kills)


def children(server: Server) -> list[psutil.Process]:
    """The processes that engines run in."""
    found = psutil.Process(server.process.pid).children()
    return [child for child in found if "teola.runtime.hosts.child" in _command(child)]


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


async def shooting(server: Server, kills: int, seed: int) -> dict[str, Any]:
    """Kill `kills` processes; what became of five times as many queries."""
    rng = random.Random(seed)
    async with httpx.AsyncClient(timeout=180) as client:
        field = Range(server, client, rng)
        await field.learn()
        left = [rng.choice(list(field.right)) for _ in range(QUERIES_A_KILL * kills)]
        await asyncio.gather(
            field.shoot(kills), *(field.one_after_another(left) for _ in range(AT_ONCE))
        )
        await free(server, client)

        await until(field.whole, "all instances are back", RETURN_S)
    return {
        "kills": kills,
        "queries": field.done,
        "states": dict(field.states),
        "lost": field.lost,
        "wrong": field.wrong,
        "failed_tries": field.failed_tries,
        "processes": len(children(server)),
    }
