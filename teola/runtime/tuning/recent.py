"""The queries that came lately, as they are replayed: what they asked, when, and how long they
took.

A ring: at most `MOST` queries of the last `window_s` seconds, and at most `MOST_CALLS` calls of
them all, which bounds its memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from teola.runtime.sim.staged import StagedQuery, Stages

WINDOW_S: Final = 600.0
MOST: Final = 2000
MOST_CALLS: Final = 40_000
"""About 200 bytes each; together with their queries under 16 MiB."""
DRAWN: Final = 80
"""Queries of a sample that is drawn."""
NOT_COUNTED: Final = 0.25
"""Of a sample, the first part: it meets idle engines."""


class Recent:
    """window_s: how long a query is remembered after it came."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self._began: dict[str, StagedQuery] = {}
        """Those that have not ended, in the order in which they came."""
        self._ended: deque[tuple[float, StagedQuery]] = deque()
        self._calls = 0

    def __len__(self) -> int:
        return len(self._began) + len(self._ended)

    def began(self, id: str, query: StagedQuery) -> None:
        """A query was admitted; its stages are those that have ended so far."""
        self._began[id] = query
        if len(self._began) > MOST:
            del self._began[next(iter(self._began))]

    def ended(self, id: str, stages: Stages, now: float) -> StagedQuery | None:
        """A query has ended, having made these calls; None: it is not known, or made none."""
        query = self._began.pop(id, None)
        if query is None or not stages:
            return None
        whole = replace(query, stages=stages, latency_s=now - query.arrival)
        self._ended.append((now, whole))
        self._calls += whole.calls
        self.forget(now)
        return whole

    def dropped(self, id: str) -> None:
        """A query has ended that says nothing of how long such queries take."""
        self._began.pop(id, None)

    def forget(self, now: float) -> None:
        """What is too old, or too much."""
        ended = self._ended
        while ended and (
            ended[0][1].arrival < now - self.window_s
            or len(ended) > MOST
            or self._calls > MOST_CALLS
        ):
            self._calls -= ended.popleft()[1].calls

    def latencies(self, since: float) -> list[float]:
        """Of the queries that have ended since then."""
        return [query.latency_s or 0.0 for at, query in self._ended if at > since]

    def window(self, since: float) -> list[StagedQuery]:
        """The paper's sample: what has ended since then, as it came."""
        found = [query for at, query in self._ended if at > since]
        return sorted(found, key=lambda query: query.arrival)

    def resampled(self, now: float, seed: int, rate: float | None = None) -> list[StagedQuery]:
        """Queries drawn from all that came in the window, at the rate at which they came: those
        that have not ended count, too, and go on as others of their application did. rate:
        another."""
        self.forget(now)
        source = Random(f"resampled/{seed}")
        whole = [query for _, query in self._ended]
        began = [query for query in self._began.values() if query.arrival >= now - self.window_s]
        if not whole:
            return []
        came = sorted(query.arrival for query in (*whole, *began))
        span_s = max(now - came[0], 1e-9)
        pool = [*whole, *(one for one in (_completed(q, whole, source) for q in began) if one)]
        at, found = 0.0, []
        for _ in range(DRAWN):
            at += source.expovariate(rate or len(came) / span_s)
            found.append(replace(source.choice(pool), arrival=at))
        return found


def _completed(
    query: StagedQuery, whole: Sequence[StagedQuery], source: Random
) -> StagedQuery | None:
    """A query that runs, with the rest of one like it. None: there is none like it."""
    like = [one for one in whole if one.app == query.app]
    if not like:
        return None
    other = source.choice(like)
    return replace(query, stages=query.stages + other.stages[len(query.stages) :])
