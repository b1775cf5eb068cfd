"""SimResult: what a simulation of an application under load says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from textwrap import wrap
from typing import Any, Final

from teola.runtime.sim.outcome import Assumed

COLUMNS: Final = 80
GROWS: Final = 1.25
"""Latencies of the last third of the queries, divided by those of the middle third, from which on
the rate is probably more than can be sustained."""
FEWEST: Final = 30
"""Queries; the latencies of fewer do not tell whether the rate can be sustained."""
TOLD_REASONS: Final = 3


@dataclass(frozen=True, slots=True)
class SimResult:
    """How an application did under load. Times are seconds of virtual time.

    rate: queries a second that arrived; queries: how many in all. p50, p95, p99, mean: latencies; a
    query without an answer counts as infinitely long. unfinished: queries without an answer, and
    reasons: why, with how many each. instances: of each engine. busy: by engine, how much of the
    time its instances worked, from 0 to 1; a language model works whenever it has any call.
    duration_s: from the first arrival to the last end. growth: mean latency of the last third of
    the queries, divided by that of the middle third. profile: where times come from. assumed: what
    was used although nobody gave it: `generate.answer_tokens`, `question` (tokens), `documents`
    (chunks). learned: what components turned out to write or decide.
    """

    app: str
    rate: float
    queries: int
    p50: float
    p95: float
    p99: float
    mean: float
    unfinished: int
    instances: Mapping[str, int]
    busy: Mapping[str, float]
    duration_s: float
    growth: float
    profile: str
    assumed: Mapping[str, Assumed] = field(default_factory=dict)
    learned: Mapping[str, Assumed] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.app}: {self.queries} queries, {self.rate:g} a second ({self.profile})"
        figures = {"p50": self.p50, "p95": self.p95, "p99": self.p99, "mean": self.mean}
        yield "   " + ", ".join(f"{name} {_seconds(value)}" for name, value in figures.items())
        busy = sorted(self.busy.items(), key=lambda item: -item[1])
        yield from _listed("busy", [f"{n} x {self.instances[n]} {b:.0%}" for n, b in busy])
        if self.unfinished:
            yield f"   {self.unfinished} queries have no answer, and count as infinitely long"
            for reason, count in list(self.reasons.items())[:TOLD_REASONS]:
                yield from _listed(f"{count} queries", [reason])
        elif self.growth > GROWS and self.queries >= FEWEST:
            growth = f"the last third took {self.growth:.1f} times as long as the middle third"
            yield from _listed("latencies grow", [f"{growth}: it is too much for these instances"])
        for what, values in (("learned", self.learned), ("assumed", self.assumed)):
            if values:
                yield from _listed(what, [f"{name} {value}" for name, value in values.items()])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": str(self)}


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if isfinite(value) else "never"


def _listed(what: str, values: Sequence[str]) -> list[str]:
    text = f"{what}: {', '.join(values)}"
    return wrap(text, COLUMNS, initial_indent=" " * 3, subsequent_indent=" " * 6)
