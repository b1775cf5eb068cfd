"""The queries that came lately, as they are replayed: what they asked, when, and how long they
took.

A ring: at most `MOST` queries of the last `window_s` seconds, and at most `MOST_CALLS` calls of
them all, which bounds its memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
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
AFTER: Final = 0.2
"""The last part of a sample, which does not count: nobody comes after it any more."""
SOONEST_S: Final = 1e-3
"""What is left of an objective that has passed."""


class Recent:
    """window_s: how long a query is remembered after it came. so_far: the calls of a query that
    runs, which have ended; by default those that `began` was told."""

    def __init__(
        self, window_s: float = WINDOW_S, so_far: Callable[[str], Stages] | None = None
    ) -> None:
        self.window_s, self._so_far = window_s, so_far
        self._began: dict[str, StagedQuery] = {}
        """Queries that have not ended, in the order in which they came."""
        self._ended: deque[tuple[float, StagedQuery]] = deque()
        self._calls = 0

    def __len__(self) -> int:
        return len(self._began) + len(self._ended)

    def began(self, id: str, query: StagedQuery) -> None:
        """A query was admitted."""
        self._began[id] = query
        if len(self._began) > MOST:
            del self._began[next(iter(self._began))]

    def ended(self, id: str, stages: Stages, now: float) -> StagedQuery | None:
        """A query has ended, having made these calls; None: it is not known, or made none."""
        query = self._began.pop(id, None)
        if query is None or not stages:
            return None
        completed = replace(query, stages=stages, latency_s=now - query.arrival)
        self._ended.append((now, completed))
        self._calls += completed.calls
        self.forget(now)
        return completed

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
        """Latencies of the queries that have ended since then."""
        return [query.latency_s or 0.0 for at, query in self._ended if at > since]

    def window(self, since: float) -> list[StagedQuery]:
        """The paper's sample: what has ended since then, as it came."""
        found = [query for at, query in self._ended if at > since]
        return sorted(found, key=lambda query: query.arrival)

    def resampled(self, now: float, seed: int, rate: float | None = None) -> list[StagedQuery]:
        """What runs now, with what each of these still has to do, and then queries drawn from all
        that came in the window, at the rate at which they came. Those that have not ended are drawn
        from, too: they go on as others of their application did that were as long. Of an
        application of which none has ended, none counts. rate: another.

        A figure counts neither what runs now, which is the load that the others meet, nor the last
        of those that come."""
        self.forget(now)
        source = Random(f"resampled/{seed}")
        completed = [query for _, query in self._ended]
        apps = {query.app for query in completed}
        began = [
            id
            for id, query in self._began.items()
            if query.arrival >= now - self.window_s and query.app in apps
        ]
        if not completed:
            return []
        pool: list[StagedQuery | str] = [*completed, *began]
        first = min(query.arrival for query in (*completed, *(self._began[id] for id in began)))
        span_s = max(now - first, 1e-9)
        running = [id for id, query in self._began.items() if query.app in apps]
        if len(running) > DRAWN:
            running = source.sample(running, DRAWN)
        rests = [self._rest(id, completed, now, source) for id in running]
        at, resampled = 0.0, [rest for rest in rests if rest.stages]
        for k in range(DRAWN):
            at += source.expovariate(rate or len(pool) / span_s)
            drawn = source.choice(pool)
            if isinstance(drawn, str):
                drawn = self._completed(drawn, completed, source)
            resampled.append(replace(drawn, arrival=at, counted=k < DRAWN * (1 - AFTER)))
        return resampled

    def _rest(
        self, id: str, whole: Sequence[StagedQuery], now: float, source: Random
    ) -> StagedQuery:
        """What a query that runs still has to do, from now (second 0) on."""
        query = self._completed(id, whole, source)
        left_s = query.finish_by_s
        if left_s is not None:
            left_s = max(SOONEST_S, left_s - (now - query.arrival))
        stages = query.stages[len(self._done(id)) :]
        return replace(query, stages=stages, arrival=0.0, finish_by_s=left_s, counted=False)

    def _done(self, id: str) -> Stages:
        """The calls of a query that runs, which have ended."""
        return self._began[id].stages if self._so_far is None else self._so_far(id)

    def _completed(self, id: str, whole: Sequence[StagedQuery], source: Random) -> StagedQuery:
        """A query that runs, with the rest of one like it. Those that have ended first are short,
        so it is one of those that are longer than what it has done, if there is any."""
        query, stages = self._began[id], self._done(id)
        like = [candidate for candidate in whole if candidate.app == query.app]
        longer = [candidate for candidate in like if len(candidate.stages) > len(stages)]
        if not longer and stages:
            return replace(query, stages=stages)
        model = source.choice(longer or like)
        return replace(query, stages=stages + model.stages[len(stages) :])
