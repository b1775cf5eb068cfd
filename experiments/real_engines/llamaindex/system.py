"""LlamaIndex by its Workflow: `matched` one step after another, `expert` whatever can beside it."""

from __future__ import annotations

from typing import Any

from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step

from experiments.real_engines.calls import Engines
from experiments.real_engines.recording import Log
from experiments.real_engines.steps import Steps, System
from experiments.real_engines.workload import NAIVE_TOP_K, Query

STYLES = ("default", "matched", "expert")
TIMEOUT_S = 600.0


class Indexed(Event):
    """The document is stored."""


class Expanded(Event):
    """Rewritings."""

    queries: list[str]


class Embedded(Event):
    """Vectors to search for: lists, because events are compared with one another."""

    vectors: list[list[float]]


class Vector(Event):
    """One of them."""

    vector: list[float]


class Found(Event):
    """Hits of all searches (matched), or of one (expert)."""

    hits: Any


class Ranked(Event):
    """The passages to answer from."""

    hits: Any


class Passage(Event):
    """One of them, and its place."""

    number: int
    hit: Any


class Draft(Event):
    """The answer from one passage, and its place."""

    number: int
    text: str


class _Base(Workflow):
    """A workflow for one query."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(timeout=TIMEOUT_S)
        self.steps = steps


class RefineMatched(_Base):
    """Advanced and chat RAG, step by step."""

    @step
    async def index(self, event: StartEvent) -> Indexed:
        await self.steps.index()
        return Indexed()

    @step
    async def expand(self, event: Indexed) -> Expanded:
        return Expanded(queries=await self.steps.expand())

    @step
    async def embed(self, event: Expanded) -> Embedded:
        return Embedded(vectors=(await self.steps.embed(event.queries)).tolist())

    @step
    async def search(self, event: Embedded) -> Found:
        return Found(hits=[await self.steps.search(vector) for vector in event.vectors])

    @step
    async def rerank(self, event: Found) -> Ranked:
        return Ranked(hits=await self.steps.rerank(event.hits))

    @step
    async def refine(self, event: Ranked) -> StopEvent:
        return StopEvent(result=await self.steps.refine_all(event.hits))


class RefineExpert(_Base):
    """The same with indexing beside the expansion, and searches side by side."""

    @step
    async def index(self, event: StartEvent) -> Indexed:
        await self.steps.index()
        return Indexed()

    @step
    async def expand(self, event: StartEvent) -> Embedded:
        vectors = await self.steps.embed(await self.steps.expand())
        return Embedded(vectors=vectors.tolist())

    @step
    async def fan_out(self, context: Context, event: Indexed | Embedded) -> Vector | None:
        both = context.collect_events(event, [Indexed, Embedded])
        if both is not None:
            await context.store.set("searches", len(both[1].vectors))
            for vector in both[1].vectors:
                context.send_event(Vector(vector=vector))
        return None

    @step(num_workers=4)
    async def search(self, event: Vector) -> Found:
        return Found(hits=await self.steps.search(event.vector))

    @step
    async def rerank(self, context: Context, event: Found) -> Ranked | None:
        searches = await context.store.get("searches")
        found = context.collect_events(event, [Found] * searches)
        if found is None:
            return None
        return Ranked(hits=await self.steps.rerank([one.hits for one in found]))

    @step
    async def refine(self, event: Ranked) -> StopEvent:
        return StopEvent(result=await self.steps.refine_all(event.hits))


class TreeMatched(_Base):
    """Naive RAG, step by step."""

    @step
    async def index(self, event: StartEvent) -> Indexed:
        await self.steps.index()
        return Indexed()

    @step
    async def retrieve(self, event: Indexed) -> Ranked:
        vectors = await self.steps.embed([self.steps.query.question])
        return Ranked(hits=await self.steps.search(vectors[0]))

    @step
    async def summarise(self, event: Ranked) -> StopEvent:
        drafts = [await self.steps.leaf(hit) for hit in event.hits]
        return StopEvent(result=await self.steps.merge(drafts))


class TreeExpert(_Base):
    """The same with the leaves side by side, and the short embedding before the long one."""

    @step
    async def retrieve(self, context: Context, event: StartEvent) -> Passage | None:
        vectors = await self.steps.embed([self.steps.query.question])
        await self.steps.index()
        hits = await self.steps.search(vectors[0])
        for number, hit in enumerate(hits):
            context.send_event(Passage(number=number, hit=hit))
        return None

    @step(num_workers=4)
    async def leaf(self, event: Passage) -> Draft:
        return Draft(number=event.number, text=await self.steps.leaf(event.hit))

    @step
    async def merge(self, context: Context, event: Draft) -> StopEvent | None:
        drafts = context.collect_events(event, [Draft] * NAIVE_TOP_K)
        if drafts is None:
            return None
        ordered = sorted(drafts, key=lambda draft: draft.number)
        return StopEvent(result=await self.steps.merge([draft.text for draft in ordered]))


WORKFLOWS: dict[tuple[str, bool], type[_Base]] = {
    ("matched", False): RefineMatched,
    ("matched", True): TreeMatched,
    ("expert", False): RefineExpert,
    ("expert", True): TreeExpert,
}


class LlamaIndexSystem:
    """The matched and the expert variant."""

    name = "llamaindex"

    def __init__(self, engines: Engines, style: str) -> None:
        self.style, self._engines = style, engines
        self.table = f"llamaindex_{style}"

    async def answer(self, query: Query, log: Log) -> str:
        workflow = WORKFLOWS[self.style, query.tree](Steps(self._engines, self.table, query, log))
        return str(await workflow.run())


def build(engines: Engines, style: str) -> System:
    if style == "default":
        from experiments.real_engines.llamaindex.default import LlamaIndexDefault

        return LlamaIndexDefault(engines)
    return LlamaIndexSystem(engines, style)
