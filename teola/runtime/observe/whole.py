"""All spans of a query, those of its parts and of the queries inside it among them.

    query    plan ──── agent.grow ──────────────────────── report
    parts              agent/1/...  agent/2/...                     each part is a scope

A *scope* is one graph that ran: the query itself, a part, a query inside. Its spans have its path
before their ids. The span of the primitive that began a scope *contains* it: the primitive ended
when the last scope in it had, and the first scope waited for what the primitive waited for. A later
scope waited for the one that ended, or wrote something, when it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from teola.runtime.observe.stretches import NONE, SAME_S, waited_for
from teola.runtime.observe.trace import GraphScope, Span, Trace, scopes

HANDED_OVER_S: Final = 0.002
"""A scope that begins so soon after the end of another began because of that end, although yet
another may be at work."""
NOTHING: Final[Mapping[str, Sequence[Span]]] = {}
_OPEN: Final = ("cancelled", "running", "queued")


class Whole(NamedTuple):
    """spans: by start. before: of each the index of the one that it waited for. within: of each the
    index of the one that contains it. NONE where there is none."""

    spans: list[Span]
    before: tuple[int, ...]
    within: tuple[int, ...]


def whole(
    trace: Trace, waiting: Mapping[str, Sequence[Span]] = NOTHING, now_s: float = 0.0
) -> Whole:
    """The spans of a query. waiting: what waits for an instance, by the id of the query or part,
    in seconds since that one was admitted. now_s: seconds since the query was admitted; what has
    not ended lasts until then."""
    every = scopes(trace)
    order: list[tuple[Span, int]] = []
    for k, scope in enumerate(every):
        for span in (*scope.trace.spans, *waiting.get(scope.trace.query_id, ())):
            placed = scope.placed(span)
            if trace.finished is None:
                order.append((_lasting(placed, now_s), k))
            else:
                order.append((_ended(placed, trace.latency_s), k))
    order.sort(key=lambda one: (one[0].start, one[0].end, one[0].primitive))
    return _Weaving(every, [span for span, _ in order], [k for _, k in order]).whole()


def _lasting(span: Span, now_s: float) -> Span:
    """The span in a query that runs: it has lasted until now."""
    if span.state == "queued":
        return replace(span, start=now_s, end=now_s)
    return replace(span, end=max(span.end, now_s)) if span.state == "running" else span


def _ended(span: Span, end_s: float) -> Span:
    """The span in a query that has ended; what a query inside it did a moment later does not
    count."""
    if span.state == "running":
        return replace(span, state="cancelled", end=max(span.start, end_s))
    if span.end <= end_s:
        return span
    return replace(span, start=min(span.start, end_s), end=end_s)


class _Weaving:
    """scope_of: of each span the index of its scope."""

    def __init__(self, every: list[GraphScope], spans: list[Span], scope_of: list[int]) -> None:
        self.scopes, self.spans, self.scope_of = every, spans, scope_of
        self.members: list[list[int]] = [[] for _ in every]
        for i, k in enumerate(scope_of):
            self.members[k].append(i)
        self.parents = [scope.parents for scope in every]
        self.before = [NONE] * len(spans)
        for mine, parents in zip(self.members, self.parents, strict=True):
            for i, at in zip(mine, waited_for([spans[i] for i in mine], parents), strict=True):
                self.before[i] = mine[at] if at != NONE else NONE
        self.containers = [self._container(scope) for scope in every]
        self.children: dict[int, list[int]] = {}
        for k, container in enumerate(self.containers):
            if container != NONE:
                self.children.setdefault(container, []).append(k)

    def whole(self) -> Whole:
        local, found = self.before, list(self.before)
        for i, k in enumerate(self.scope_of):
            if local[i] == NONE and self.containers[k] != NONE:
                found[i] = self._began(i, k)
        for container in self.children:
            found[container] = self._last(container)
        within = tuple(self.containers[k] for k in self.scope_of)
        return Whole(self.spans, tuple(found), within)

    def _container(self, scope: GraphScope) -> int:
        """The try that began a scope."""
        if scope.around == NONE:
            return NONE
        tries = [
            i for i in self.members[scope.around] if self.spans[i].primitive == scope.container
        ]
        begun = [i for i in tries if self.spans[i].start <= scope.begun + SAME_S]
        return begun[-1] if begun else next(iter(tries), NONE)

    def _began(self, i: int, k: int) -> int:
        """What span `i` waited for, which was the first of scope `k`."""
        container, at = self.containers[k], self.spans[i].queued
        beside = [
            j for other in self.children[container] if other != k for j in self.members[other]
        ]
        if (reached := self._reached(beside, at)) != NONE:
            return reached
        around = self.scope_of[container]
        above = self.parents[around].get(self.spans[container].primitive, ())
        written = [j for j in self.members[around] if self.spans[j].primitive in above]
        running = [j for j in written if self.spans[j].start < at < self.spans[j].end - SAME_S]
        return max(running, key=lambda j: self.spans[j].start, default=self.before[container])

    def _reached(self, beside: Sequence[int], at: float) -> int:
        """Which of these had just ended at `at`, or else was at work then."""
        spans = self.spans
        ended = [j for j in beside if spans[j].end <= at + SAME_S and spans[j].state not in _OPEN]
        last = max(ended, key=lambda j: (spans[j].end, spans[j].start, j), default=NONE)
        if last != NONE and at - spans[last].end <= HANDED_OVER_S:
            return last
        working = [j for j in beside if spans[j].start < at < spans[j].end]
        return max(working, key=lambda j: (spans[j].start, j), default=last)

    def _last(self, container: int) -> int:
        """What ended last inside a span, or was still at work at its end."""
        spans, around = self.spans, self.spans[container]
        inside = [j for k in self.children[container] for j in self.members[k]]
        if around.state not in _OPEN:
            inside = [j for j in inside if spans[j].state not in _OPEN]
        inside = [j for j in inside if spans[j].end <= around.end + SAME_S]
        default = self.before[container]
        return max(inside, key=lambda j: (spans[j].end, spans[j].start, j), default=default)
