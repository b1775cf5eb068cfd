"""Teola's client: `python -m experiments.edge.ours`.

The servers are one pool of the engine `openai` with a routing policy and nothing else configured,
but for servers that let calls wait, where `max_sequences` says how many they answer at once, for
servers of different prices, where the cheaper are preferred, and for `equal`, where the application
says that its answers may be shared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from experiments.edge import asking
from experiments.edge.plans import Case
from teola import App, Each, EngineConfig, Generate, Runtime, component

MOST_TOKENS = 100
ONE_APP = "one_app"
"""In place of a policy: the map and the chat are one application."""
IN_TURN = "fifo"
"""In place of a routing policy: this order of the queue, which heeds no deadline and no length."""
HEDGED = "hedged"
"""In place of a policy: the default one, with backup calls for so large a part of all."""
HEDGE = 0.05


@component(outputs="items", pure=True)
def lines(rows: str) -> list[str]:
    """One item a line."""
    return rows.split("\n")


class Teola:
    """Two applications on one runtime, or one."""

    def __init__(self, runtime: Runtime, case: Case, *, one_app: bool) -> None:
        generate = Generate(instruction="", context_required=False, max_tokens=MOST_TOKENS)
        self._one_app = one_app
        self._chat = App(
            "chat",
            generate,
            inputs={"question": "text"},
            outputs={"answer": "answer"},
            runtime=runtime,
            **_shares(case),
        )
        self._maps = {at_once: self._map(runtime, at_once, case) for at_once in (None, 1)}

    def _map(self, runtime: Runtime, at_once: int | None, case: Case) -> App:
        row = Generate(
            instruction="",
            inputs={"question": "row"},
            context_required=False,
            max_tokens=MOST_TOKENS,
        )
        more = {} if at_once is None else {"at_once": at_once}
        rows = Each(row, over="items", item="row", gives={"answers": "answer"}, **more)
        return App(
            "rows" if at_once is None else "rows-one-by-one",
            lines >> rows,
            inputs={"rows": "text"},
            outputs={"answers": "answers"},
            runtime=runtime,
            **_shares(case),
        )

    async def ask(self, question: str, deadline_s: float) -> str:
        if self._one_app:
            return (await self.map([question], None, deadline_s))[0]
        result = await self._chat.arun(question=question, deadline_s=deadline_s)
        return str(result["answer"])

    async def map(self, questions: list[str], at_once: int | None, deadline_s: float) -> list[str]:
        app = self._maps[at_once]
        result = await app.arun(rows="\n".join(questions), deadline_s=deadline_s)
        return [str(answer) for answer in result["answers"]]


def _shares(case: Case) -> dict[str, Any]:
    """Equal questions are answered once where the application says so."""
    return {"shares_answers": True} if case.kind == "equal" else {}


@asynccontextmanager
async def teola(case: Case, given: dict[str, Any]) -> AsyncIterator[Teola]:
    one_app, hedged = given["policy"] == ONE_APP, given["policy"] == HEDGED
    pool: list[dict[str, Any]] = [
        {"url": one["url"], "api_key": one["key"], "model": one["model"]}
        for one in given["servers"]
    ]
    policy = given["policy"]
    more: dict[str, Any] = {}
    if policy == IN_TURN:
        more["batching"] = policy
    elif hedged:
        more["hedge"] = HEDGE
    elif not one_app:
        more["routing"] = policy
    if case.prices:
        for entry, price in zip(pool, case.prices, strict=True):
            entry["price"] = {"prompt": price, "answer": price}
        prefer = {"prefer": "cheaper", "prefer_s": 0}
        more |= {"alike": "text", "routing_options": prefer}
    options = {} if case.max_sequences is None else {"max_sequences": case.max_sequences}
    config = EngineConfig("openai", options, pool=pool, **more)
    runtime = Runtime({"llm": config})
    try:
        yield Teola(runtime, case, one_app=one_app)
    finally:
        await asyncio.to_thread(runtime.close)


if __name__ == "__main__":
    asyncio.run(asking.main(teola))
