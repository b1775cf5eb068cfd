"""Running a system on a workload in the simulator, and what an experiment keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from experiments.baselines.systems import Planner, System, batching_options, profile_of
from experiments.common import workloads
from experiments.common.arrivals import arrivals
from experiments.common.latencies import percentile
from experiments.common.testbed import Testbed
from experiments.common.workloads import Answers, Drawn
from teola.runtime.driver import Query
from teola.runtime.sim import Sim, SimResult
from teola.schedule.events import State
from teola.workflow.build import Overrides

WARM_UP: Final = 0.1
"""Part of the queries, the first ones, that no figure counts."""
LONG_BEFORE_S: Final = 1000.0
Watch = Callable[[Query, SimResult], None]


@dataclass(frozen=True)
class Setting:
    """What is simulated, but for the rate: seed and data folder make the queries."""

    app: str
    testbed: Testbed
    queries: int = 2000
    seed: int = 0
    data: Path | None = None
    kind: str = "poisson"
    overrides: Overrides | None = None

    def drawn(self, count: int) -> list[Drawn]:
        """The first `count` queries."""
        return workloads.draw(self.app, count, self.testbed.values, seed=self.seed, data=self.data)


@dataclass(frozen=True)
class Latencies:
    """Seconds of every counted query, in order of arrival; ended: when each one did."""

    seconds: Sequence[float]
    ended: Sequence[float]

    @property
    def mean(self) -> float:
        return sum(self.seconds) / len(self.seconds)

    def percentile(self, percent: float) -> float:
        """Seconds; see `latencies`."""
        return percentile(self.seconds, percent)


def under_load(
    system: System, setting: Setting, rate: float, watch: Watch | None = None
) -> Latencies:
    """Queries arriving `rate` a second; the first tenth warms up and is not counted."""
    warm_up = int(setting.queries * WARM_UP)
    count = setting.queries + warm_up
    times = arrivals(rate, count, kind=setting.kind, seed=setting.seed, data=setting.data)
    return simulate(system, setting, setting.drawn(count), times, warm_up, watch)


def alone(system: System, setting: Setting, query: Drawn, watch: Watch | None = None) -> float:
    """Latency in seconds of one query with all engines to itself. Another one like it was there
    before, so that what engines keep is there."""

    def second(asked: Query, result: SimResult) -> None:
        if watch is not None and asked.id == "1":
            watch(asked, result)

    return simulate(system, setting, [query, query], [-LONG_BEFORE_S, 0.0], 1, second).seconds[0]


def saturation(system: System, setting: Setting) -> float:
    """Queries a second that the system completes when there is always more to do.

    All queries are there from the start. The latency of one query alone is left out of the time
    that they take: it is how long the engines need to fill, and not what they can do.
    """
    drawn = setting.drawn(setting.queries)
    took = max(simulate(system, setting, drawn, [0.0] * len(drawn), 0).ended)
    return (len(drawn) - 1) / (took - alone(system, setting, drawn[0]))


def simulate(
    system: System,
    setting: Setting,
    drawn: Sequence[Drawn],
    times: Sequence[float],
    warm_up: int,
    watch: Watch | None = None,
) -> Latencies:
    """Run `drawn` arriving at `times`; the first `warm_up` are not counted.

    Raises AssertionError if a query is lost or does not end well.
    """
    testbed, app = setting.testbed, setting.app
    planner = Planner(system, app, testbed, setting.overrides)
    answers = Answers(app, drawn, testbed.values)

    def ended(query: Query, result: SimResult) -> None:
        if watch is not None:
            watch(query, result)
        answers.forget(query.id)

    sim = Sim(
        profile_of(system, testbed),
        batching=system.batching,
        policy_options=batching_options(system, testbed),
        outcomes=answers,
        on_finish=ended,
    )
    for (id, query), at in zip(workloads.numbered(drawn), times, strict=True):
        given = workloads.inputs(app, query, testbed.values)
        plan = planner.plan(query.chunks)
        sim.submit(plan, given, at=at, id=id, app=app)
    results = sorted(sim.run(), key=lambda result: int(result.id))
    assert len(results) == len(drawn), "the simulator lost queries"
    assert all(result.state is State.OK for result in results), "a simulated query failed"
    counted = results[warm_up:]
    return Latencies(
        [result.latency_s for result in counted], [result.finished for result in counted]
    )
