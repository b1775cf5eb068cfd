"""What a policy with other options would have done to queries that came: they are replayed.

A *case* is all that this takes, as data: it goes to a process of its own as JSON. The result is a
number that is to be small: the mean latency, its 95th percentile, or the part of objectives that
were missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean
from typing import Any, Final, Literal

from teola.errors import InputError, UnknownName
from teola.profile import Profile
from teola.runtime.sim.sim import Sim, SimulatedQuery
from teola.runtime.sim.staged import StagedAnswers, StagedPlans, StagedQuery, inputs_of
from teola.runtime.tuning.grid_search import best

Minimise = Literal["mean", "p95", "missed"]
MINIMISE: Final = ("mean", "p95", "missed")


@dataclass(frozen=True)
class ReplayCase:
    """profile: engines with their pools, and habits, as they are known. batching, routing and their
    options: of engine `engine`."""

    queries: Sequence[StagedQuery]
    profile: Profile
    engine: str = "llm"
    batching: str = "critical_path"
    routing: str = "least_loaded"
    batching_options: Mapping[str, Any] = field(default_factory=dict)
    routing_options: Mapping[str, Any] = field(default_factory=dict)
    minimise: Minimise = "mean"

    def __post_init__(self) -> None:
        if self.minimise not in MINIMISE:
            raise UnknownName("figure", self.minimise, MINIMISE, "minimise")
        if not any(query.counted for query in self.queries):
            raise InputError("there is nothing to replay")


def replayed(case: ReplayCase) -> list[SimulatedQuery]:
    """All queries of a case, in the order in which they came."""
    answers, plans = StagedAnswers(), StagedPlans(case.profile)
    sim = Sim(
        case.profile,
        batching={case.engine: case.batching},
        routing={case.engine: case.routing},
        policy_options={case.engine: case.batching_options},
        routing_options={case.engine: case.routing_options},
        outcomes=answers,
    )
    first = min(query.arrival for query in case.queries)
    for k, query in enumerate(case.queries):
        id = str(k)
        answers.put(id, query)
        sim.submit(
            plans.plan(query),
            inputs_of(query),
            at=query.arrival - first,
            id=id,
            app=query.app,
            tenant=query.tenant,
            finish_by_s=query.finish_by_s,
        )
    return sorted(sim.run(), key=lambda result: int(result.id))


def figure(case: ReplayCase, results: Sequence[SimulatedQuery]) -> float:
    """What is to be small."""
    counted = [
        (query, result)
        for query, result in zip(case.queries, results, strict=True)
        if query.counted
    ]
    latencies = sorted(result.latency_s for _, result in counted)
    if case.minimise == "mean":
        return fmean(latencies)
    if case.minimise == "p95":
        return latencies[ceil(0.95 * len(latencies)) - 1]
    promised = [(q, r) for q, r in counted if q.finish_by_s is not None]
    late = sum(r.latency_s > (q.finish_by_s or 0.0) for q, r in promised)
    return late / len(promised) if promised else fmean(latencies)


def tuned(case: ReplayCase, kind: str, option: str, grid: Sequence[float]) -> float:
    """The best value of an option of the `batching` or `routing` policy."""

    def cost(value: float) -> float:
        name = "batching_options" if kind == "batching" else "routing_options"
        options = {**getattr(case, name), option: value}
        changed = {name: options}
        if case.batching == case.routing:  # a policy that is both
            changed = {"batching_options": options, "routing_options": options}
        changed_case = ReplayCase(**{**case.__dict__, **changed})
        return figure(changed_case, replayed(changed_case))

    return best(cost, grid)
