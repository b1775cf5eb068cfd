"""The critical path of a query that ran: who waited for whom, from its end back to its beginning.

    load ▒▒ optimise ▒ embed.1 ░░▒▒▒ search ▒ generate ░▒▒▒▒▒▒▒       ░ queued   ▒ ran

A primitive is ready when the last of those that it reads is done; then it waits in its engine's
queue, and then it runs. Going back from what ended last, each time to the one that ended last among
those it waited for, gives stretches that fill the query's time without gap or overlap: the query
would have been shorter only if one of them had been.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from teola.runtime.trace import Span

NONE: Final = -1
SAME_S: Final = 1e-6
"""Times this close together are one moment."""

Parents = Mapping[str, Sequence[str]]
"""Primitive -> those that it waits for, as in `Graph.parents`."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the path, in seconds since admission.

    kind: `ran`; `queued`, from being ready until it was sent to an instance; `between`, from the
    end of what it waited for until it was ready. span: index of its span, NONE of the last stretch
    where the query ended after everything else.
    """

    kind: str
    primitive: str
    op: str
    engine: str
    start: float
    end: float
    span: int


def waited_for(spans: Sequence[Span], parents: Parents) -> tuple[int, ...]:
    """Of each span the index of the one whose end it waited for, NONE if there is none.

    That is the last of what its primitive reads; for a further try the one that failed; for
    primitives that read nothing the steps before the graph.
    """
    of: dict[str, list[int]] = defaultdict(list)
    steps: list[int] = []
    for i, span in enumerate(spans):
        of[span.primitive].append(i)
        if span.primitive not in parents:
            steps.append(i)

    def last(found: Sequence[int], until: float, but: int) -> int:
        ended = [
            i
            for i in found
            if i != but
            and spans[i].end <= until + SAME_S
            and spans[i].state not in ("cancelled", "running")
        ]
        return max(ended, key=lambda i: (spans[i].end, spans[i].start, i), default=NONE)

    def before(i: int, span: Span) -> int:
        tries = [k for k in of[span.primitive] if spans[k].state == "failed" and k != i]
        failed = last([k for k in tries if spans[k].lo == span.lo], span.start, i)
        if failed != NONE:
            return failed
        if span.primitive not in parents:
            return last([k for k in steps if k < i], span.start, i)
        above = [k for parent in parents[span.primitive] for k in of.get(parent, ())]
        return last(above or steps, span.queued, i)

    return tuple(before(i, span) for i, span in enumerate(spans))


def critical_path(
    spans: Sequence[Span], parents: Parents, end_s: float, *, answered: bool = True
) -> list[Stretch]:
    """The path through a trace's spans, earliest stretch first; they fill 0 to `end_s`.

    end_s: the query's latency, or how long it has been running. answered: it ended well, so that
    what was cancelled at its end did not hold it up.
    """
    ended = [i for i, s in enumerate(spans) if s.state != "cancelled" or not answered]
    at = max(ended, key=lambda i: (spans[i].end, spans[i].start, i), default=NONE)
    before, seen = waited_for(spans, parents), set[int]()
    path: list[Stretch] = []
    until = end_s

    def stretch(kind: str, start: float, i: int) -> None:
        nonlocal until
        start = min(max(start, 0.0), until)
        if start < until:
            name, op, engine = "", "", ""
            if i != NONE:
                name, op, engine = spans[i].primitive, spans[i].op, spans[i].engine
            path.append(Stretch(kind, name, op, engine, start, until, i))
        until = start

    after = NONE
    while at != NONE and at not in seen:
        seen.add(at)
        span, source = spans[at], before[at]
        stretch("between", span.end, after)
        stretch("ran", span.start, at)
        stretch("queued", max(span.queued, spans[source].end if source != NONE else 0.0), at)
        at, after = source, at
    stretch("between", 0.0, after)
    return path[::-1]
