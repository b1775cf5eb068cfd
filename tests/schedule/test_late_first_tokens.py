"""When first tokens are late, against a slow list of all calls and signs of life; looked at when a
timer says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from teola.schedule.overdue import AT, ENOUGH, FACTOR, FEW, KEPT, LEAST_S, UNKNOWN_S, Overdue
from tests.planted import catches, edited

TIMES = (0.0, 0.1, 1.0, 4.0, 4.0, 30.0)


@dataclass
class Call:
    """expected_s: until its first token (None: nobody knows). since: from when on its time counts;
    wait_s: how long it may take; due: when it is late next; order: among all that were sent."""

    name: str
    batch: int
    at: float
    expected_s: float | None
    tokens: int
    wait_s: float = 0.0
    due: float = 0.0
    late: bool = False
    since: float = 0.0
    order: int = 0


class Slow:
    """All calls that wait, and of those that gave a token what they took."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.ratios: list[float] = []
        self.blind: list[tuple[float, int]] = []
        """Seconds and tokens of first tokens for which no time was known."""
        self.signs: list[tuple[int, float]] = []
        """Which call gave something, and when."""
        self.orders = 0

    @property
    def factor(self) -> float:
        newest = sorted(self.ratios[-KEPT:])
        if len(newest) < ENOUGH:
            return FACTOR
        return 2 * newest[min(len(newest) - 1, int(AT * len(newest)))]

    def blind_s(self, tokens: int) -> float:
        if len(self.blind) < FEW:
            return UNKNOWN_S
        slowest = max(seconds for seconds, _ in self.blind)
        most = max(tokens for _, tokens in self.blind)
        return min(UNKNOWN_S, max(LEAST_S, self.factor * slowest * max(1.0, tokens / most)))

    def sent(self, call: Call) -> None:
        if call.expected_s is None:
            call.wait_s = self.blind_s(call.tokens)
        else:
            call.wait_s = max(LEAST_S, self.factor * call.expected_s)
        call.since, call.due = call.at, call.at + call.wait_s
        self.orders += 1
        call.order = self.orders
        self.calls.append(call)

    def came(self, call: Call, now: float) -> None:
        self.calls.remove(call)
        self.signs.append((call.order, now))
        if call.expected_s is not None:
            self.ratios.append((now - call.since) / call.expected_s)
            return
        self.blind.append((now - call.since, call.tokens))
        if len(self.blind) in [FEW * 2**k for k in range(9)]:
            for one in self.calls:
                if one.expected_s is None and not one.late:
                    one.due = min(one.due, max(now, one.since + self.blind_s(one.tokens)))

    def late(self, now: float) -> list[tuple[str, float, bool]]:
        """Calls that are late by now: how long after they were sent, and whether again."""
        found = []
        while due := sorted((one.due, one.batch) for one in self.calls if one.due <= now):
            call = next(one for one in self.calls if one.batch == due[0][1])
            alive = max([call.since, *(at for order, at in self.signs if order < call.order)])
            blind = call.expected_s is None and not call.late
            if blind:
                call.wait_s = self.blind_s(call.tokens)
            if (blind or alive > call.since) and alive + call.wait_s > now:
                call.since, call.due = alive, alive + call.wait_s
                continue
            call.since = alive
            found.append((call.name, now - call.at, call.late))
            call.late, call.due = True, now + call.wait_s
        return found


def lives(seed: int, blind: float, steps: int, times: Sequence[float] = TIMES) -> int:
    """Calls are sent, give a token, leave or are sent again; how many were late. blind: the part
    of them of which no time is known. times: between two moments. The oldest of many hang."""
    draw, now, overdue, slow = Random(seed), 0.0, Overdue(), Slow()
    timers: list[float] = []
    late = 0

    def alarm() -> None:
        at = overdue.alarm()
        if at is not None:
            heappush(timers, max(at, now))
        assert overdue.alarm() is None, "a timer is set already"

    for k in range(steps):
        until = now + draw.choice(times)
        while timers and timers[0] <= until:
            now = heappop(timers)
            found = [(one.key[0], one.after_s, one.again) for one in overdue.late(now)]
            assert found == slow.late(now), now
            late += len(found)
            alarm()
        now = until
        assert overdue.next_at() == min((one.due for one in slow.calls), default=None)
        assert all(one.due > now for one in slow.calls), "a timer was set for each of them"
        for n in range(draw.choice([0, 1, 2])):
            name = draw.choice([f"{k}.{n}", *(one.name for one in slow.calls[:1])])
            slow.calls = [one for one in slow.calls if one.name != name]  # it is sent again
            expected_s = None if draw.random() < blind else draw.choice([0.5, 2.0, 10.0])
            call = Call(name, 10 * k + n, now, expected_s, draw.choice([1, 100, 900]))
            slow.sent(call)
            overdue.sent((name, 0), 0, call.batch, expected_s, now, call.tokens)
        newest = slow.calls[-6:] if draw.random() < 0.96 else slow.calls[:1]
        for call in draw.sample(newest, min(len(newest), draw.choice([0, 1, 3]))):
            if draw.random() < 0.8:
                slow.came(call, now)
                overdue.came((call.name, 0), now)
            else:
                slow.calls.remove(call)
                overdue.left((call.name, 0))
        alarm()
    return late


@catches(
    "late-once",
    "a call that is late is never late again",
    edited(Overdue.late, "self._again(key, sent, now + sent.wait_s)", "pass"),
)
@catches(
    "oldest-ratios",
    "of what first tokens took the oldest are remembered",
    edited(Overdue.came, "self._newest.popleft()", "self._newest.pop()"),
)
@catches(
    "sent-again-by-the-first",
    "a call that is sent again is late by when it was sent first",
    edited(Overdue.next_at, " and sent.batch == batch and sent.due == at", ""),
)
@catches(
    "slower-by-now",
    "a call of which no time is known is late by what was known when it was sent",
    edited(Overdue._has_more_time, "sent.wait_s = self._blind_s(sent.tokens)", "pass"),
)
@catches(
    "forgotten-when-slower",
    "a call that may take longer by what is known now is never late",
    edited(Overdue.late, "self._again(key, sent, sent.since + sent.wait_s)", "pass"),
)
@catches(
    "alarm-at-the-first",
    "nobody looks sooner where another call is due sooner",
    edited(Overdue.alarm, "self._alarm <= at)", "True)"),
)
def test_calls_are_late_when_a_slow_list_says_so() -> None:
    late = 0
    for seed in range(3):
        for blind in (0.0, 0.5, 1.0):
            late += lives(seed, blind, 150 if blind else 450)
            late += lives(seed, blind, 150, [0.0, 0.1, 0.3, 1.0])
    assert late > 50
