"""LangGraph: a StateGraph a query runs through with `ainvoke`.

`matched` is a chain of nodes, with the leaves of the tree as a map over `Send`, which is how its
documentation maps and which runs them in one superstep. `expert` puts indexing and expansion into
the same superstep, as single nodes, so that neither waits for a part of the other, and searches
side by side.
"""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from experiments.real_engines.calls import Engines
from experiments.real_engines.recording import Log
from experiments.real_engines.steps import Steps, System
from experiments.real_engines.workload import Query

STYLES = ("default", "matched", "expert")


class State(TypedDict, total=False):
    """What nodes hand on; `steps` makes the calls of this query."""

    steps: Steps
    queries: list[str]
    vectors: Any
    found: Any
    hits: Any
    number: int
    hit: Any
    drafts: Annotated[list[tuple[int, str]], operator.add]
    answer: str


async def index(state: State) -> State:
    await state["steps"].index()
    return {}


async def expand(state: State) -> State:
    return {"queries": await state["steps"].expand()}


async def embed(state: State) -> State:
    return {"vectors": await state["steps"].embed(state["queries"])}


async def expand_and_embed(state: State) -> State:
    steps = state["steps"]
    return {"vectors": await steps.embed(await steps.expand())}


async def embed_question(state: State) -> State:
    steps = state["steps"]
    return {"vectors": await steps.embed([steps.query.question])}


async def search(state: State) -> State:
    return {"found": [await state["steps"].search(vector) for vector in state["vectors"]]}


async def search_at_once(state: State) -> State:
    return {"found": await asyncio.gather(*map(state["steps"].search, state["vectors"]))}


async def rerank(state: State) -> State:
    return {"hits": await state["steps"].rerank(state["found"])}


async def refine(state: State) -> State:
    return {"answer": await state["steps"].refine_all(state["hits"])}


async def leaf(state: State) -> State:
    return {"drafts": [(state["number"], await state["steps"].leaf(state["hit"]))]}


async def merge(state: State) -> State:
    drafts = [text for _, text in sorted(state["drafts"])]
    return {"answer": await state["steps"].merge(drafts)}


def leaves(state: State) -> list[Send]:
    return [
        Send("leaf", {"steps": state["steps"], "number": i, "hit": hit})
        for i, hit in enumerate(state["found"][0])
    ]


class LangGraphSystem:
    """The matched and the expert variant."""

    name = "langgraph"

    def __init__(self, engines: Engines, style: str) -> None:
        self.style, self._engines = style, engines
        self.table = f"langgraph_{style}"
        self._tree = _tree(style)
        self._refine = _refine(style)

    async def answer(self, query: Query, log: Log) -> str:
        graph = self._tree if query.tree else self._refine
        state = await graph.ainvoke({"steps": Steps(self._engines, self.table, query, log)})
        return str(state["answer"])


def _refine(style: str) -> Any:
    builder = StateGraph(State)
    if style == "matched":
        builder.add_sequence([index, expand, embed, search, rerank, refine])
        builder.add_edge(START, "index")
    else:
        for node in (index, expand_and_embed, search_at_once, rerank, refine):
            builder.add_node(node.__name__, node)
        builder.add_edge(START, "index")
        builder.add_edge(START, "expand_and_embed")
        builder.add_edge(["index", "expand_and_embed"], "search_at_once")
        builder.add_edge("search_at_once", "rerank")
        builder.add_edge("rerank", "refine")
    builder.add_edge("refine", END)
    return builder.compile()


def _tree(style: str) -> Any:
    builder = StateGraph(State)
    # The expert embeds the short text first: behind the document's it would wait for all of that.
    first = [index, embed_question] if style == "matched" else [embed_question, index]
    builder.add_sequence([*first, search])
    builder.add_edge(START, first[0].__name__)
    builder.add_node("leaf", leaf)
    builder.add_node("merge", merge)
    builder.add_conditional_edges("search", leaves, ["leaf"])
    builder.add_edge("leaf", "merge")
    builder.add_edge("merge", END)
    return builder.compile()


def build(engines: Engines, style: str) -> System:
    if style == "default":
        from experiments.real_engines.langgraph.default import LangGraphDefault

        return LangGraphDefault(engines)
    return LangGraphSystem(engines, style)
