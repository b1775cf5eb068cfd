"""First tokens that do not come: when a call is overdue, by how long others took. Sans I/O.

A call is due `factor` times what its first token was expected to take, and not before `least_s`.
What is expected goes by learned times, the call's size and what is pending on its instance. Once
`ENOUGH` first tokens have come, the factor is twice the 99th percentile of measured to expected. A
call that stays where it is then is due again after the same time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

from teola.policies.work import WorkKey

FACTOR: Final = 8.0
LEAST_S: Final = 5.0
UNKNOWN_S: Final = 60.0
"""When a first token is due where no time is known."""
ENOUGH: Final = 50
KEPT: Final = 200
"""Of the newest first tokens it is remembered how much longer they took than expected."""
AT: Final = 0.99
SOON_S: Final = 1e-3
"""A timer may fire so much too early; another one is set then."""


class Late(NamedTuple):
    """A call that has given no token in time. after_s: since it was sent. again: it was late
    before."""

    key: WorkKey
    instance: int
    batch: int
    after_s: float
    again: bool


@dataclass(slots=True)
class _Sent:
    batch: int
    instance: int
    at: float
    expected_s: float | None
    wait_s: float
    late: bool = False


class Overdue:
    """The calls of one engine that wait for their first token. factor, least_s: see above. A factor
    that is given is not learned."""

    def __init__(self, factor: float | None = None, least_s: float | None = None) -> None:
        self._factor = factor
        self._least_s = LEAST_S if least_s is None else least_s
        self.unknown_s = max(UNKNOWN_S, self._least_s)
        self._sent: dict[WorkKey, _Sent] = {}
        self._due: list[tuple[float, int, WorkKey]] = []
        self._alarm: float | None = None
        self._newest: deque[float] = deque()
        self._ordered: list[float] = []

    @property
    def factor(self) -> float:
        """How many times the expected time a first token may take."""
        if self._factor is not None:
            return self._factor
        if len(self._ordered) < ENOUGH:
            return FACTOR
        return 2 * self._ordered[min(len(self._ordered) - 1, int(AT * len(self._ordered)))]

    def sent(
        self, key: WorkKey, instance: int, batch: int, expected_s: float | None, now: float
    ) -> None:
        """A call goes to an instance. expected_s: until its first token (None: nobody knows)."""
        wait_s = self.unknown_s
        if expected_s is not None:
            wait_s = max(self._least_s, self.factor * expected_s)
        self._sent[key] = _Sent(batch, instance, now, expected_s, wait_s)
        heappush(self._due, (now + wait_s, batch, key))

    def came(self, key: WorkKey, now: float) -> None:
        """It has given a token."""
        sent = self._sent.pop(key, None)
        if sent is None or not sent.expected_s:
            return
        ratio = (now - sent.at) / sent.expected_s
        self._newest.append(ratio)
        insort(self._ordered, ratio)
        if len(self._newest) > KEPT:
            del self._ordered[bisect_left(self._ordered, self._newest.popleft())]

    def left(self, key: WorkKey) -> None:
        """It has ended, or nobody waits for it."""
        self._sent.pop(key, None)

    def alarm(self) -> float | None:
        """When to look for late ones, if nobody is to look sooner already."""
        at = self.next_at()
        if at is None or (self._alarm is not None and self._alarm <= at):
            return None
        self._alarm = at
        return at

    def late(self, now: float) -> list[Late]:
        """Those that are due by now. Who still waits then is due again as much later."""
        found = []
        if self._alarm is not None and self._alarm <= now + SOON_S:
            self._alarm = None
        while (at := self.next_at()) is not None and at <= now:
            _, batch, key = heappop(self._due)
            sent = self._sent[key]
            found.append(Late(key, sent.instance, batch, now - sent.at, sent.late))
            sent.late = True
            heappush(self._due, (now + sent.wait_s, batch, key))
        return found

    def next_at(self) -> float | None:
        """When the next one is due."""
        while self._due:
            at, batch, key = self._due[0]
            sent = self._sent.get(key)
            if sent is not None and sent.batch == batch:
                return at
            heappop(self._due)
        return None
