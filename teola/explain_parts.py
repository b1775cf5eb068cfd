"""What a query grew, for a terminal: many parts that are alike as one line, with the slowest and
those that failed below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from teola.runtime.observe.parts import kinds, label
from teola.runtime.observe.trace import Trace

FEW: Final = 8
"""Parts of a kind that are all told."""
SLOWEST, FAILED = 3, 3
"""Of more, those that are."""
BAR: Final = 20
"""Characters of the whole in which a part ran, at most and"""
LEAST_BAR: Final = 8
"""at least."""
TIMES: Final = len("   name  0000000  0000000   ") - len("name")
"""Characters of a line besides its name, its state and its bar."""
NONE: Final = "\u00b7"
SOME: Final = "\u2588"


class PartRow(NamedTuple):
    """A part, or all parts of a kind. state: in words."""

    name: str
    parts: Sequence[Trace]
    state: str

    def begun(self, whole: Trace) -> str:
        """Seconds since the whole began."""
        return f"{self.parts[0].admitted - whole.admitted:7.3f}"

    @property
    def ran(self) -> str:
        """Seconds; of several the median."""
        seconds = f"{median(part.latency_s for part in self.parts):.3f}"
        return f"{'~' if len(self.parts) > 1 else ''}{seconds}".rjust(7)


def grown(trace: Trace, width: int | None = None) -> list[str]:
    """Lines on the parts of a query that has ended. width: characters that a line may have."""
    rows, remainder = [*_rows(trace, 0)], ""
    if trace.more:
        failed = f", {trace.more_failed} of them failed" if trace.more_failed else ""
        remainder = f"   and {trace.more:,} more, not recorded{failed}"
    state = max((len(row.state) for row in rows), default=0)
    names = max((len(row.name) for row in rows), default=0)
    bar, name = BAR, names
    if width is not None:
        bar = max(LEAST_BAR, min(BAR, width - TIMES - state - names))
        name = max(len("part"), min(names, width - TIMES - state - bar))
    lines = [f"   {'part':{name}}  begun s    ran s  {'state':{state}}".rstrip()]
    for row in rows:
        if len(row.name) > name:  # it is not cut: it has a line of its own
            lines.append(f"   {row.name}")
        shown = row.name if len(row.name) <= name else ""
        times = f"{row.begun(trace)}  {row.ran}  {row.state:{state}}"
        lines.append(f"   {shown:{name}}  {times} {_bar(row.parts, trace, bar)}".rstrip())
    return [*lines, remainder] if remainder else lines


def _rows(trace: Trace, depth: int) -> Iterator[PartRow]:
    """Rows of the parts of `trace`, which lies `depth` deep in the whole."""
    for kind in kinds(trace):
        few = len(kind.parts) <= FEW
        if few:
            chosen: Sequence[Trace] = kind.parts
            names = [f"{kind.name}/{label(part)}".rstrip("/") for part in chosen]
        else:
            name = f"{'  ' * depth}{kind.name} \u00d7{len(kind.parts):,}"
            yield PartRow(name, kind.parts, kind.told)
            chosen = _chosen(kind.parts)
            names = [f"  /{label(part)}" for part in chosen]
        for name, part in zip(names, chosen, strict=True):
            yield PartRow("  " * depth + name, (part,), part.state)
            yield from _rows(part, depth + (1 if few else 2))


def _chosen(parts: Sequence[Trace]) -> list[Trace]:
    """The slowest parts and the first that failed, in the order in which they began."""
    slowest = sorted(parts, key=lambda part: -part.latency_s)[:SLOWEST]
    failed = [part for part in parts if part.state == "failed"][:FAILED]
    chosen = {id(part) for part in (*slowest, *failed)}
    return [part for part in parts if id(part) in chosen]


def _bar(parts: Sequence[Trace], whole: Trace, size: int) -> str:
    """A bar that shows when any of the parts ran, within the whole."""
    marks = [NONE] * size
    for part in parts:
        first, last = _cells(part, whole, size)
        marks[first:last] = SOME * (last - first)
    return "".join(marks).rstrip(NONE)


def _cells(part: Trace, whole: Trace, size: int) -> tuple[int, int]:
    """From which character of the bar to which the part ran."""
    unit = size / max(whole.latency_s, 1e-9)
    first = min(size - 1, int((part.admitted - whole.admitted) * unit))
    return first, first + max(1, min(size - first, round(part.latency_s * unit)))
