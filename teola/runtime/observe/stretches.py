"""The critical path of a query that ran: who waited for whom, from its end back to its beginning.

    load ▒▒ optimise ▒ embed.1 ░░▒▒▒ search ▒ generate ░▒▒▒▒▒▒▒       ░ queued   ▒ ran

A primitive is ready when the last of those that it reads is done; then it waits in its engine's
queue, and then it runs. Going back from what ended last, each time to the one that ended last among
those it waited for, gives stretches that fill the query's time without gap or overlap: the query
would have been shorter only if one of them had been.

Time in a queue is told apart by what the instance did meanwhile: work of the same query, which is
what the query really spent that time on, or something else, which a trace of one query cannot name.

Where a span contains others (see `observe.whole`), the path goes through what is inside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from teola.graph import Op
from teola.runtime.observe.trace import NOT_RUN, Span

NONE: Final = -1
SAME_S: Final = 1e-6
"""Times this close together are one moment."""

WAIT: Final = Op.WAIT.value
MOST_BEHIND: Final = 8
"""Spans that one waited behind, as far as they are told."""

Parents = Mapping[str, Sequence[str]]
"""Primitive -> those that it waits for, as in `Graph.parents`."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the path, in seconds since admission.

    kind: `ran`; `people`, they were waited for; `behind`, ready while its instance did other work
    of this query; `queued`, ready while its instance did anything else; `between`, from the end of
    what it waited for until it was ready. span: index of its span, NONE of the last stretch where
    the query ended after everything else. blocker: of `behind`, the index of the span that the
    instance was busy with; else NONE.
    """

    kind: str
    primitive: str
    op: str
    engine: str
    start: float
    end: float
    span: int
    blocker: int = NONE


def waited_for(spans: Sequence[Span], parents: Parents) -> tuple[int, ...]:
    """For each span, the index of the one whose end it waited for (NONE: it waited for none). That
    is the last of what its primitive reads; for a further try the one that failed; for primitives
    that read nothing the steps before the graph."""
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
            and spans[i].state not in ("cancelled", "running", "queued")
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


def chain(
    spans: Sequence[Span], before: Sequence[int], *, answered: bool = True
) -> tuple[int, ...]:
    """Indices of the spans on the critical path, earliest first, those that took no time included,
    but not those that never ran (a piece that the rest of its prompt took along, for one).

    before: what `waited_for` says. answered: the query ended well, so that what was cancelled at
    its end did not hold it up.
    """
    ended = [i for i, s in enumerate(spans) if s.state != "cancelled" or not answered]
    at = max(ended, key=lambda i: (spans[i].end, spans[i].start, i), default=NONE)
    indices: list[int] = []
    while at != NONE and at not in indices:
        indices.append(at)
        at = before[at]
    return tuple(i for i in reversed(indices) if spans[i].state not in NOT_RUN)


def critical_path(
    spans: Sequence[Span],
    before: Sequence[int],
    end_s: float,
    *,
    answered: bool = True,
    within: Sequence[int] = (),
) -> list[Stretch]:
    """The path through a trace's spans, earliest stretch first; they fill 0 to `end_s`.

    before: what `waited_for` says. end_s: the query's latency, or how long it has been running.
    answered: see `chain`. within: of each span the one that contains it (none: NONE).
    """
    path: list[Stretch] = []
    entered: set[int] = set()
    until = 0.0

    def stretch(kind: str, end: float, i: int, blocker: int = NONE) -> None:
        nonlocal until
        end = max(min(end, end_s), until)
        if end > until:
            name, op, engine = "", "", ""
            if i != NONE:
                name, op, engine = spans[i].primitive, spans[i].op, spans[i].engine
            path.append(Stretch(kind, name, op, engine, until, end, i, blocker))
        until = end

    def arrive(i: int) -> None:
        """Up to where span `i` was sent. What a function does between the queries inside it is its
        own work."""
        if i in entered:
            return
        entered.add(i)
        span, around = spans[i], within[i] if within else NONE
        if around != NONE:
            arrive(around)
        while around != NONE and not spans[around].engine:
            around = within[around]
        ready = min(span.queued, span.start)
        stretch("between", ready, i) if around == NONE else stretch("ran", ready, around)
        for blocker, end in _blockers(spans, i, until):
            stretch("queued" if blocker == NONE else "behind", end, i, blocker)

    for i in chain(spans, before, answered=answered):
        arrive(i)
        stretch("people" if spans[i].op == WAIT else "ran", spans[i].end, i)
    stretch("between", end_s, NONE)
    return path


@dataclass(frozen=True, slots=True)
class Waited:
    """What a span did while it was ready and had not been sent, in seconds. own: its instance did
    other work of the query, that of the spans `behind` (the longest first, MOST_BEHIND at most).
    others: work of other queries, or nothing. limits: a rate limit held it."""

    own_s: float
    others_s: float
    limits_s: float
    behind: tuple[int, ...] = ()


def waits(spans: Sequence[Span]) -> list[Waited | None]:
    """How each span waited; None of those that did not."""
    on: dict[str, list[int]] = defaultdict(list)
    for i, span in enumerate(spans):
        on[span.engine].append(i)
    return [
        _waited(spans, i, on[span.engine])
        if span.engine and span.start > span.queued + SAME_S
        else None
        for i, span in enumerate(spans)
    ]


def _waited(spans: Sequence[Span], i: int, there: Sequence[int]) -> Waited:
    span = spans[i]
    shared: list[tuple[float, float, int]] = []
    for k in there:
        other = spans[k]
        if k != i and _occupies(other, span, span.queued):
            shared.append((max(other.start, span.queued), min(other.end, span.start), k))
    own, until = 0.0, span.queued
    for start, end, _ in sorted(shared):
        if end > until:
            own += end - max(start, until)
            until = end
    longest = sorted(shared, key=lambda one: one[0] - one[1])[:MOST_BEHIND]
    left = max(0.0, span.start - span.queued - own)
    limits = min(span.limited_s, left)
    return Waited(own, left - limits, limits, tuple(k for _, _, k in longest))


def waits_on_path(spans: Sequence[Span], path: Sequence[Stretch]) -> dict[str, Any]:
    """{"own_s", "others": {engine: seconds}, "limits_s", "people_s"}: what the path waited for."""
    own_s = sum(stretch.end - stretch.start for stretch in path if stretch.kind == "behind")
    people = sum(stretch.end - stretch.start for stretch in path if stretch.kind == "people")
    queued: dict[int, float] = defaultdict(float)
    for stretch in path:
        if stretch.kind == "queued":
            queued[stretch.span] += stretch.end - stretch.start
    limits, by_engine = 0.0, dict[str, float]()
    for i, seconds in queued.items():
        limited = min(spans[i].limited_s, seconds)
        limits += limited
        by_engine[spans[i].engine] = by_engine.get(spans[i].engine, 0.0) + seconds - limited
    return {"own_s": own_s, "others": by_engine, "limits_s": limits, "people_s": people}


def _blockers(spans: Sequence[Span], i: int, since: float) -> list[tuple[int, float]]:
    """What a span waited behind from `since` until it was sent, and until when: the index of
    another span of the query on its instance (of several the last to end), or NONE."""
    span = spans[i]
    beside = [k for k, other in enumerate(spans) if k != i and _occupies(other, span, since)]
    cuts = {span.start} | {t for k in beside for t in (spans[k].start, spans[k].end)}
    pieces: list[tuple[int, float]] = []
    for end in sorted(t for t in cuts if since < t <= span.start):
        there = [k for k in beside if spans[k].start <= since and spans[k].end >= end]
        blocker = max(there, key=lambda k: (spans[k].end, k), default=NONE)
        if pieces and pieces[-1][0] == blocker:
            pieces.pop()
        pieces.append((blocker, end))
        since = end
    return pieces


def _occupies(other: Span, span: Span, since: float) -> bool:
    """Whether `other` was on the instance of `span` while that waited; one that has not been sent
    yet waits for any."""
    there = span.engine and other.engine == span.engine
    where = span.instance < 0 or other.instance == span.instance
    ran = other.state not in ("queued", *NOT_RUN) and other.end > other.start
    return bool(there and where and ran and other.start < span.start and other.end > since)
