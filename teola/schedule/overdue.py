"""First tokens that do not come: when a call is overdue, by how long others took. Sans I/O.

A call is due `factor` times what its first token was expected to take, and not before `least_s`.
What is expected goes by learned times, the call's size and what is pending on its instance. Once
`ENOUGH` first tokens have come, the factor is twice the 99th percentile of measured to expected. A
call that stays where it is then is due again after the same time.

Where no time is known, a call is due after `UNKNOWN_S`, until `FEW` first tokens have come of calls
that were sent equally blind, on whatever instance. Then the slowest of those stands in the place of
what is expected, in proportion for a call that has more to be computed before it than any of those
had: so neither a long prompt nor many calls at once look like a server that hangs.
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
FEW: Final = 3
"""First tokens of calls sent blind by which the others are judged. One that is not is late after
`UNKNOWN_S`, so a pool may load its models when it is first asked."""
ENOUGH: Final = 50
KEPT: Final = 200
"""So many of the newest first tokens are remembered, each with how much longer it took than
expected."""
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
    tokens: int
    wait_s: float
    due: float
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
        self._blind: dict[WorkKey, _Sent] = {}
        """Calls of `_sent` that were sent when no time was known."""
        self._blind_firsts, self._reckoned_at = 0, FEW
        """First tokens of such calls, and at how many of them it is reckoned anew when those that
        wait are due."""
        self._slowest_s, self._most_tokens = 0.0, 1
        """The longest time to a first token of such calls, and the most tokens that one had to wait
        for."""
        self._alarm: float | None = None
        self._newest: deque[float] = deque()
        self._ordered: list[float] = []

    @property
    def factor(self) -> float:
        """How many times the expected time a first token may take."""
        if self._factor is not None:
            return self._factor
        usual = self.longer(AT)
        return FACTOR if usual is None else 2 * usual

    def longer(self, part: float, enough: int = ENOUGH) -> float | None:
        """How many times the expected time so large a part of first tokens took at most; None:
        fewer than `enough` have come."""
        ordered = self._ordered
        if len(ordered) < enough:
            return None
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    def sent(
        self,
        key: WorkKey,
        instance: int,
        batch: int,
        expected_s: float | None,
        now: float,
        tokens: int = 1,
    ) -> None:
        """A call goes to an instance. expected_s: until its first token (None: nobody knows).
        tokens: that the instance computes until then."""
        tokens = max(1, tokens)
        if expected_s is None:
            wait_s = self._blind_s(tokens)
        else:
            wait_s = max(self._least_s, self.factor * expected_s)
        sent = _Sent(batch, instance, now, expected_s, tokens, wait_s, now + wait_s)
        self._sent[key] = sent
        if expected_s is None:
            self._blind[key] = sent
        else:
            self._blind.pop(key, None)
        heappush(self._due, (sent.due, batch, key))

    def came(self, key: WorkKey, now: float) -> None:
        """A call has given a token."""
        sent = self._sent.pop(key, None)
        if self._blind.pop(key, None) is not None and sent is not None:
            self._blind_came(sent, now)
        if sent is None or not sent.expected_s:
            return
        ratio = (now - sent.at) / sent.expected_s
        self._newest.append(ratio)
        insort(self._ordered, ratio)
        if len(self._newest) > KEPT:
            del self._ordered[bisect_left(self._ordered, self._newest.popleft())]

    def left(self, key: WorkKey) -> None:
        """A call has ended, or nobody waits for it."""
        self._sent.pop(key, None)
        self._blind.pop(key, None)

    def _blind_s(self, tokens: int) -> float:
        """Within how many seconds a call has to give a token of which no time is known."""
        if self._blind_firsts < FEW:
            return self.unknown_s
        expected_s = self._slowest_s * max(1.0, tokens / self._most_tokens)
        return min(self.unknown_s, max(self._least_s, self.factor * expected_s))

    def _blind_came(self, sent: _Sent, now: float) -> None:
        self._blind_firsts += 1
        self._slowest_s = max(self._slowest_s, now - sent.at)
        self._most_tokens = max(self._most_tokens, sent.tokens)
        if self._blind_firsts < self._reckoned_at:
            return
        self._reckoned_at *= 2  # not at each, which would take too long where many wait
        for key, waiting in self._blind.items():
            due = max(now, waiting.at + self._blind_s(waiting.tokens))
            if due < waiting.due and not waiting.late:  # `late` sees who is due later
                self._again(key, waiting, due)

    def _again(self, key: WorkKey, sent: _Sent, due: float) -> None:
        """A call is due at another time."""
        sent.due = due
        heappush(self._due, (due, sent.batch, key))

    def alarm(self) -> float | None:
        """When to look for late ones, if nobody is to look sooner already."""
        at = self.next_at()
        if at is None or (self._alarm is not None and self._alarm <= at):
            return None
        self._alarm = at
        return at

    def late(self, now: float) -> list[Late]:
        """Calls that are due by now. A call that goes on waiting is due again as much later."""
        late = []
        if self._alarm is not None and self._alarm <= now + SOON_S:
            self._alarm = None
        while (at := self.next_at()) is not None and at <= now:
            _, batch, key = heappop(self._due)
            sent = self._sent[key]
            if sent.expected_s is None and not sent.late:
                sent.wait_s = self._blind_s(sent.tokens)
                if sent.at + sent.wait_s > now:
                    self._again(key, sent, sent.at + sent.wait_s)
                    continue
            late.append(Late(key, sent.instance, batch, now - sent.at, sent.late))
            sent.late = True
            self._again(key, sent, now + sent.wait_s)
        return late

    def next_at(self) -> float | None:
        """When the next one is due."""
        while self._due:
            at, batch, key = self._due[0]
            sent = self._sent.get(key)
            if sent is not None and sent.batch == batch and sent.due == at:
                return at
            heappop(self._due)
        return None
