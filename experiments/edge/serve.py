"""A process with the servers of one system: `python -m experiments.edge.serve`.

It reads a line of JSON for each run, {"case", "seed"}, tells where its servers are, begins to count
when it is told "go", and tells what was asked of them when it is told "end".
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import replace
from math import ceil
from typing import Any, Final

from experiments.common.scripted.headers import tagged
from experiments.common.scripted.kinds import manners
from experiments.common.scripted.server import (
    Breaks,
    Fault,
    Hang,
    Refuse,
    Reply,
    Scripted,
    Seen,
)
from experiments.edge import plans
from experiments.edge.plans import CASES, FIRST, PIECES, Case, answer

SLOWER: Final = 20
FLAPS_S: Final = 3.0
AWAY_S: Final = 10.0
MINUTE_S: Final = 60.0


class Minute:
    """How much was drawn in the last minute."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._drawn: deque[tuple[float, int]] = deque()
        self._used = 0

    def left(self, now: float) -> int:
        while self._drawn and self._drawn[0][0] <= now - MINUTE_S:
            self._used -= self._drawn.popleft()[1]
        return self.most - self._used

    def draw(self, amount: int, now: float) -> None:
        self._drawn.append((now, amount))
        self._used += amount

    def opens_in(self, now: float) -> float:
        """Seconds until the oldest is a minute old."""
        return max(0.0, self._drawn[0][0] + MINUTE_S - now) if self._drawn else 0.0


class Behaves:
    """How one server of a case behaves. now: seconds after the beginning; below 0 before it."""

    def __init__(self, case: Case, seed: int, number: int, server: Scripted) -> None:
        self.case, self.number, self.server = case, number, server
        self.begun: float | None = None
        self.minute = Minute(case.requests or case.tokens or 0)
        self.drawn: dict[int, int] = {}  # id of a request -> what it drew
        self._seed = seed
        self._busy: set[int] = set()
        self._tries: dict[str, int] = {}
        self._places = asyncio.Semaphore(case.at_once or 1)
        server.rule, server.over = self.rule, self.over

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time() - self.begun if self.begun is not None else -1.0

    @property
    def bad(self) -> bool:
        case = self.case
        return case.bad == self.number and self.now >= case.bad_s

    async def rule(self, seen: Seen) -> Fault | Reply | None:
        """What is said to a request."""
        tag = tagged(seen.prompt)
        if tag is None or self.begun is None:
            return Reply()
        if (fault := await self._fault(seen, tag)) is not None:
            return fault
        call_s = plans.call_s(self.case, tag)
        if self.case.name == "one_20x_slow" and self.bad:
            call_s *= SLOWER
        each_s = call_s * (1 - FIRST) / (PIECES - 1)
        return Reply(answer(tag), first_s=call_s * FIRST, each_s=each_s)

    async def _fault(self, seen: Seen, tag: str) -> Fault | None:
        case = self.case
        if case.queues:
            await self._places.acquire()
            self._busy.add(id(seen))
        elif case.at_once is not None and self.number == 0:
            if len(self._busy) >= case.at_once:
                return Refuse("busy", 1)
            self._busy.add(id(seen))
        if case.requests or case.tokens:
            return self._budget(seen)
        if case.name == "one_refuses" and self.bad:
            return Refuse("busy", 1)
        if case.name == "one_hangs" and self.bad:
            return Hang()
        if case.name == "resets":
            self._tries[tag] = again = self._tries.get(tag, 0) + 1
            drawn = random.Random(f"{self._seed}/{self.number}/{tag}/{again}").random()
            if drawn < 0.1:
                return Breaks("reset", 0 if drawn < 0.05 else 3)
        return None

    def _budget(self, seen: Seen) -> Fault | None:
        """Of a minute: the longest that an answer may become counts until it has ended."""
        minute, now = self.minute, self.now
        most = int(seen.body.get("max_completion_tokens") or seen.body.get("max_tokens") or 16)
        amount = 1 if self.case.requests else seen.tokens + most
        name = "requests" if self.case.requests else "tokens"
        left = minute.left(now)
        fits = left >= amount
        if fits:
            minute.draw(amount, now)
            self.drawn[id(seen)] = amount
            left -= amount
        reset = ceil(minute.opens_in(now))
        limit = self.case.requests or self.case.tokens or 0
        self.server.budgets = {name: left, "reset": reset, "limit": limit}
        return None if fits else Refuse("busy", max(1, reset))

    def over(self, seen: Seen) -> None:
        """A request has ended."""
        if id(seen) in self._busy:
            self._busy.discard(id(seen))
            if self.case.queues:
                self._places.release()
        if self.case.tokens and (drawn := self.drawn.get(id(seen))) is not None:
            used = seen.tokens + seen.pieces
            self.minute.draw(used - drawn, self.now)  # what was not written is given back
            self.drawn[id(seen)] = used

    async def live(self) -> None:
        """Goes away and comes back, where the case says so."""
        case = self.case
        if case.name == "flaps" and self.number == case.bad:
            while True:
                await asyncio.sleep(FLAPS_S)
                await self.server.close()
                await asyncio.sleep(FLAPS_S)
                await self.server.open()
        if case.name == "all_down_10s":
            await asyncio.sleep(case.bad_s)
            await self.server.close()
            await asyncio.sleep(AWAY_S)
            await self.server.open()

    def log(self) -> list[list[Any]]:
        """[server, tag, when it came, status, pieces, whether the client left, what it drew]."""
        return [
            [
                self.number,
                tag,
                round(seen.began - (self.begun or 0.0), 4),
                seen.status,
                seen.pieces,
                seen.left,
                self.drawn.get(id(seen), 0),
            ]
            for seen in self.server.calls
            if (tag := tagged(seen.prompt)) is not None
        ]


MODELS: Final = ("small-a", "small-b")
KEYS: Final = ("sk-first", "sk-second")
"""Of two providers."""


def providers(case: Case, number: int) -> tuple[str, str]:
    """The name of the model and the key of a server."""
    k = number if case.name == "two_providers" else 0
    return MODELS[k], KEYS[k]


async def main() -> None:
    """Runs until its input ends."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        given = json.loads(line)
        case = CASES[given["case"]]
        async with AsyncExitStack() as stack:
            worlds = []
            for number in range(case.servers):
                model, key = providers(case, number)
                server = Scripted(replace(manners("OpenAI"), model=model), context=100_000)
                server.key, server.now = key, loop.time
                await stack.enter_async_context(server)
                worlds.append(Behaves(case, given["seed"], number, server))
            places = [
                {
                    "url": world.server.url,
                    "model": world.server.manners.model,
                    "key": world.server.key,
                }
                for world in worlds
            ]
            print(json.dumps(places), flush=True)
            gc.collect()
            gc.freeze()  # as the clients do
            await loop.run_in_executor(None, sys.stdin.readline)  # go
            for world in worlds:
                world.begun = loop.time()
            lives = [loop.create_task(world.live()) for world in worlds]
            await loop.run_in_executor(None, sys.stdin.readline)  # end
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)
            print(json.dumps([entry for world in worlds for entry in world.log()]), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
