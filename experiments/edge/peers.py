"""The peers: `python -m experiments.edge.peers asyncio_openai|litellm`, in their environment.

`asyncio_openai`: the OpenAI SDK's client as it is shipped, with its own retries, one for each
server, in turn. `litellm`: its Router over all servers, as its documentation sets it up.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

from experiments.edge import asking
from experiments.edge.plans import Case

MOST_TOKENS = 100


class Peer:
    """A system whose questions are one call each."""

    def __init__(self, case: Case) -> None:
        self._case = case

    async def call(self, question: str) -> str:
        """The answer of one call."""
        raise NotImplementedError

    async def ask(self, question: str, deadline_s: float) -> str:
        return await self.call(question)

    async def map(self, questions: list[str], at_once: int | None, deadline_s: float) -> list[str]:
        """As one writes it by hand: a semaphore of as many places as the server has."""
        places = asyncio.Semaphore(at_once or self._case.at_once or 8)

        async def one(question: str) -> str:
            async with places:
                return await self.call(question)

        return await asyncio.gather(*map(one, questions))


class Sdk(Peer):
    """One client a server, in turn."""

    def __init__(self, case: Case, clients: list[tuple[Any, str]]) -> None:
        super().__init__(case)
        self._clients = cycle(clients)

    async def call(self, question: str) -> str:
        client, model = next(self._clients)
        done = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            max_tokens=MOST_TOKENS,
            temperature=0,
        )
        return str(done.choices[0].message.content)


@asynccontextmanager
async def sdk(case: Case, given: dict[str, Any]) -> AsyncIterator[Sdk]:
    import openai

    clients = [
        (openai.AsyncOpenAI(base_url=one["url"], api_key=one["key"]), one["model"])
        for one in given["servers"]
    ]
    try:
        yield Sdk(case, clients)
    finally:
        for client, _ in clients:
            await client.close()


class Routed(Peer):
    """LiteLLM's Router."""

    def __init__(self, case: Case, router: Any) -> None:
        super().__init__(case)
        self._router = router

    async def call(self, question: str) -> str:
        done = await self._router.acompletion(
            model="pool",
            messages=[{"role": "user", "content": question}],
            max_tokens=MOST_TOKENS,
            temperature=0,
        )
        return str(done.choices[0].message.content)


@asynccontextmanager
async def litellm(case: Case, given: dict[str, Any]) -> AsyncIterator[Routed]:
    import litellm as library

    library.suppress_debug_info = True
    servers = [
        {
            "model_name": "pool",
            "litellm_params": {
                "model": f"openai/{one['model']}",
                "api_base": one["url"],
                "api_key": one["key"],
            },
        }
        for one in given["servers"]
    ]
    router = library.Router(
        model_list=servers,
        routing_strategy="simple-shuffle",
        num_retries=2,
        allowed_fails=3,
        cooldown_time=30,
    )
    yield Routed(case, router)


if __name__ == "__main__":
    asyncio.run(asking.main({"asyncio_openai": sdk, "litellm": litellm}[sys.argv[1]]))
