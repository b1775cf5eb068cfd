"""Replays the recorded queries on the two clusters, under each policy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final

from rich.progress import Progress

from experiments.common import pool
from experiments.common.arrivals import arrivals
from experiments.common.command import Options, Report
from experiments.hexgen.cases import (
    CHANGE,
    OWN,
    SCALE,
    TENANTS,
    TRACES,
    Case,
    about,
    cases_of,
)
from experiments.hexgen.clusters import base_s, profile_of
from experiments.hexgen.graph import APP, STAGE, Recording, Replayed, application, prior
from experiments.hexgen.kept import keep, key_of, runs_of
from experiments.hexgen.orders import KnownLengths, registered
from experiments.hexgen.policies import SWEEP, WB_PQ
from experiments.hexgen.recorded import GROUPS, RecordedQuery, read, shuffled
from experiments.hexgen.tuning import Change, Tuning
from teola.errors import InputError
from teola.graph.ops import PREFILLS
from teola.learning import Learner
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import scopes
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.tuning.tuner import TunerOptions
from teola.schedule.events import State

CURVE: Final = tuple(range(1, 41))
"""Scales of the attainment curves."""


@dataclass
class Outcome:
    """What a run gave. ratios: latency / base of each query, in order of arrival. middle: when the
    first query of the second half came. took_s: processor seconds of the run."""

    latencies: list[float]
    bases: list[float]
    tenants: list[str]
    first: float
    middle: float
    last: float
    placed: Counter[tuple[str, int]]
    took_s: float
    changes: list[Change] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.latencies, self.bases, strict=True)]


def nearest(values: Iterable[float], percent: float) -> float:
    """A percentile by the nearest rank."""
    found = sorted(values)
    return found[max(0, ceil(percent / 100 * len(found)) - 1)]


def play(queries: Sequence[RecordedQuery], case: Case) -> Outcome:
    """One run. Raises AssertionError if a query is lost or has other lengths than recorded."""
    profile, begun = profile_of(case.cluster, case.budget), time.process_time()
    source = Random(f"hexgen/{case.trace}/{case.seed}")
    order = shuffled(queries, source, case.times_over)
    times = _arrivals(case, len(order))
    bases = [base_s(query, profile) for query in order]
    promises = TENANTS.get(case.kind, {"default": SCALE})
    names = [*promises]
    tenants = [names[k % len(names)] for k in range(len(order))]
    scales = [promises[tenant] for tenant in tenants]
    of_all = fmean(bases)
    promised = [
        scale * (base if case.objective == OWN else of_all)
        for scale, base in zip(scales, bases, strict=True)
    ]
    learner, answers, lengths = Learner(), Replayed(), KnownLengths()
    learner.recall(prior())
    policy, placed = case.policy, Counter[tuple[str, int]]()
    tuning: Tuning | None = None

    def ended(query: Query, result: SimulatedQuery) -> None:
        asked = answers.queries.pop(query.id).query.calls
        assert query.trace.prompt_tokens == sum(call.prompt for call in asked)
        assert query.trace.completion_tokens == sum(call.answer for call in asked)
        if tuning is not None:
            tuning.ended(query, result)
        for scope in scopes(query.trace):
            plan = scope.trace.plan
            assert plan is not None
            at = {sent[0]: sent[5] for sent in scope.trace.raw[0]}  # of a call that moved the last
            for i, instance in at.items():
                p = plan.primitives[i]
                if p.op in PREFILLS:
                    placed[GROUPS[STAGE[p.component]], instance] += 1

    with registered(lengths):
        sim = Sim(
            profile,
            batching={"llm": policy.batching},
            routing={"llm": policy.routing},
            policy_options={"llm": policy.batching_options},
            routing_options={"llm": policy.routing_options},
            outcomes=answers,
            learner=learner,
            declared=True,
            on_finish=ended,
        )
        lengths.answer = lambda work: answers.answer_of(sim.queries[work.run], work.primitive)
        builder = application().builder
        optimiser = Optimiser(builder, profile, learner)
        if policy.tuned:
            options = TunerOptions(sample=case.sample)  # type: ignore[arg-type]
            tuning = Tuning(sim, profile, learner, options, 0.0)
            tuning.left = len(order)

        def arrive(k: int) -> None:
            recording, id = Recording(order[k]), f"q{k}"
            answers.queries[id] = recording
            if tuning is not None:
                tuning.began(id, APP, promised[k])
            sim.submit(
                optimiser.plan({}, {}, "none"),
                recording.inputs(),
                at=sim.now,
                id=id,
                app=APP,
                tenant=tenants[k],
                finish_by_s=promised[k],
            )

        for k, at in enumerate(times):
            sim.at(at, arrive, k)
        results = sorted(sim.run(), key=lambda result: int(result.id[1:]))
    assert len(results) == len(order), "the simulator lost queries"
    wrong = [result for result in results if result.state is not State.OK]
    assert not wrong, f"{len(wrong)} simulated queries failed: {wrong[0].error!r}"
    assert sum(placed.values()) == sum(len(query.calls) for query in order), "calls are missing"
    return Outcome(
        [result.latency_s for result in results],
        bases,
        tenants,
        times[0],
        times[len(times) // 2],
        max(result.finished for result in results),
        placed,
        time.process_time() - begun,
        tuning.changes if tuning is not None else [],
    )


def _arrivals(case: Case, count: int) -> list[float]:
    if case.kind != "change":
        return arrivals(case.rate, count, seed=case.seed)
    before, after = CHANGE
    times = arrivals(1.0, count, seed=case.seed)
    half = count // 2
    slow = [at / before for at in times[:half]]
    return slow + [slow[-1] + (at - times[half - 1]) / after for at in times[half:]]


def row_of(case: Case, found: Outcome) -> Report:
    """A row of the report."""
    ratios = found.ratios
    return {
        "trace": case.trace,
        "cluster": case.cluster,
        "rate": case.rate,
        "seed": case.seed,
        "policy": case.policy.name,
        "slo95": round(nearest(ratios, 95), 4),
        "slo99": round(nearest(ratios, 99), 4),
        "p95": round(nearest(found.latencies, 95), 2),
        "mean": round(fmean(found.latencies), 2),
        "throughput": round(len(ratios) / (found.last - found.first), 5),
        "attained": round(sum(ratio <= SCALE for ratio in ratios) / len(ratios), 4),
        "queries": len(ratios),
    }


def kept(folder: Path, case: Case, file: Path) -> Report:
    """One run, which `file` keeps."""
    report = measured(folder, case)
    keep(file, case, report)
    return report


def measured(folder: Path, case: Case) -> Report:
    """One run: its row, what was tuned, which instance got which stages, and its curve."""
    found = play(read(folder / f"hexgen_{case.trace}.json"), case)
    where = {key: getattr(case, key) for key in ("trace", "cluster", "rate", "seed")}
    report: Report = {"row": row_of(case, found), "kind": case.kind, "took_s": found.took_s}
    report["tuned"] = [
        {**where, "at": round(change.at, 1), "alpha": change.alpha} for change in found.changes
    ]
    report["tuning"] = [
        {
            **where,
            "kind": case.kind,
            "at": round(change.at, 1),
            "since_middle_s": round(change.at - found.middle, 1),
            "alpha": change.alpha,
            "replay_s": round(change.replay_s, 2),
        }
        for change in found.changes
    ]
    calls = Counter[str]()
    for (stage, _), count in found.placed.items():
        calls[stage] += count
    report["stages"] = [
        {**where, "policy": case.policy.name, "stage": stage, "instance": i,
         "share": round(count / calls[stage], 4)}
        for (stage, i), count in sorted(found.placed.items())
    ]  # fmt: skip
    ratios = found.ratios
    report["curve"] = [round(sum(r <= x for r in ratios) / len(ratios), 4) for x in CURVE]
    if promises := TENANTS.get(case.kind):
        report["row"]["attained"] = {
            tenant: _attained(found, tenant, scale) for tenant, scale in promises.items()
        }
    return report


def _attained(found: Outcome, tenant: str, scale: float) -> float:
    own = [r for r, t in zip(found.ratios, found.tenants, strict=True) if t == tenant]
    return round(sum(ratio <= scale for ratio in own) / len(own), 4)


def measure(options: Options, progress: Progress) -> Report:
    """The report. Raises InputError where the recorded queries are not to be had."""
    if options.data is None:
        raise InputError(
            "the recorded queries are in no package: give --data FOLDER, or TEOLA_DATA, with "
            "hexgen_trace1.json to hexgen_trace3.json"
        )
    folder = options.data
    for trace in TRACES:
        read(folder / f"hexgen_{trace}.json")
    cases = cases_of(options)
    file: Path | None = options.given.resume
    before = runs_of(file) if file else {}
    missing = [case for case in cases if key_of(case) not in before]
    jobs: list[pool.Job[Report]] = [
        (kept, (folder, case, file)) if file else (measured, (folder, case)) for case in missing
    ]
    begun = time.perf_counter()
    new = pool.run(jobs, options.workers, progress, "runs") if jobs else []
    before |= {key_of(case): report for case, report in zip(missing, new, strict=True)}
    found = [before[key_of(case)] for case in cases]
    by_kind: dict[str, list[Report]] = {}
    for one in found:
        by_kind.setdefault(one["kind"], []).append(one)
    return {
        "rows": [row for kind in ("burst", "steady") for row in _rows(by_kind.get(kind, ()))],
        "tuned": [
            change
            for kind in ("burst", "steady")
            for one in by_kind.get(kind, ())
            for change in one["tuned"]
        ],
        "stages": [stage for one in by_kind.get("burst", ()) for stage in one["stages"]],
        "settings": {
            **about(options),
            "runs": len(found),
            "took_s": round(time.perf_counter() - begun, 1),
            "runs_took_s": round(sum(one["took_s"] for one in found), 1),
        },
        "tuning": [change for one in found for change in one["tuning"]],
        "curves": _curves(by_kind.get("burst", ())),
        "oracle_length": [one["row"] for one in by_kind.get("oracle", ())],
        "tenants": [one["row"] for one in by_kind.get("tenants", ())],
        "hopeless": [one["row"] for one in by_kind.get("hopeless", ())],
        "change": [one["row"] for one in by_kind.get("change", ())],
    }


def _rows(found: Sequence[Report]) -> list[Report]:
    """Rows of runs; where alpha was swept, one of them stands under both of its names."""
    rows = [one["row"] for one in found]
    swept = {row["policy"] for row in rows} > {*SWEEP[3:]}
    return [
        *rows,
        *({**row, "policy": SWEEP[2]} for row in rows if swept and row["policy"] == WB_PQ),
    ]


def _curves(found: Sequence[Report]) -> Mapping[str, list[float]]:
    """Attainment by scale, the mean over all bursts."""
    by_policy: dict[str, list[list[float]]] = {}
    for one in found:
        by_policy.setdefault(one["row"]["policy"], []).append(one["curve"])
    return {
        name: [round(fmean(column), 4) for column in zip(*curves, strict=True)]
        for name, curves in by_policy.items()
    }
