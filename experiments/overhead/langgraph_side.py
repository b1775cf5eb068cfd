"""LangGraph: a chain and a fan-out of trivial async nodes, compiled once, run with `ainvoke`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from experiments.overhead.case import NODES, Case, Footprint, Gate, several

CONFIG: Any = {"recursion_limit": 2 * NODES}
"""A chain takes a superstep a node; the limit must lie above that."""


class ChainState(TypedDict):
    """The number handed from node to node."""

    value: int


class FanOutState(TypedDict):
    """What the branches add up; a reducer, since they write in the same superstep."""

    value: Annotated[int, operator.add]


async def add_one(state: ChainState) -> ChainState:
    return {"value": state["value"] + 1}


async def contribute_one(state: FanOutState) -> FanOutState:
    return {"value": 1}


def prepare() -> list[Case | Footprint]:
    return [
        *_cases("langgraph_chain", _chain()),
        *_cases("langgraph_fanout", _fanout()),
        Footprint("langgraph_query_kib", _waiting, _right),
    ]


def _right(state: Any) -> bool:
    return bool(state["value"] == NODES)


def _cases(key: str, graph: Any) -> list[Case]:
    return several(key, lambda: graph.ainvoke({"value": 0}, CONFIG), _right)


def _waiting(queries: int, gate: Gate) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def wait(state: ChainState) -> ChainState:
        await gate.wait()
        return await add_one(state)

    graph = _chain(wait)
    return lambda: graph.ainvoke({"value": 0}, CONFIG)


def _chain(first: Callable[[ChainState], Coroutine[Any, Any, ChainState]] = add_one) -> Any:
    builder: Any = StateGraph(ChainState)
    names = [f"n{i}" for i in range(NODES)]
    for name in names:
        builder.add_node(name, add_one if name != "n0" else first)
    for upper, lower in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(upper, lower)
    return builder.compile()


def _fanout() -> Any:
    builder = StateGraph(FanOutState)
    for name in (f"n{i}" for i in range(NODES)):
        builder.add_node(name, contribute_one)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    return builder.compile()
