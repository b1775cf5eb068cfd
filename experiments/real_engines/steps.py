"""The steps of the applications as plain functions, for those who put them in an order.

Each makes the calls of one component and nothing else; which run side by side is up to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from experiments.real_engines import prompts
from experiments.real_engines.calls import Engines, Vectors, union
from experiments.real_engines.recording import Log
from experiments.real_engines.workload import (
    NAIVE_TOP_K,
    RERANK_TOP_K,
    SEARCH_TOP_K,
    Query,
)
from teola.engine import Hit


class System(Protocol):
    """One orchestrator in one style, ready to answer queries, several at once if need be."""

    name: str
    style: str

    async def answer(self, query: Query, log: Log) -> str:
        """The final answer. Raises whatever the orchestrator raises."""
        ...


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one query in the table of one system."""

    engines: Engines
    table: str
    query: Query
    log: Log = field(default_factory=Log)

    async def index(self) -> None:
        """Split, embed and store the document."""
        chunks = await self.engines.split(self.query.document)
        vectors = await self.engines.embed(chunks, self.log)
        await self.engines.store(self.table, self.query.edition, chunks, vectors, self.log)

    async def complete(self, prompt: str, **options: Any) -> str:
        """What the model says; options: of `Engines.complete`."""
        return await self.engines.complete(prompt, self.log, self.table, **options)

    async def expand(self) -> list[str]:
        """Rewritings of the question."""
        query = self.query
        text = await self.complete(
            prompts.expand(query.question, query.history),
            choice=prompts.expansion_text(query.question),
            max_tokens=prompts.EXPANSION_TOKENS,
        )
        return [line for line in text.splitlines() if line.strip()][: prompts.REWRITINGS]

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of what is searched for."""
        return await self.engines.embed(texts, self.log)

    async def search(self, vector: Any) -> list[Hit]:
        """What one vector finds; the document must be stored."""
        top_k = NAIVE_TOP_K if self.query.tree else SEARCH_TOP_K
        return await self.engines.search(self.table, self.query.edition, vector, top_k, self.log)

    async def rerank(self, found: Sequence[Sequence[Hit]]) -> list[Hit]:
        """The best of all that was found."""
        hits = union(found)
        return await self.engines.rerank(self.query.question, hits, RERANK_TOP_K, self.log)

    async def leaf(self, hit: Hit) -> str:
        """The answer from one passage."""
        prompt = prompts.answer(self.query.question, self.query.history, hit.text)
        return await self.complete(prompt)

    async def merge(self, drafts: Sequence[str]) -> str:
        """The final answer of the tree."""
        prompt = prompts.merge(self.query.question, self.query.history, drafts)
        return await self.complete(prompt, final=True)

    async def refine(self, hit: Hit, before: str | None, *, final: bool) -> str:
        """One round of refining; before: None in the first."""
        query = self.query
        if before is None:
            prompt = prompts.answer(query.question, query.history, hit.text)
        else:
            prompt = prompts.refine(query.question, query.history, hit.text, before)
        return await self.complete(prompt, final=final)

    async def refine_all(self, hits: Sequence[Hit]) -> str:
        """All rounds, one after the other, as they must be."""
        answer: str | None = None
        for hit in hits:
            answer = await self.refine(hit, answer, final=hit is hits[-1])
        return answer or ""


async def nothing() -> None:
    """A step that one of the applications does not have."""
