"""What all systems' clients share: they ask what a case's plan says and note how questions ended.

A client reads a line of JSON for each run, {"case", "seed", "servers", "policy", "count"}; says
"ready" when it could ask at once; begins when it is told "go"; and tells how it went. Standard
library only, since peers have environments of their own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from experiments.edge import plans
from experiments.edge.plans import CASES, Case, Query

Ask = Callable[[str, float], Awaitable[str]]
"""A question and its deadline in seconds -> the answer."""


class Asks(Protocol):
    """One system at its servers."""

    async def ask(self, question: str, deadline_s: float) -> str:
        """The answer to one question."""
        ...

    async def map(self, questions: list[str], at_once: int | None, deadline_s: float) -> list[str]:
        """The answers to all of them. at_once: so many at the same time."""
        ...


Opens = Callable[[Case, dict[str, Any]], AbstractAsyncContextManager[Asks]]


async def main(opens: Opens) -> None:
    """Runs until its input ends."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        given = json.loads(line)
        case = CASES[given["case"]]
        try:
            async with opens(case, given) as system:
                await asyncio.wait_for(system.ask("Are you there?", 60.0), 90.0)
                gc.collect()
                gc.freeze()  # what was imported is not looked through again while clocks run
                print(json.dumps({"ready": True}), flush=True)
                await loop.run_in_executor(None, sys.stdin.readline)  # go
                found = await _run(system, case, given)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the report says it
            found = {"failed": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(found), flush=True)


async def _run(system: Asks, case: Case, given: dict[str, Any]) -> dict[str, Any]:
    seed, count = given["seed"], given.get("count")
    if case.kind == "map":
        return await _map_beside_chat(system, case, seed)
    if case.kind == "equal":
        return await _equal(system, case, seed)
    return {"ended": await _asked(system, plans.queries(case, seed, count))}


async def _asked(system: Asks, queries: list[Query]) -> list[list[Any]]:
    """[tag, when it was due, when it ended, how, the answer] of each."""
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def one(query: Query) -> list[Any]:
        await asyncio.sleep(max(0.0, begun + query.at - loop.time()))
        how, text = await _answered(system, query)
        return [query.tag, round(query.at, 4), round(loop.time() - begun, 4), how, text]

    return await asyncio.gather(*map(one, queries))


async def _answered(system: Asks, query: Query) -> tuple[str, str]:
    try:
        async with asyncio.timeout(query.deadline_s):
            if not query.rows:
                return "ok", await system.ask(query.question, query.deadline_s)
            rows = list(map(plans.question, query.calls))
            answers = await system.map(rows, None, query.deadline_s)
            right = ["".join(plans.answer(tag)) for tag in query.calls]
            whole = [text.strip() for text in answers] == right
            return "ok", "".join(plans.answer(query.tag)) if whole else "a row is wrong"
    except TimeoutError:
        return "deadline", ""
    except Exception as error:  # noqa: BLE001 -- each system has errors of its own
        return type(error).__name__, str(error)[:200]


async def _map_beside_chat(system: Asks, case: Case, seed: int) -> dict[str, Any]:
    """The chat alone, the map alone, and both."""
    loop = asyncio.get_running_loop()

    async def chat(name: str) -> list[list[Any]]:
        asked = [
            Query(q.at, f"{name}/{q.tag}", plans.question(f"{name}/{q.tag}"), q.deadline_s)
            for q in plans.queries(case, seed)
        ]
        return await _asked(system, asked)

    async def whole(name: str) -> tuple[float, list[str]]:
        begun = loop.time()
        rows = [plans.question(f"{name}/{k}") for k in range(plans.MAP_ROWS)]
        answers = await system.map(rows, None, case.deadline_s)
        return loop.time() - begun, answers

    chat_alone = await chat("alone")
    map_alone_s, _ = await whole("rows-alone")
    beside, (map_s, rows) = await asyncio.gather(chat("beside"), whole("rows"))
    wrong = sum(text.strip() != "".join(plans.answer(f"rows/{k}")) for k, text in enumerate(rows))
    return {
        "ended": beside,
        "alone": chat_alone,
        "map_alone_s": map_alone_s,
        "map_s": map_s,
        "rows": len(rows),
        "rows_wrong": wrong,
    }


async def _equal(system: Asks, case: Case, seed: int) -> dict[str, Any]:
    """Equal questions at once, then maps of few values."""
    ended = []
    for k in range(plans.EQUAL_ROUNDS):
        tag = f"{seed}/{k}"
        same = Query(0.0, tag, plans.question(tag), case.deadline_s)
        ended += await _asked(system, [same] * plans.EQUAL_AT_ONCE)
    loop = asyncio.get_running_loop()
    for m in range(plans.EQUAL_MAPS):
        tags = [f"{seed}/map/{m}/{k % 2}" for k in range(plans.EQUAL_ROWS)]
        begun = loop.time()
        try:
            answers = await system.map([plans.question(tag) for tag in tags], 1, case.deadline_s)
            right = [text.strip() for text in answers] == ["".join(plans.answer(t)) for t in tags]
            how = "ok" if right else "wrong"
        except Exception as error:  # noqa: BLE001 -- each system has errors of its own
            how = type(error).__name__
        text = "".join(plans.answer(tags[0])) if how == "ok" else ""
        ended.append([tags[0], 0.0, round(loop.time() - begun, 4), how, text])
    return {"ended": ended}
