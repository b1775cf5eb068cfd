"""The two-level summarisation tree (paper, section 1): calls of one depth gain from one batch.

Eight passages are summed up, one call each, and one call merges the answers. A chain of modules
makes the calls one after the other; the paper's engines take them in batches of two. The paper
gives the gain of one batch, 1.4, and no times.

It is measured with two profiles. One was chosen for this example alone, so that it shows what the
paper's figure takes: every further sequence makes a step 0.02 s longer, as much as a step takes. In
the testbed's that is 0.0002 s of 0.0246 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

from experiments.common.arrivals import arrivals
from teola.graph import Graph, Op, Order
from teola.profile import Cost, EngineProfile, Profile, StepTime, paper
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
OWN: Final = Profile(
    "0.01 + 0.30 n/512 s, a step 0.02 + 0.02 b s",
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
"""Of the example alone; n: tokens of a prompt, b: sequences that decode."""
INPUTS: Final = {"question": Tokens(14), "passages": [Tokens(256)] * LEAVES}
TOGETHER: Final = {"one call after the other": 1, "two calls at a time": 2}
"""How many calls a chain of modules has under way."""


def measure(policies: Sequence[str], llm: str, queries: int, seed: int) -> list[dict[str, Any]]:
    """One tree, and trees under load, with each profile: seconds with each policy, and of a chain
    of calls."""
    calls, found = _tree(), []
    for profile in (OWN, _testbed(llm)):
        one = {
            name: _run(profile, in_turn(calls, count), "fifo", [0.0])[0]
            for name, count in TOGETHER.items()
        }
        one |= {policy: _run(profile, calls, policy, [0.0])[0] for policy in policies}
        rate = LOAD * queries / max(_run(profile, calls, "topology", [0.0] * queries))
        times = arrivals(rate, queries, seed=seed)
        loaded = {policy: fmean(_run(profile, calls, policy, times)) for policy in policies}
        found += [
            {"profile": profile.name, "load": load, "policy": name, "mean_s": round(seconds, 4)}
            for load, some in ((0.0, one), (LOAD, loaded))
            for name, seconds in some.items()
        ]
    return found


def _testbed(llm: str) -> Profile:
    """The testbed's LLM, one instance of it, as in the example."""
    bed = paper(llm)
    engine = replace(bed.engines["llm"], instances=1, prefix_reuse=False)
    return Profile(f"the testbed's, {llm.upper()}", {"llm": engine})


def _tree() -> Graph:
    builder = Builder(
        "tree",
        Generate(mode="tree", inputs={"context": "passages"}),
        {"question": Kind.TEXT, "passages": Kind.TEXTS},
        {"answer": "answer"},
    )
    return builder.build(builder.configure({}), {"passages": LEAVES})


def in_turn(graph: Graph, together: int = 1) -> Graph:
    """Every call waits for the end of the one so many before it, and the last one for all."""
    ends: list[str] = []
    made = []
    for p in graph.primitives:
        if p.op is Op.PREFILLING and len(ends) >= together:
            whole = len(ends) // together * together
            after = ends[whole - together : whole]
            orders = (Order(end, "so many calls at a time") for end in after)
            p = replace(p, after=(*p.after, *orders))
        if p.op is Op.DECODING:
            ends.append(p.id)
        made.append(p)
    return Graph(graph.name, made, graph.outputs, graph.inputs)


def _run(profile: Profile, graph: Graph, policy: str, times: Sequence[float]) -> list[float]:
    """Latency of each of the trees that arrive at `times`."""
    sim = Sim(profile, batching=policy, outcomes=Planned(answer_tokens=16))
    plan = Plan(graph, profile)
    for at in times:
        sim.submit(plan, INPUTS, at=at)
    return [result.latency_s for result in sim.run()]
