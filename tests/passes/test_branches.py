"""What may not be wanted never delays what is certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from teola import Condition, Generate
from teola.passes import optimise
from teola.profile import paper
from teola.runtime.in_flight import Query
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from teola.workflow.build import Builder
from teola.workflow.component import Component, Template
from teola.workflow.kinds import Kind
from tests.forgetful import forgetful

LONG = "Answer with care, and in the manner that was agreed upon. " * 80


class Taking(Planned):
    """Every condition takes `branch`."""

    def __init__(self, branch: str) -> None:
        super().__init__()
        self.taken = branch

    def branch(self, query: Query, i: int) -> str:
        return self.taken


def writer(name: str) -> Generate:
    instruction = f"{name}: {LONG}"
    inputs = {"context": "route"}
    return Generate(name=name, mode="simple", instruction=instruction, inputs=inputs)


def routed(depth: int = 1) -> Component | Template:
    """A short call that routes to one of two long ones, or to one of four."""
    route = Generate(
        name="route",
        mode="simple",
        instruction="Which? ",
        max_tokens=4,
        outputs={"answer": "route"},
        inputs={"context": "question"},
    )
    if depth == 1:
        return route >> Condition(len, reads=["route"], then=writer("a"), otherwise=writer("b"))
    inner = [
        Condition(len, reads=["route"], name=f"if_{a}", then=writer(a), otherwise=writer(b))
        for a, b in ("ab", "cd")
    ]
    return route >> Condition(len, reads=["route"], then=inner[0], otherwise=inner[1])


def latency(passes: Sequence[str] | None, taken: str, depth: int, policy: str) -> float:
    llm = replace(paper("13b").engines["llm"], instances=1)
    profile = forgetful(replace(paper("13b"), engines={**paper("13b").engines, "llm": llm}))
    builder = Builder("routed", routed(depth), {"question": Kind.TEXT}, {"answer": "answer"})
    graph = builder.build(builder.configure({}), {})
    made = optimise(graph, profile, passes, debug=True)
    sim = Sim(profile, outcomes=Taking(taken), batching=policy)
    sim.submit(Plan(made.e_graph, profile, made), {"question": Tokens(16)})
    (result,) = sim.run()
    assert result.outputs["answer"]
    return result.finished


@pytest.mark.parametrize("policy", ["critical_path", "topology"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("taken", ["then", "otherwise"])
def test_no_query_is_later_with_prefixes_computed_ahead(
    taken: str, depth: int, policy: str
) -> None:
    whole = latency((), taken, depth, policy)
    assert latency(None, taken, depth, policy) <= whole * 1.02
