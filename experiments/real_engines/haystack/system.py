"""Haystack: a Pipeline a query runs through with `run_async`.

`matched` is one chain of components; `expert` leaves indexing and expansion unconnected, so that
they run side by side, and has a component for each search and each leaf.
"""

from __future__ import annotations

import os
from typing import Any

# Read when haystack is imported: a benchmark reports to nobody.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"

from haystack import Pipeline, component

from experiments.real_engines.calls import Engines
from experiments.real_engines.recording import Log
from experiments.real_engines.steps import Steps, System
from experiments.real_engines.workload import NAIVE_TOP_K, Query

STYLES = ("default", "matched", "expert")
SEARCHES = 3


def _only_async() -> Any:
    raise NotImplementedError("this component is run by run_async")


class _Component:
    """What the components have in common: the synchronous twin that Haystack demands."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps


@component
class Index(_Component):
    """Splits, embeds and stores the document."""

    @component.output_types(done=bool)
    def run(self, go: bool) -> dict[str, Any]:
        return dict(_only_async())

    @component.output_types(done=bool)
    async def run_async(self, go: bool) -> dict[str, Any]:
        await self.steps.index()
        return {"done": True}


@component
class Expand(_Component):
    """Vectors of rewritings of the question."""

    @component.output_types(vectors=Any)
    def run(self, go: bool) -> dict[str, Any]:
        return dict(_only_async())

    @component.output_types(vectors=Any)
    async def run_async(self, go: bool) -> dict[str, Any]:
        return {"vectors": await self.steps.embed(await self.steps.expand())}


@component
class EmbedQuestion(_Component):
    """The vector of the question."""

    @component.output_types(vectors=Any, done=bool)
    def run(self, go: bool) -> dict[str, Any]:
        return dict(_only_async())

    @component.output_types(vectors=Any, done=bool)
    async def run_async(self, go: bool) -> dict[str, Any]:
        return {"vectors": await self.steps.embed([self.steps.query.question]), "done": True}


@component
class Search(_Component):
    """Searches for all vectors, one after the other; one: only for that one."""

    def __init__(self, steps: Steps, one: int | None = None) -> None:
        self.steps = steps
        self.one = one

    @component.output_types(found=Any)
    def run(self, vectors: Any, stored: bool) -> dict[str, Any]:
        return dict(_only_async())

    @component.output_types(found=Any)
    async def run_async(self, vectors: Any, stored: bool) -> dict[str, Any]:
        chosen = vectors if self.one is None else vectors[self.one : self.one + 1]
        return {"found": [await self.steps.search(vector) for vector in chosen]}


@component
class Rerank(_Component):
    """The best of all that was found, by `searches` components."""

    def __init__(self, steps: Steps, searches: int) -> None:
        self.steps = steps
        component.set_input_types(self, **{f"found{i}": Any for i in range(searches)})

    @component.output_types(hits=Any)
    def run(self, **found: Any) -> dict[str, Any]:
        return dict(_only_async())

    @component.output_types(hits=Any)
    async def run_async(self, **found: Any) -> dict[str, Any]:
        lists = [hits for name in sorted(found) for hits in found[name]]
        return {"hits": await self.steps.rerank(lists)}


@component
class Refine(_Component):
    """All rounds."""

    @component.output_types(answer=str)
    def run(self, hits: Any) -> dict[str, Any]:
        return dict(_only_async())

    @component.output_types(answer=str)
    async def run_async(self, hits: Any) -> dict[str, Any]:
        return {"answer": await self.steps.refine_all(hits)}


@component
class Leaves(_Component):
    """Answers from the passages, one after the other; one: only from that one."""

    def __init__(self, steps: Steps, one: int | None = None) -> None:
        self.steps = steps
        self.one = one

    @component.output_types(drafts=list[str])
    def run(self, found: Any) -> dict[str, Any]:
        return dict(_only_async())

    @component.output_types(drafts=list[str])
    async def run_async(self, found: Any) -> dict[str, Any]:
        hits = found[0] if self.one is None else found[0][self.one : self.one + 1]
        return {"drafts": [await self.steps.leaf(hit) for hit in hits]}


@component
class Merge(_Component):
    """The final answer out of what `leaves` components gave."""

    def __init__(self, steps: Steps, leaves: int) -> None:
        self.steps = steps
        component.set_input_types(self, **{f"drafts{i}": list[str] for i in range(leaves)})

    @component.output_types(answer=str)
    def run(self, **drafts: Any) -> dict[str, Any]:
        return dict(_only_async())

    @component.output_types(answer=str)
    async def run_async(self, **drafts: Any) -> dict[str, Any]:
        texts = [text for name in sorted(drafts) for text in drafts[name]]
        return {"answer": await self.steps.merge(texts)}


class HaystackSystem:
    """The matched and the expert variant; a pipeline is built for each query."""

    name = "haystack"

    def __init__(self, engines: Engines, style: str) -> None:
        self.style, self._engines = style, engines
        self.table = f"haystack_{style}"

    async def answer(self, query: Query, log: Log) -> str:
        steps = Steps(self._engines, self.table, query, log)
        expert = self.style == "expert"
        build = _tree if query.tree else _refine
        pipeline, first = build(steps, expert)
        found = await pipeline.run_async({name: {"go": True} for name in first})
        return str(found["merge" if query.tree else "refine"]["answer"])


def _refine(steps: Steps, expert: bool) -> tuple[Pipeline, list[str]]:
    pipeline = Pipeline()
    searches = SEARCHES if expert else 1
    pipeline.add_component("index", Index(steps))
    pipeline.add_component("expand", Expand(steps))
    pipeline.add_component("rerank", Rerank(steps, searches))
    pipeline.add_component("refine", Refine(steps))
    if not expert:
        pipeline.connect("index.done", "expand.go")
    for i in range(searches):
        pipeline.add_component(f"search{i}", Search(steps, i if expert else None))
        pipeline.connect("expand.vectors", f"search{i}.vectors")
        pipeline.connect("index.done", f"search{i}.stored")
        pipeline.connect(f"search{i}.found", f"rerank.found{i}")
    pipeline.connect("rerank.hits", "refine.hits")
    return pipeline, ["index", "expand"] if expert else ["index"]


def _tree(steps: Steps, expert: bool) -> tuple[Pipeline, list[str]]:
    pipeline = Pipeline()
    leaves = NAIVE_TOP_K if expert else 1
    pipeline.add_component("index", Index(steps))
    pipeline.add_component("embed", EmbedQuestion(steps))
    pipeline.add_component("search", Search(steps))
    pipeline.add_component("merge", Merge(steps, leaves))
    # The expert embeds the short text first: behind the document's it would wait for all of that.
    first, second = ("embed", "index") if expert else ("index", "embed")
    pipeline.connect(f"{first}.done", f"{second}.go")
    pipeline.connect("embed.vectors", "search.vectors")
    pipeline.connect("index.done", "search.stored")
    for i in range(leaves):
        pipeline.add_component(f"leaf{i}", Leaves(steps, i if expert else None))
        pipeline.connect("search.found", f"leaf{i}.found")
        pipeline.connect(f"leaf{i}.drafts", f"merge.drafts{i}")
    return pipeline, [first]


def build(engines: Engines, style: str) -> System:
    if style == "default":
        from experiments.real_engines.haystack.default import HaystackDefault

        return HaystackDefault(engines)
    return HaystackSystem(engines, style)
