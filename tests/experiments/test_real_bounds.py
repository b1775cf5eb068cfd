"""The lower bound of real_engines: below every measured latency, and not far below."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from experiments.baselines.systems import SYSTEMS, TOPOLOGY, System
from experiments.common.pages import DOCS
from experiments.common.simulate import Setting, alone
from experiments.common.testbed import Testbed, testbed
from experiments.common.workloads import Answers, Drawn
from experiments.real_engines.bounds import Bounds, bounds
from teola.engine import Usage
from teola.graph import Ref
from teola.graph.ops import GROUP_HEADS
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import Trace
from teola.runtime.sim.sim import SimulatedQuery
from tests.schedule.plans import call, plan

OTHERS = [system for system in SYSTEMS.values() if system.name != "teola"]
NONE: frozenset[str] = frozenset()
"""The simulated embedder and reranker have an instance each."""


def bed() -> Testbed:
    """One instance of each engine, as in the experiment."""
    profile = testbed("13b").profile
    engines = {name: replace(e, instances=1) for name, e in profile.engines.items()}
    return Testbed(replace(profile, engines=engines))


def measured(system: System, setting: Setting, query: Drawn) -> tuple[Trace, float]:
    """One query alone, as it ran."""
    traces: list[Trace] = []

    def watch(asked: Query, result: SimulatedQuery) -> None:
        """Tell the trace how long the answers were, which live engines do."""
        answers = Answers(setting.app, [query, query], setting.testbed.values)
        for i, primitive in enumerate(asked.plan.primitives):
            if primitive.op in GROUP_HEADS:
                tokens = max(delivery.at for delivery in answers.call(asked, i)[1])
                asked.trace.used(Usage(completion_tokens=tokens), i)
        traces.append(asked.trace)

    seconds = alone(system, setting, query, watch)
    return traces[-1], seconds


def test_prefillings_that_share_the_engine_share_its_time() -> None:
    """Two prompts for 2 s side by side and 10 steps of 0.1 s: 2 x 1 s of work, and one answer."""
    outputs = {name: Ref(name, "out") for name in ("a", "b")}
    made = plan(*call("a"), *call("b"), outputs=outputs)
    trace = Trace("q", "test", made, 0.0)
    for name in ("a", "b"):
        head, decoding = made.index[f"{name}.prefill"], made.index[name]
        trace.sent(head, 0, 1, 0.0, 0.0, instance=0, batch=head)
        trace.ended(head, 0, 2.0)
        trace.ended(decoding, 0, 3.0)
        trace.used(Usage(completion_tokens=11), head)
    trace.finish("ok", 3.0)
    assert bounds([trace]) == Bounds(pytest.approx(2.0), pytest.approx(3.0))


@pytest.mark.parametrize("app", ["naive-rag", "advanced-rag"])
def test_nobody_is_faster_than_the_bound_of_our_traces(app: str) -> None:
    setting = Setting(app, bed(), seed=3)
    for query in setting.drawn(6):
        trace, ours = measured(SYSTEMS["teola"], setting, query)
        found = bounds([trace], NONE)
        assert 0 < found.path_s <= found.bound_s <= ours
        assert found.bound_s > 0.6 * ours, "a bound that says nothing"
        for system in (TOPOLOGY, *OTHERS):
            assert measured(system, setting, query)[1] >= found.bound_s, system.name


def test_the_bound_of_several_queries_holds_for_each() -> None:
    setting = Setting("advanced-rag", bed(), seed=4)
    both = [measured(SYSTEMS["teola"], setting, query) for query in setting.drawn(4)]
    together = bounds([trace for trace, _ in both], NONE)
    for trace, seconds in both:
        own = bounds([trace], NONE)
        assert together.bound_s <= own.bound_s <= seconds


def test_kept_reports_have_nobody_below_the_bound() -> None:
    found = json.loads((DOCS.parent / "experiments/real_engines/report.json").read_text())
    for name in ("critical_path", "shared_model_path"):
        for row in found[name]:
            assert 0 < row["bound_s"] <= row["fastest_s"] <= row["p50_s"], row
