"""Teola: the same chain and fan-out through `App.arun`, the optimiser, and the simulator.

The chain and the fan-out go through everything a query goes through: input checks, the plan's
cache, the thread of the runtime, queues, batching policy, trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from experiments.overhead.case import (
    NODES,
    Case,
    Footprint,
    Gate,
    milliseconds,
    per_second,
    several,
)
from teola import Aggregate, App, EngineConfig, Runtime, component
from teola.graph import Graph, Op, Primitive, Ref, ToolParams
from teola.profile import Cost, EngineProfile, Profile, paper
from teola.runtime.optimiser import Optimiser
from teola.runtime.python_engine import PythonEngine
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from teola.workflow.component import Template

CHUNKS = 48
SIM_CHAINS = 40


def prepare() -> list[Case | Footprint]:
    runtime = Runtime()
    chain, fanout = _chain(runtime), _fanout(runtime)
    return [
        *_cases("teola_chain", chain, NODES),
        *_cases("teola_fanout", fanout, [1] * NODES),
        Footprint("teola_query_kib", _waiting, lambda result: bool(result["value"] == NODES)),
        Case("optimise_cold_ms", _optimise_cold, milliseconds),
        Case("optimise_cached_ms", _optimise_cached(), milliseconds),
        Case("sim_primitives_per_s", _simulate, per_second(SIM_CHAINS * NODES)),
    ]


def _cases(key: str, app: App, expected: Any) -> list[Case]:
    (name,) = app.inputs
    return several(key, lambda: app.arun({name: 0}), lambda result: result["value"] == expected)


def _waiting(queries: int, gate: Gate) -> Callable[[], Coroutine[Any, Any, Any]]:
    """As many functions wait at once as there are queries."""

    async def wait(value: int) -> int:
        await gate.wait()
        return value + 1

    python = EngineConfig(PythonEngine, {"concurrency": queries})
    chain = _chain(Runtime({"python": python}, max_queries=queries), wait)
    return lambda: chain.arun({"v0": 0})


async def add_one(value: int) -> int:
    return value + 1


async def contribute_one(value: int) -> int:
    return 1


def _chain(runtime: Runtime, first: Callable[..., Any] = add_one) -> App:
    nodes = [
        component(function, name=f"n{i}", inputs={"value": f"v{i}"}, outputs=[f"v{i + 1}"])
        for i, function in enumerate([first, *[add_one] * (NODES - 1)])
    ]
    template = Template.beside(nodes[0])
    for node in nodes[1:]:
        template = template >> node
    outputs = {"value": f"v{NODES}"}
    return App("chain", template, inputs={"v0": "any"}, outputs=outputs, runtime=runtime)


def _fanout(runtime: Runtime) -> App:
    nodes = [component(contribute_one, name=f"n{i}", outputs=[f"v{i}"]) for i in range(NODES)]
    gather = Aggregate([f"v{i}" for i in range(NODES)], output="all")
    return App(
        "fanout",
        nodes >> gather,
        inputs={"value": "any"},
        outputs={"value": "all"},
        runtime=runtime,
    )


def _advanced_rag() -> Optimiser:
    from teola_apps.advanced_rag import app

    return Optimiser(app.builder, paper("13b"))


async def _optimise_cold() -> float:
    """Build, optimise and compile advanced RAG over 48 chunks, with nothing cached."""
    optimiser = _advanced_rag()
    optimiser.plan({}, {"chunks": 1}, ())  # what is worked out once per application
    start = time.perf_counter()
    plan = optimiser.plan({}, {"chunks": CHUNKS})
    seconds = time.perf_counter() - start
    if len(plan) < 20:
        raise AssertionError("advanced RAG lost its primitives")
    return seconds


def _optimise_cached() -> Any:
    """The plan for another document of the same number of stages."""
    optimiser = _advanced_rag()
    first = optimiser.plan({}, {"chunks": CHUNKS})

    async def once() -> float:
        start = time.perf_counter()
        plan = optimiser.plan({}, {"chunks": CHUNKS + 5})
        seconds = time.perf_counter() - start
        if plan is not first:
            raise AssertionError("a new document missed the cache")
        return seconds

    return once


async def _simulate() -> float:
    """Chains of trivial primitives on one simulated engine, through the same core."""
    primitives = [
        Primitive(
            id=f"n{i}",
            op=Op.TOOL_CALL,
            component=f"n{i}",
            engine="tool",
            inputs=(("value", Ref("query", "v") if i == 0 else Ref(f"n{i - 1}", "out")),),
            outputs=("out",),
            params=ToolParams(add_one),
        )
        for i in range(NODES)
    ]
    graph = Graph("chain", primitives, {"v": Ref(f"n{NODES - 1}", "out")}, ("v",))
    plan = Plan(graph)
    engine = EngineProfile(costs={Op.TOOL_CALL: Cost(base_s=0.01)}, max_batch=8, max_sequences=8)
    sim = Sim(Profile("trivial", {"tool": engine}))
    start = time.perf_counter()
    for i in range(SIM_CHAINS):
        sim.submit(plan, {"v": Tokens(1)}, at=i * 0.01)
    results = sim.run()
    seconds = time.perf_counter() - start
    if len(results) != SIM_CHAINS:
        raise AssertionError("the simulator lost queries")
    return seconds
