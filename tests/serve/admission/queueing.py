"""Queues in virtual time behind an Admission: what clients see who do not wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from teola.errors import Overloaded
from teola.runtime.observe.demand import Demand
from teola.serve.admission.admission import Admission, Lanes, Ticket

ENGINE = "engine"
Phase = tuple[float, int]
"""Arrivals a second, and how many of them."""


@dataclass
class Seen:
    """What became of one phase. latencies: of who was let in, in seconds. refused: how many were
    not. last: when the last one of it ended, since its first arrival."""

    latencies: list[float] = field(default_factory=list)
    refused: int = 0
    first: float = 0.0
    last: float = 0.0

    def ended(self, came: float, now: float) -> None:
        self.latencies.append(now - came)
        self.last = now - self.first

    @property
    def p99(self) -> float:
        return sorted(self.latencies)[int(0.99 * len(self.latencies))]

    @property
    def goodput(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.last


def door(lanes: Callable[[], Lanes]) -> Admission:
    """An Admission before one engine that knows nothing yet."""
    return Admission(lambda engine: lanes(), lambda kind: Demand(0.0, {ENGINE: 0.0}))


def _arrivals(phases: list[Phase], found: list[Seen]) -> Iterator[tuple[float, Seen]]:
    rng, now = Random(7), 0.0
    for rate, count in phases:
        seen = Seen(first=now)
        found.append(seen)
        for _ in range(count):
            now += rng.expovariate(rate)
            yield now, seen


def on_lanes(lanes: int, phases: list[Phase], draw: Callable[[Random], float]) -> list[Seen]:
    """An engine that does `lanes` queries side by side, the first that came first."""
    rng, found, admission = Random(8), list[Seen](), door(lambda: Lanes(lanes))
    queue: deque[tuple[float, Seen, Ticket]] = deque()
    ends: list[tuple[float, float, float, Seen, Ticket]] = []

    def begin(at: float) -> None:
        while queue and len(ends) < lanes:
            took = draw(rng)
            came, seen, ticket = queue.popleft()
            heappush(ends, (at + took, came, took, seen, ticket))

    def step(until: float) -> None:
        while ends and ends[0][0] <= until:
            end, came, took, seen, ticket = heappop(ends)
            seen.ended(came, end)
            admission.ended(ticket, Demand(took, {ENGINE: took}))
            begin(end)

    for now, seen in _arrivals(phases, found):
        step(now)
        try:
            queue.append((now, seen, admission.admit("app", 0, "default", now)))
        except Overloaded:
            seen.refused += 1
        begin(now)
    step(float("inf"))
    return found


def side_by_side(alone_s: float, knee: int, phases: list[Phase]) -> list[Seen]:
    """An engine that begins with everybody at once, but slows down beyond `knee` of them: an LLM.

    done: seconds of its work that each one inside could have had so far; who came at `d` leaves at
    `d + alone_s`.
    """
    found, inside, done, now = list[Seen](), deque[tuple[float, float, Seen, Ticket]](), 0.0, 0.0
    admission = door(lambda: Lanes(1.0, len(inside)))

    def step(until: float) -> None:
        nonlocal done, now
        while inside:
            speed = min(1.0, knee / len(inside))
            came, mark, seen, ticket = inside[0]
            end = now + (mark + alone_s - done) / speed
            if end > until:
                done += (until - now) * speed
                break
            done, now = mark + alone_s, end
            inside.popleft()
            seen.ended(came, end)
            admission.ended(ticket, Demand(end - came, {ENGINE: end - came}))
        now = until

    for at, seen in _arrivals(phases, found):
        step(at)
        try:
            inside.append((at, done, seen, admission.admit("app", 0, "default", at)))
        except Overloaded:
            seen.refused += 1
    step(float("inf"))
    return found
