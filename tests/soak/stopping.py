"""A server is told to stop while clients of every kind are there: nobody is left without a word."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any, Final

import httpx

from tests.soak.clients import HALF_A_HEAD, Stream, chat, connect, leave, query
from tests.soak.server import Server

LONGEST_S: Final = 6.0
"""Of a query; the server is given half of that to drain."""
DRAIN_S: Final = 3.0


class Client:
    """Asks until it is refused. told: whether the server has been told to stop. ends: how each of
    its queries ended."""

    def __init__(self, server: Server, rng: random.Random, told: asyncio.Event) -> None:
        self.server, self.rng, self.told = server, rng, told
        self.ends: Counter[str] = Counter()
        self.refused = False

    async def run(self) -> None:
        """Until the server refuses or is gone."""
        while not self.refused:
            question = f"for {self.rng.uniform(0, LONGEST_S):.2f} s"
            kind = self.rng.choice(("sync", "stream", "chat"))
            ask = chat("slow", question) if kind == "chat" else query("slow", question, kind)
            late = self.told.is_set()
            try:
                stream = await connect(self.server)
            except ConnectionError:
                return
            end = await self._answer(stream, ask.to_bytes())
            if late and end == "lost":
                return  # it came while the server closed its doors
            self.ends[f"{kind}: {end}"] += 1

    async def _answer(self, stream: Stream, request: bytes) -> str:
        reader, writer = stream
        try:
            writer.write(request)
            whole = (await reader.read()).decode()
        except ConnectionError:
            return "lost"
        finally:
            writer.transport.abort()
        self.refused = " 503 " in whole.split("\r\n", 1)[0]
        return _end(whole)


def _end(answer: str) -> str:
    """How an answer ends: with a result, an error that says why, or not at all."""
    head, _, body = answer.partition("\r\n\r\n")
    if "text/event-stream" in head:
        told = [line for line in body.splitlines() if line.startswith(("data: ", "event: "))]
        last = told[-1] if told else ""
        if last == "data: [DONE]" or "event: done" in told[-2:]:
            return "ok"
        return _code(last.removeprefix("data: ")) if '"error"' in last else "lost"
    status = head.split(" ", 2)[1:2]
    return "ok" if status == ["200"] else _code(body)


def _code(body: str) -> str:
    try:
        return str(json.loads(body)["error"]["code"])
    except (ValueError, KeyError):
        return "lost"


async def stopping(server: Server, count: int, seed: int) -> dict[str, Any]:
    """SIGTERM while `count` clients ask; how their queries ended, and how the server did."""
    rng = random.Random(seed)
    told = asyncio.Event()
    clients = [Client(server, random.Random(rng.random()), told) for _ in range(count)]
    idle = await _who_only_stay(server)
    tasks = [asyncio.create_task(client.run()) for client in clients]
    await asyncio.sleep(rng.uniform(1.0, 2.0))
    told.set()
    code, seconds = await asyncio.to_thread(server.stop)
    await asyncio.gather(*tasks)
    leave(idle)
    ends = sum((client.ends for client in clients), Counter[str]())
    return {"ends": dict(ends.most_common()), "exit_code": code, "seconds": round(seconds, 2)}


async def _who_only_stay(server: Server) -> list[Stream]:
    """Connections that must not keep it: silent ones, half a head, one that never reads."""
    streams = [await connect(server) for _ in range(4)]
    streams[0][1].write(HALF_A_HEAD)
    streams.append(await connect(server, 4096))
    streams[-1][1].transport.pause_reading()  # type: ignore[attr-defined]
    streams[-1][1].write(query("flood", "go", "stream").to_bytes())
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{server.url}/healthz")).status_code == 200
    return streams
