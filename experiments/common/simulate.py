"""Running a system on a workload in the simulator, and what an experiment keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Final

from experiments.baselines.knowledge import Knows
from experiments.baselines.systems import Planner, System, batching_options, profile_of
from experiments.common import workloads
from experiments.common.arrivals import arrivals
from experiments.common.latencies import percentile
from experiments.common.testbed import Testbed
from experiments.common.workloads import Answers, Drawn
from teola.learning import Learner
from teola.runtime.in_flight import Query
from teola.runtime.sim import Sim, SimulatedQuery
from teola.schedule.events import State
from teola.workflow.build import ParameterValues

LOADS: Final = (0.5, 0.8, 0.95)
"""Under load: parts of the highest rate that is sustained."""
WARM_UP: Final = 0.1
"""Part of the queries, the first ones, that no figure counts."""
GROWS: Final = 1.1
"""Latencies of the last third of the queries, divided by those of the middle third, from which on a
load cannot be sustained."""
SUSTAINED_SEEDS: Final = 3
FINE: Final = 1.02
"""How near to one another are two rates, of which a system sustains one and not the other."""
STEP_DOWN: Final = 0.87
STEP_UP: Final = 1.1
FAR: Final = 5.0
"""How far from what was guessed a rate is looked for."""
LONG_BEFORE_S: Final = 1000.0
Watch = Callable[[Query, SimulatedQuery], None]


@dataclass(frozen=True)
class Setting:
    """What is simulated, but for the rate: seed and data folder make the queries."""

    app: str
    testbed: Testbed
    queries: int = 2000
    seed: int = 0
    data: Path | None = None
    kind: str = "poisson"
    overrides: ParameterValues | None = None

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
        return fmean(self.seconds)

    def percentile(self, percent: float) -> float:
        """Seconds; see `latencies`."""
        return percentile(self.seconds, percent)

    def thirds(self) -> tuple[float, float]:
        """Mean of the middle third of the queries, and of the last one."""
        third = max(1, len(self.seconds) // 3)
        return fmean(self.seconds[-2 * third : -third]), fmean(self.seconds[-third:])


def under_load(
    system: System, setting: Setting, rate: float, watch: Watch | None = None
) -> Latencies:
    """Queries arriving `rate` a second, after a warm-up of a tenth as many at half the rate, which
    are not counted: a service is seldom at its limit when it starts, and knows no times then."""
    warm_up = int(setting.queries * WARM_UP)
    count = setting.queries + warm_up
    times = arrivals(rate, count, kind=setting.kind, seed=setting.seed, data=setting.data)
    begins = times[warm_up]
    times = [at + min(at, begins) for at in times]
    return simulate(system, setting, setting.drawn(count), times, warm_up, watch)


def alone(system: System, setting: Setting, query: Drawn, watch: Watch | None = None) -> float:
    """Latency in seconds of one query with all engines to itself. Others like it were there before,
    as many as an engine has instances, so that whichever is free keeps what it could keep."""
    before = max(engine.instances for engine in setting.testbed.profile.engines.values())

    def last(asked: Query, result: SimulatedQuery) -> None:
        if watch is not None and asked.id == str(before):
            watch(asked, result)

    arrivals = [-LONG_BEFORE_S * (before - i) for i in range(before + 1)]
    found = simulate(system, setting, [query] * (before + 1), arrivals, before, last)
    return found.seconds[0]


def sustained(
    system: System, setting: Setting, guess: float | None = None, fine: float = FINE
) -> float:
    """The highest rate, in queries a second, at which latencies do not keep growing: see `steady`.

    Found by bisection, from below: the next rate that was tried is at most `fine` times as high.
    guess: where to begin, else where the system completes queries that are all there at once. With
    less than some hundred queries it is chance that is found.
    """
    first = rate = guess or _burst(system, setting)
    low = high = 0.0
    while not (low and high):
        if not first / FAR < rate < first * FAR:
            return rate  # so few queries that the load makes no difference
        if holds(system, setting, rate):
            low, rate = rate, rate * STEP_UP
        else:
            high, rate = rate, rate * STEP_DOWN
    while high > low * fine:
        rate = sqrt(low * high)
        if holds(system, setting, rate):
            low = rate
        else:
            high = rate
    return low


def holds(system: System, setting: Setting, rate: float) -> bool:
    """Whether the system sustains this rate, over three seeds."""
    seeds = range(setting.seed, setting.seed + SUSTAINED_SEEDS)
    return steady(under_load(system, replace(setting, seed=seed), rate) for seed in seeds)


def steady(found: Iterable[Latencies]) -> bool:
    """Whether the mean latency of the last third of the queries is at most 1.1 times that of the
    middle third, over all seeds."""
    thirds = [latencies.thirds() for latencies in found]
    return sum(last for _, last in thirds) <= GROWS * sum(middle for middle, _ in thirds)


def rounded(rate: float) -> float:
    """To four digits, as reports have it."""
    return float(f"{rate:.4g}")


def _burst(system: System, setting: Setting) -> float:
    """Queries a second when all are there at once."""
    drawn = setting.drawn(setting.queries)
    ended = simulate(system, setting, drawn, [0.0] * len(drawn), 0).ended
    return len(drawn) / max(ended)


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
    learner = Learner() if system.knows is Knows.LEARNED else None
    planner = Planner(system, app, testbed, setting.overrides, learner)
    answers = Answers(app, drawn, testbed.values)

    def ended(query: Query, result: SimulatedQuery) -> None:
        if watch is not None:
            watch(query, result)
        answers.forget(query.id)

    sim = Sim(
        profile_of(system, testbed),
        batching=system.batching,
        policy_options=batching_options(system, testbed),
        outcomes=answers,
        learner=learner,
        on_finish=ended,
    )

    def arrive(id: str, query: Drawn) -> None:
        """Plan it by what the core knows by now."""
        given = workloads.inputs(app, query, testbed.values)
        sim.submit(planner.plan(query.chunks), given, at=sim.now, id=id, app=app)

    for (id, query), at in zip(workloads.numbered(drawn), times, strict=True):
        sim.at(at, arrive, id, query)
    results = sorted(sim.run(), key=lambda result: int(result.id))
    assert len(results) == len(drawn), "the simulator lost queries"
    assert all(result.state is State.OK for result in results), "a simulated query failed"
    counted = results[warm_up:]
    return Latencies(
        [result.latency_s for result in counted], [result.finished for result in counted]
    )
