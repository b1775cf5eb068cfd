"""Which runs the experiment is made of.

burst      3 traces x 2 clusters x 2 rates above what the instances sustain; what drains how
steady     rates that they sustain, each trace five times over: here the tuner has its windows
change     a steady run whose rate rises in the middle, which the tuner has to notice
oracle     policies that are told the true length of each answer
tenants    two tenants of equal rates, of whom one wants answers sooner
hopeless   the same, but what one of them wants nobody can give
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiments.common.command import Options
from experiments.hexgen.clusters import BUDGET, CLUSTERS
from experiments.hexgen.policies import OURS, POLICIES, SWEEP, TUNED, WB_PQ, Compared

TRACES: Final = ("trace1", "trace2", "trace3")
BURSTS: Final = (0.5, 1.0)
STEADY: Final = (0.10, 0.12, 0.14)
CHANGE: Final = (0.08, 0.14)
"""Rates before and after the middle of the run in which the tuner has to notice a change."""
TIMES_OVER: Final = 5
"""So often a steady run repeats its trace."""
SCALE: Final = 5.0
"""The objective, in bases."""
TENANTS: Final[Mapping[str, Mapping[str, float]]] = {
    "tenants": {"soon": 3.0, "late": 10.0},
    "hopeless": {"never": 0.5, "late": 10.0},
}
"""Objectives of the two tenants, in bases, by the kind of the run."""
OWN, SAME = "own", "same"
KINDS: Final = ("burst", "steady", "change", "oracle", "tenants", "hopeless")
REPEATED: Final = frozenset({"steady", "change"})
SEEDS_OF_FEW: Final = 2
"""So many at most of all kinds but bursts."""


@dataclass(frozen=True)
class Case:
    """One run. rate: queries a second; of a change, the second one. kind: see the module. budget:
    prompt tokens of a step. sample: what the tuner replays."""

    trace: str
    cluster: str
    rate: float
    seed: int
    policy: Compared
    kind: str = "burst"
    objective: str = OWN
    budget: int = BUDGET
    sample: str = "resampled"

    @property
    def times_over(self) -> int:
        return TIMES_OVER if self.kind in REPEATED else 1


NOT_STEADY: Final = frozenset({"edf", "sjf", "least_slack", "paced_fcfs", "work_edf"})
QUICK_LEFT_OUT: Final = frozenset(SWEEP) - {SWEEP[0]}
OF_CHANGE: Final = (TUNED, SWEEP[0], WB_PQ)
ORACLES: Final = (
    Compared("wb_pq_oracle", "urgency_oracle", "balanced_oracle", {}, {"alpha": 0.2}),
    Compared("ours_oracle", "paced_oracle", "paced_oracle"),
)
_BALANCED: Final = {"alpha": 0.2}
_FAIR: Final = {"inner": "urgency", "by": "tenant"}
_DROPS: Final = {"drop_hopeless": True}
OF_TENANTS: Final = {
    "tenants": (
        POLICIES[WB_PQ],
        POLICIES[OURS],
        Compared("fair_urgency", "fair", "workload_balanced", _FAIR, _BALANCED),
    ),
    "hopeless": (
        POLICIES[WB_PQ],
        Compared("wb_pq_drops", "urgency", "workload_balanced", _DROPS, _BALANCED),
        POLICIES[OURS],
    ),
}


def cases_of(options: Options) -> list[Case]:
    """All runs, by seeds, so that a run that is cut off has whole seeds behind it."""
    given = options.given
    common = {name: getattr(given, name) for name in ("objective", "budget", "sample")}
    kinds = given.only or KINDS
    seeds = range(options.seed, options.seed + options.seeds)
    return [
        Case(trace, cluster, rate, seed, policy, kind, **common)
        for at, seed in enumerate(seeds)
        for kind in KINDS
        if kind in kinds and (kind == "burst" or at < _seeds(kind, options))
        for trace, cluster, rate in _places(kind, options.quick)
        for policy in _compared(kind, options.quick, given.policies)
    ]


def _seeds(kind: str, options: Options) -> int:
    return 1 if kind == "change" or options.quick else SEEDS_OF_FEW


def _places(kind: str, quick: bool) -> Iterator[tuple[str, str, float]]:
    """Traces, clusters and rates of a kind of runs."""
    rates: Sequence[float] = BURSTS[-1:]
    if kind == "burst":
        rates = BURSTS[1:] if quick else BURSTS
    elif kind == "steady":
        rates = STEADY[1:2] if quick else STEADY
    elif kind == "change":
        rates = CHANGE[1:]
    places = [(trace, cluster) for trace in TRACES for cluster in CLUSTERS]
    if kind == "change" or (quick and kind == "steady"):
        places = places[-1:]
    for trace, cluster in places:
        for rate in rates:
            yield trace, cluster, rate


def _compared(kind: str, quick: bool, wanted: Sequence[str] | None) -> list[Compared]:
    """Policies of a kind of runs. wanted: those of bursts, steady runs and changes."""
    if kind == "oracle":
        return [*ORACLES, POLICIES[WB_PQ], POLICIES[OURS]]
    if kind in OF_TENANTS:
        return [*OF_TENANTS[kind]]
    names: Sequence[str] = OF_CHANGE if kind == "change" else [*POLICIES]
    left_out = (NOT_STEADY if kind == "steady" else frozenset()) | (
        QUICK_LEFT_OUT if quick and not wanted else frozenset()
    )
    return [
        POLICIES[name] for name in names if name not in left_out and (not wanted or name in wanted)
    ]


def about(options: Options) -> dict[str, Any]:
    """What was run, and by what options: `settings` of the report."""
    given = options.given
    return {
        "quick": options.quick,
        "only": [*given.only] if given.only else [],
        "policies": [*given.policies] if given.policies else [],
        "seed": options.seed,
        "seeds": options.seeds,
        "objective": given.objective,
        "budget": given.budget,
        "sample": given.sample,
    }


def told_options(settings: Mapping[str, Any]) -> list[str]:
    """Those options of the command that are not as they are by themselves."""
    found = []
    for name, usual in (("objective", OWN), ("budget", BUDGET), ("sample", "resampled")):
        if settings[name] != usual:
            found.append(f"--{name} {settings[name]}")
    if settings["seeds"] != (2 if settings["quick"] else 5):
        found.append(f"--seeds {settings['seeds']}")
    for name in ("only", "policies"):
        if settings[name]:
            found.append(f"--{name} {','.join(settings[name])}")
    return found
