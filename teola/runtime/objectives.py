"""Objectives: when the answer of a query is wanted.

An objective is not the deadline: nothing is given up at it. Policies order work by it, and results,
traces and metrics say whether it was kept. It is what the query states, else what is configured for
its application, else `slo_scale` times what its primitives take one after another, by learned
times; where these are not known there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from teola.errors import InputError
from teola.plain_number import is_number
from teola.schedule.plan import Plan

SLO_SCALE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Objective:
    """by_s: seconds from a query's admission. stated: somebody said so; else it is derived from
    what such a query takes."""

    by_s: float
    stated: bool

    def met(self, latency_s: float) -> bool:
        """Whether a query that took so long has kept it."""
        return latency_s <= self.by_s

    def to_json(self, met: bool) -> dict[str, Any]:
        """What was promised, and whether it was kept."""
        return {
            "finish_by_s": round(self.by_s, 6),
            "stated": self.stated,
            "met": met,
        }


def checked_objective(value: object, deadline_s: float = inf) -> float | None:
    """`finish_by_s` as it may be. Raises InputError."""
    if value is None:
        return None
    if not is_number(value) or not 0 < value < inf:
        raise InputError(
            "finish_by_s must be a number of seconds above 0 (by when the answer is wanted), got "
            f"{value!r}; leave it out if there is no such time"
        )
    seconds = float(value)
    if seconds > deadline_s:
        raise InputError(
            f"finish_by_s ({seconds:g}) is later than deadline_s ({deadline_s:g}), at which the "
            "query is given up: give it a longer deadline_s, or want its answer earlier"
        )
    return seconds


def objective_left(
    finish_by_s: float | None, accepted: float, now: float, left_s: float
) -> float | None:
    """What is left `now` of an objective that counts from `accepted` on, as an objective from now
    on. One that is over is as good as over. left_s: until the deadline."""
    if finish_by_s is None:
        return None
    return min(max(finish_by_s - (now - accepted), 1e-3), left_s)


def checked_scale(value: object) -> float:
    """`slo_scale` as it may be. Raises InputError."""
    if not is_number(value) or not 0 < value < inf:
        raise InputError(f"slo_scale must be a number above 0, got {value!r}")
    return float(value)


@dataclass(frozen=True)
class Objectives:
    """The objectives of a runtime. by_app: seconds, by application. scale: for queries that state
    none."""

    by_app: Mapping[str, float] = field(default_factory=dict)
    scale: float = SLO_SCALE

    def __post_init__(self) -> None:
        for app, seconds in self.by_app.items():
            try:
                checked_objective(seconds)
            except InputError as error:
                raise InputError(f"objective of application {app!r}: {error}") from None
        checked_scale(self.scale)

    def of(
        self,
        stated_s: float | None,
        app: str,
        declared_s: float | None,
        plan: Plan,
        deadline_s: float = inf,
    ) -> Objective | None:
        """A query's. stated_s: by itself; declared_s: by its application's author. deadline_s: when
        it is given up. Whoever states a later objective for all queries of an application means
        those that have more time."""
        if stated_s is not None:
            return Objective(stated_s, stated=True)
        for seconds in (self.by_app.get(app), declared_s):
            if seconds is not None:
                return Objective(min(seconds, deadline_s), stated=True)
        expected_s = plan.total_s * self.scale
        return Objective(expected_s, stated=False) if expected_s > 0 else None
