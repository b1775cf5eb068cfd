"""What a query grew, for a terminal: many parts that are alike as one line, with the slowest and
those that failed below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from teola.runtime.observe.parts import PartKind, kinds, label
from teola.runtime.observe.trace import Trace

FEW: Final = 8
"""Parts of a kind that are all told."""
SLOWEST, FAILED = 3, 3
"""Of more, those that are."""
LONGEST: Final = 28
BAR: Final = 20
"""Characters of a part's name, and of the whole in which it ran."""
NONE: Final = "\u00b7"
SOME: Final = "\u2588"


class PartLine(NamedTuple):
    """begun, ran: in words. bar: when within the whole."""

    name: str
    begun: str
    ran: str
    state: str
    bar: str


def grown(trace: Trace) -> list[str]:
    """Lines on the parts of a query that has ended."""
    lines = [*_lines(trace, trace, 0)]
    if trace.more:
        failed = f", {trace.more_failed} of them failed" if trace.more_failed else ""
        lines.append(PartLine(f"and {trace.more:,} more, not recorded{failed}", "", "", "", ""))
    short = [line for line in lines if line.begun]
    width = min(LONGEST, max((len(line.name) for line in short), default=0))
    state = max((len(line.state) for line in short), default=0)
    head = f"   {'part':{width}}  begun s    ran s  {'state':{state}}".rstrip()
    return [head, *(_written(line, width, state) for line in lines)]


def _written(line: PartLine, width: int, state: int) -> str:
    if not line.begun:
        return f"   {line.name}"
    name = line.name if len(line.name) <= width else f"{line.name[: width - 1]}\u2026"
    told = f"   {name:{width}}  {line.begun:>7}  {line.ran:>7}  {line.state:{state}} {line.bar}"
    return told.rstrip()


def _lines(trace: Trace, whole: Trace, depth: int) -> Iterator[PartLine]:
    """Of the parts of `trace`, which lies so deep in the whole."""
    for kind in kinds(trace):
        few = len(kind.parts) <= FEW
        if few:
            chosen: Sequence[Trace] = kind.parts
            names = [f"{kind.name}/{label(part)}".rstrip("/") for part in chosen]
        else:
            yield _summary(kind, whole, depth)
            chosen = _chosen(kind.parts)
            names = [f"  /{label(part)}" for part in chosen]
        for name, part in zip(names, chosen, strict=True):
            yield _line("  " * depth + name, part, whole)
            yield from _lines(part, whole, depth + (1 if few else 2))


def _chosen(parts: Sequence[Trace]) -> list[Trace]:
    """The slowest, and the first that failed, as they began."""
    slowest = sorted(parts, key=lambda part: -part.latency_s)[:SLOWEST]
    failed = [part for part in parts if part.state == "failed"][:FAILED]
    wanted = {id(part) for part in (*slowest, *failed)}
    return [part for part in parts if id(part) in wanted]


def _summary(kind: PartKind, whole: Trace, depth: int) -> PartLine:
    """One line for all parts of a kind: the median's time, and when any of them ran."""
    marks = [NONE] * BAR
    for part in kind.parts:
        first, last = _cells(part, whole)
        marks[first:last] = SOME * (last - first)
    return PartLine(
        f"{'  ' * depth}{kind.name} \u00d7{len(kind.parts):,}",
        f"{kind.parts[0].admitted - whole.admitted:.3f}",
        f"~{median(part.latency_s for part in kind.parts):.3f}",
        kind.told,
        "".join(marks).rstrip(NONE),
    )


def _line(name: str, part: Trace, whole: Trace) -> PartLine:
    first, last = _cells(part, whole)
    begun, ran = part.admitted - whole.admitted, part.latency_s
    bar = NONE * first + SOME * (last - first)
    return PartLine(name, f"{begun:.3f}", f"{ran:.3f}", part.state, bar)


def _cells(part: Trace, whole: Trace) -> tuple[int, int]:
    """When it ran, in characters of the whole."""
    unit = BAR / max(whole.latency_s, 1e-9)
    first = min(BAR - 1, int((part.admitted - whole.admitted) * unit))
    return first, first + max(1, min(BAR - first, round(part.latency_s * unit)))
