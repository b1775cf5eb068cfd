"""LangGraph: a chain and a fan-out of trivial async nodes, compiled once, run with `ainvoke`."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from experiments.overhead.case import NODES, Case, per_node_us, timed

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


def prepare() -> list[Case]:
    chain, fanout = _chain(), _fanout()
    return [
        _case("langgraph_chain_us", chain),
        _case("langgraph_fanout_us", fanout),
    ]


def _case(key: str, graph: Any) -> Case:
    run = timed(lambda: graph.ainvoke({"value": 0}, CONFIG), lambda state: state["value"] == NODES)
    return Case(key, run, per_node_us)


def _chain() -> Any:
    builder = StateGraph(ChainState)
    names = [f"n{i}" for i in range(NODES)]
    for name in names:
        builder.add_node(name, add_one)
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
