"""The two-level summarisation tree (paper, section 1): calls of one depth gain from one batch.

Eight passages are summed up, one call each, and one call merges the answers. A chain of modules
makes the calls one after the other. The paper gives the gain, 1.4, and no times; those of the
profile here are stated in the tests of the paper's examples (tests/golden) and give 1.42.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from teola.graph import Graph, Op, Order
from teola.profile import Cost, EngineProfile, Profile, StepTime
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from teola.workflow.build import Builder
from teola.workflow.components import Generate
from teola.workflow.kinds import Kind

LEAVES: Final = 8
LOAD: Final = 0.8
"""Under load: part of the rate at which calls in batches saturate."""
PROFILE: Final = Profile(
    "tree",
    {
        "llm": EngineProfile(
            step=StepTime.of(
                prefill=Cost(base_s=0.01, per_token_s=0.30 / 512),
                decode=Cost(base_s=0.02, per_item_s=0.02),
            ),
            max_batch=1 << 20,
            max_sequences=LEAVES,
            instances=1,
        )
    },
)
INPUTS: Final = {"question": Tokens(14), "passages": [Tokens(256)] * LEAVES}


def measure(policies: Sequence[str], queries: int, seed: int) -> list[dict[str, Any]]:
    """One tree, and trees under load: seconds with each policy, and of a chain of calls."""
    calls = _tree()
    one = {"one call after the other": _alone(one_by_one(calls), "fifo")}
    one |= {policy: _alone(calls, policy) for policy in policies}
    rate = LOAD / _each(calls, queries)
    loaded = {policy: _loaded(calls, policy, rate, queries, seed) for policy in policies}
    return [
        {"load": load, "policy": policy, "mean_s": round(seconds, 4)}
        for load, found in ((0.0, one), (LOAD, loaded))
        for policy, seconds in found.items()
    ]


def _tree() -> Graph:
    builder = Builder(
        "tree",
        Generate(mode="tree", inputs={"context": "passages"}),
        {"question": Kind.TEXT, "passages": Kind.TEXTS},
        {"answer": "answer"},
    )
    return builder.build(builder.configure({}), {"passages": LEAVES})


def one_by_one(graph: Graph) -> Graph:
    """Every call waits for the end of the one before it, as in a chain of modules."""
    before: str | None = None
    made = []
    for p in graph.primitives:
        if p.op is Op.PREFILLING and before is not None:
            p = replace(p, after=(*p.after, Order(before, "one call after the other")))
        before = p.id if p.op is Op.DECODING else before
        made.append(p)
    return Graph(graph.name, made, graph.outputs, graph.inputs)


def _alone(graph: Graph, policy: str) -> float:
    return _run(graph, policy, [0.0])[0]


def _each(graph: Graph, queries: int) -> float:
    """Seconds for each tree when there are always more."""
    return max(_run(graph, "topology", [0.0] * queries)) / queries


def _loaded(graph: Graph, policy: str, rate: float, queries: int, seed: int) -> float:
    draw, at, times = random.Random(f"{seed}/tree"), 0.0, []
    for _ in range(queries):
        at += draw.expovariate(rate)
        times.append(at)
    return sum(_run(graph, policy, times)) / queries


def _run(graph: Graph, policy: str, times: Sequence[float]) -> list[float]:
    """Latency of each of the trees that arrive at `times`."""
    sim = Sim(PROFILE, batching=policy, outcomes=Planned(answer_tokens=16))
    plan = Plan(graph, PROFILE)
    for at in times:
        sim.submit(plan, INPUTS, at=at)
    return [result.latency_s for result in sim.run()]
