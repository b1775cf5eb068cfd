"""Parts of a query for people to look at: by what they are parts of, and alike ones together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from teola.runtime.observe.trace import Trace


@dataclass(frozen=True, slots=True)
class PartKind:
    """Parts of one query that are alike. name: such as "loop/turn", or of the application that a
    query inside runs. parts: as they began."""

    name: str
    parts: Sequence[Trace]

    @property
    def states(self) -> dict[str, int]:
        """How many ended how, or run."""
        return dict(Counter(part.state for part in self.parts))

    @property
    def told(self) -> str:
        """The same in words."""
        return ", ".join(f"{count} {state}" for state, count in self.states.items())


def kinds(trace: Trace) -> list[PartKind]:
    """The parts of a query, and the queries inside it, but not what is inside those."""
    found: dict[str, list[Trace]] = {}
    for part in trace.inner:
        found.setdefault(_name(part), []).append(part)
    return [
        PartKind(name, sorted(parts, key=lambda part: part.admitted))
        for name, parts in found.items()
    ]


def label(part: Trace) -> str:
    """What tells a part from those of its kind: its number, as a rule ("" of a query inside)."""
    return _key(part).rpartition("/")[2]


def ran_s(part: Trace, now: float) -> float:
    """For how long it has run. now: on the driver's clock."""
    return part.latency_s if part.finished is not None else max(0.0, now - part.admitted)


def parts_json(trace: Trace, now: float) -> dict[str, Any]:
    """{"kinds": [...], "more": {"parts", "failed"}}: what a query grew as JSON values; times in
    seconds since its own admission. more: parts that nothing else is known of."""
    return {
        "kinds": [_kind_json(kind, trace.admitted, now) for kind in kinds(trace)],
        "more": {"parts": trace.more, "failed": trace.more_failed},
    }


def _kind_json(kind: PartKind, zero: float, now: float) -> dict[str, Any]:
    return {
        "name": kind.name,
        "states": kind.states,
        "median_s": median(ran_s(part, now) for part in kind.parts),
        "parts": [_part_json(part, zero, now) for part in kind.parts],
    }


def _part_json(part: Trace, zero: float, now: float) -> dict[str, Any]:
    begun = part.admitted - zero
    fields: dict[str, Any] = {
        "label": label(part),
        "state": part.state,
        "start": begun,
        "end": begun + ran_s(part, now),
        "primitives": len(part.plan) if part.plan else 0,
        "tokens": part.prompt_tokens + part.completion_tokens,
    }
    if part.inner:
        fields["kinds"] = [_kind_json(kind, zero, now) for kind in kinds(part)]
    return fields


def grown_primitives(trace: Trace) -> int:
    """Primitives of all its parts, and of theirs."""
    return sum(
        (len(part.plan) if part.plan else 0) + grown_primitives(part) for part in trace.inner
    )


def _key(part: Trace) -> str:
    """What it is called among the parts of its query; "" of a query that is no part."""
    around = f"{part.parent.query_id}/" if part.parent is not None else ""
    return part.query_id.removeprefix(around) if part.query_id.startswith(around) else ""


def _name(part: Trace) -> str:
    return _key(part).rpartition("/")[0] or part.app
