"""What another policy, pool, rate or objective would have done to recorded queries."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Final, Self

from teola.errors import InputError
from teola.graph import Role
from teola.habit import Habit
from teola.passes.estimate import ANSWER_TOKENS, ROLE_TOKENS
from teola.policies import batching, routing
from teola.policies.pairing import pair
from teola.policies.routing.call_seconds import call_s
from teola.profile import EngineProfile, Profile, from_json
from teola.runtime.objectives import checked_scale
from teola.runtime.sim.staged import ENGINE, UNNAMED_APP, StagedCall, StagedQuery
from teola.runtime.tuning.replay_case import ReplayCase, replayed

KINDS: Final = ("batching", "routing")
SCALES: Final = tuple(range(1, 41))
"""Points of the curve of attainment: objectives in times what a query takes alone."""


def read_pool(path: Path) -> EngineProfile:
    """The profile of an engine, out of a file with one engine or with one called `llm`. Raises
    InputError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the pool {str(path)!r}: {error}") from None
    engines = from_json(data, str(path)).engines
    profile = engines.get(ENGINE) or (next(iter(engines.values())) if len(engines) == 1 else None)
    if profile is None:
        raise InputError(f"{path}: it has several engines, and none of them is called {ENGINE!r}")
    instances = [profile.of(i) for i in range(max(profile.instances, len(profile.pool)))]
    if not all(instance.timed for instance in instances):
        raise InputError(
            f"{path}: the times of an instance are not known, so nothing can be replayed on it; "
            "measure them with `teola profile`"
        )
    return replace(profile, instances=len(instances))


@dataclass(frozen=True)
class WhatIf:
    """names, options: of the batching and the routing policy. rate: None: as recorded."""

    names: Mapping[str, str]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rate: float | None = None
    scale: float = 5.0
    seed: int = 0

    @classmethod
    def of(cls, sets: Sequence[str], rate: float | None, scale: float, seed: int) -> Self:
        """By `routing=NAME`, `routing.OPTION=VALUE` and the same of batching. Raises UnknownName,
        InputError."""
        names = {"batching": batching.DEFAULT, "routing": routing.DEFAULT}
        options: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for setting in sets:
            name, equals, value = setting.partition("=")
            kind, dot, option = name.partition(".")
            if not equals or not value or kind not in KINDS or (dot and not option):
                raise InputError(
                    f"--set {setting}: say batching=NAME, routing=NAME, or an option, such as "
                    "routing.alpha=0.2"
                )
            if dot:
                options[kind][option] = _value(value)
            else:
                names[kind] = value
        if rate is not None and not 0 < rate < 1e9:
            raise InputError(f"--rate must be a number of queries a second above 0, got {rate}")
        pair(names["batching"], options["batching"], names["routing"], options["routing"])
        return cls(names, options, rate, checked_scale(scale), seed)

    def compare(self, queries: Sequence[StagedQuery], pool: EngineProfile) -> dict[str, Any]:
        """Figures of these policies, and of those that serve by default."""
        came = [replace(query, stages=_of_engine(query)) for query in self._arriving(queries)]
        alone = [alone_s(query, pool) for query in came]
        drawn = [
            replace(query, finish_by_s=query.finish_by_s or self.scale * base)
            for query, base in zip(came, alone, strict=True)
        ]
        default = WhatIf({"batching": batching.DEFAULT, "routing": routing.DEFAULT})
        runs = [self] if self.names == default.names and not any(self.options.values()) else None
        rows = [run._row(drawn, alone, pool) for run in runs or (self, default)]
        return {"queries": len(drawn), "instances": pool.instances, "scales": SCALES, "rows": rows}

    def _arriving(self, queries: Sequence[StagedQuery]) -> list[StagedQuery]:
        if self.rate is None:
            return list(queries)
        source, at, found = Random(f"replay/{self.seed}"), 0.0, []
        for query in queries:
            at += source.expovariate(self.rate)
            found.append(replace(query, arrival=at))
        return found

    def _row(
        self, queries: Sequence[StagedQuery], alone: Sequence[float], pool: EngineProfile
    ) -> dict[str, Any]:
        options = {kind: self.options.get(kind, {}) for kind in KINDS}
        case = ReplayCase(
            queries,
            Profile("recorded", {ENGINE: pool}, habits=habits_of(queries)),
            batching=self.names["batching"],
            routing=self.names["routing"],
            batching_options=options["batching"],
            routing_options=options["routing"],
        )
        results = replayed(case)
        seconds = [result.latency_s for result in results]
        ratios = [latency / base for latency, base in zip(seconds, alone, strict=True)]
        met = [s <= (q.finish_by_s or 0) for s, q in zip(seconds, queries, strict=True)]
        first = min(query.arrival for query in queries)
        last = max(result.finished for result in results) or 1e-9
        return {
            **self.names,
            "options": {kind: dict(values) for kind, values in options.items() if values},
            "mean_s": round(fmean(seconds), 4),
            "p95_s": round(_nearest(seconds, 95), 4),
            "slo95": round(_nearest(ratios, 95), 4),
            "attained": round(fmean(met), 4),
            "throughput": round(len(queries) / last, 5),
            "first": first,
            "curve": [round(fmean(r <= scale for r in ratios), 4) for scale in SCALES],
        }


def _of_engine(query: StagedQuery) -> Any:
    """Its calls, all of one engine."""
    return tuple(tuple(call._replace(engine=ENGINE) for call in stage) for stage in query.stages)


def habits_of(queries: Iterable[StagedQuery]) -> dict[tuple[str, str], Habit]:
    """Mean lengths of calls by application and component: what a server knows of them. Without
    these every call would be as long as every other to a policy that goes by lengths."""
    by_component: dict[tuple[str, str], list[StagedCall]] = defaultdict(list)
    for query in queries:
        for call in chain(*query.stages):
            by_component[query.app or UNNAMED_APP, call.component].append(call)
    planned = ROLE_TOKENS[Role.QUESTION]
    return {
        key: Habit(
            calls=len(calls),
            prompt=fmean(call.prompt for call in calls) / planned,
            output=fmean(call.answer for call in calls) / ANSWER_TOKENS,
            output_p90=_nearest([call.answer for call in calls], 90) / ANSWER_TOKENS,
        )
        for key, calls in by_component.items()
    }


def alone_s(query: StagedQuery, pool: EngineProfile) -> float:
    """Seconds of a query that has the engine to itself, each call at its mean of the instances."""
    profiles = [pool.of(i) for i in range(pool.instances)]

    def mean(prompt: int, answer: int) -> float:
        return fmean(call_s(profile, prompt, answer) for profile in profiles)

    return sum(max(mean(c.prompt, c.answer) for c in stage) for stage in query.stages)


def _nearest(values: Sequence[float], percent: float) -> float:
    return sorted(values)[ceil(percent / 100 * len(values)) - 1]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


HEAD: Final = ("batching", "routing", "mean", "p95", "slo95", "in time", "queries/s")


def table_lines(found: Mapping[str, Any]) -> list[Sequence[str]]:
    """A line for each row, as HEAD has it."""
    lines: list[Sequence[str]] = []
    for row in found["rows"]:
        settings = ",".join(
            f"{name}={value}"
            for options in row["options"].values()
            for name, value in options.items()
        )
        lines.append(
            (
                row["batching"],
                f"{row['routing']}{f' ({settings})' if settings else ''}",
                f"{row['mean_s']:.1f} s",
                f"{row['p95_s']:.1f} s",
                f"{row['slo95']:.2f}",
                f"{100 * row['attained']:.0f} %",
                f"{row['throughput']:.3f}",
            )
        )
    return lines


def shown_table(found: Mapping[str, Any]) -> str:
    """For the terminal."""
    lines = [HEAD, *table_lines(found)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(HEAD))]
    head = f"{found['queries']:,} queries on {found['instances']} instances"
    body = (
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join((head, *body))
