"""First tokens that do not come: when a call is overdue, by how long others took. Sans I/O.

A call is due `factor` times what its first token was expected to take, and not before `least_s`.
What is expected goes by learned times, the call's size, what is pending on its instance, and how
long that has no KV memory for it. Once `ENOUGH` first tokens have come, the factor is twice the
99th percentile of measured to expected. A call that stays where it is then is due again after the
same time.

    sent ----- sign of an earlier call ----- due
                      |<------ wait_s ------>|

A call stands in line behind those that were sent to its instance before it. While these give first
tokens and answers the instance is not hung, so the time counts from the last such sign of life. Who
was sent later proves nothing: a call that was overtaken may be lost. An instance that hangs gives
nothing, so its calls are due as soon as if they had been sent when it gave its last sign.

Long before that, a call in a pool is late. 95 of 100 give a first token within some multiple of
what was expected; a call is late after twice that multiple of its own expected time, and once more
after four times and after eight times. From that one learns which instance is slow.

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
from math import inf
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
LATE_AT, LATE_ENOUGH, LATE_TIMES, LATE_S = 0.95, 20, (2.0, 4.0, 8.0), 0.05
"""A call is late after so many times what this share of so many first tokens took at most, and so
many seconds more. Three times, so that one call that is as late as one that hangs tells as much as
three that are late."""
SOON_S: Final = 1e-3
"""A timer may fire so much too early; another one is set then."""


MOST_SIGNS: Final = 512
"""Of one instance, signs of life that are remembered; half of them where there would be more."""


class SignsOfLife:
    """When an instance last gave something to a call that was sent before another one, by `order`:
    the number of a call among all that were sent."""

    def __init__(self) -> None:
        self._sent = 0
        self._signs: dict[int, list[tuple[int, float]]] = {}
        """Of each instance (order, when): both ascend, since a sign of an earlier call that comes
        later says all that one of a later call does."""

    def next_order(self) -> int:
        """The number of a call that is sent now."""
        self._sent += 1
        return self._sent

    def gave(self, instance: int, order: int, now: float) -> None:
        """The call of this number was given something. Amortized O(1)."""
        signs = self._signs.setdefault(instance, [])
        while signs and signs[-1][0] >= order:
            signs.pop()
        signs.append((order, now))
        if len(signs) > MOST_SIGNS:
            del signs[: MOST_SIGNS // 2]

    def before(self, instance: int, order: int) -> float:
        """When a call that was sent before this one was last given something; -inf: never.
        O(log n)."""
        signs = self._signs.get(instance, [])
        k = bisect_left(signs, (order, -inf))
        return signs[k - 1][1] if k else -inf


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
    """A call that was sent. order: among all calls. since: from when on its time counts."""

    batch: int
    instance: int
    order: int
    at: float
    since: float
    expected_s: float | None
    tokens: int
    wait_s: float
    due: float
    late: bool = False


class Overdue:
    """The calls of one engine that wait for their first token. factor, least_s: see above. A factor
    that is given is not learned. signs: shared with others that watch the same instances."""

    def __init__(
        self,
        factor: float | None = None,
        least_s: float | None = None,
        signs: SignsOfLife | None = None,
    ) -> None:
        self._factor = factor
        self.signs = SignsOfLife() if signs is None else signs
        self._least_s = LEAST_S if least_s is None else least_s
        self.unknown_s = max(UNKNOWN_S, self._least_s)
        self._sent: dict[WorkKey, _Sent] = {}
        self._begun: dict[WorkKey, tuple[int, int, float]] = {}
        """Calls that have given their first token: their instance, their order, and when."""
        self._writing: dict[int, tuple[int, float]] = {}
        """Of each instance, how many of them are there, and the sum of these times."""
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
        self._late: list[tuple[float, int, WorkKey, int]] = []
        """When one looks whether a call is late, and how often it was."""
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
        *,
        compared: bool = False,
    ) -> None:
        """A call goes to an instance. expected_s: until its first token (None: nobody knows).
        tokens: that the instance computes until then. compared: `slow` is asked about it."""
        tokens = max(1, tokens)
        if expected_s is None:
            wait_s = self._blind_s(tokens)
        else:
            wait_s = max(self._least_s, self.factor * expected_s)
        order = self.signs.next_order()
        sent = _Sent(batch, instance, order, now, now, expected_s, tokens, wait_s, now + wait_s)
        self._sent[key] = sent
        self._ends_writing(key)
        if expected_s is None:
            self._blind[key] = sent
        else:
            self._blind.pop(key, None)
        heappush(self._due, (sent.due, batch, key))
        if compared and (after_s := self._late_s(sent, 0)) is not None:
            heappush(self._late, (now + after_s, batch, key, 0))

    def came(self, key: WorkKey, now: float, *, here: bool = True) -> None:
        """A call has given its first token. here: on the instance that it was sent to."""
        sent = self._sent.pop(key, None)
        if self._blind.pop(key, None) is not None and sent is not None:
            self._blind_came(sent, now)
        if sent is None:
            return
        if here:
            self._begun[key] = sent.instance, sent.order, now
            self._writes(sent.instance, 1, now)
            self.signs.gave(sent.instance, sent.order, now)
        if not sent.expected_s:
            return
        ratio = (now - sent.since) / sent.expected_s
        self._newest.append(ratio)
        insort(self._ordered, ratio)
        if len(self._newest) > KEPT:
            del self._ordered[bisect_left(self._ordered, self._newest.popleft())]

    def gave(self, key: WorkKey, now: float) -> None:
        """A call was given something besides its first token: a part of its answer, or the end."""
        if (begun := self._begun.get(key)) is not None:
            self.signs.gave(begun[0], begun[1], now)
        elif (sent := self._sent.get(key)) is not None:
            self.signs.gave(sent.instance, sent.order, now)

    def left(self, key: WorkKey) -> None:
        """A call has ended, or nobody waits for it."""
        self._sent.pop(key, None)
        self._ends_writing(key)
        self._blind.pop(key, None)

    def written_s(self, instance: int, now: float) -> float:
        """For how long the calls of an instance have been writing their answers, all together."""
        calls, firsts = self._writing.get(instance, (0, 0.0))
        return max(0.0, calls * now - firsts)

    def _writes(self, instance: int, calls: int, first: float) -> None:
        count, firsts = self._writing.get(instance, (0, 0.0))
        count += calls
        self._writing[instance] = (count, firsts + calls * first) if count else (0, 0.0)

    def _ends_writing(self, key: WorkKey) -> None:
        if (begun := self._begun.pop(key, None)) is not None:
            self._writes(begun[0], -1, begun[2])

    def _blind_s(self, tokens: int) -> float:
        """Within how many seconds a call has to give a token of which no time is known."""
        if self._blind_firsts < FEW:
            return self.unknown_s
        expected_s = self._slowest_s * max(1.0, tokens / self._most_tokens)
        return min(self.unknown_s, max(self._least_s, self.factor * expected_s))

    def _blind_came(self, sent: _Sent, now: float) -> None:
        self._blind_firsts += 1
        self._slowest_s = max(self._slowest_s, now - sent.since)
        self._most_tokens = max(self._most_tokens, sent.tokens)
        if self._blind_firsts < self._reckoned_at:
            return
        self._reckoned_at *= 2  # not at each, which would take too long where many wait
        for key, waiting in self._blind.items():
            due = max(now, waiting.since + self._blind_s(waiting.tokens))
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
            if self._has_more_time(sent) and sent.since + sent.wait_s > now:
                self._again(key, sent, sent.since + sent.wait_s)
                continue
            late.append(Late(key, sent.instance, batch, now - sent.at, sent.late))
            sent.late = True
            self._again(key, sent, now + sent.wait_s)
        return late

    def _late_s(self, sent: _Sent, before: int) -> float | None:
        """After how many seconds its first token is late (once more). before: how often it was.
        None: never, or nobody knows."""
        longer = self.longer(LATE_AT, LATE_ENOUGH)
        if sent.expected_s is None or longer is None or before == len(LATE_TIMES):
            return None
        return LATE_TIMES[before] * longer * sent.expected_s + LATE_S

    def slow(self, now: float) -> list[WorkKey]:
        """Calls that are late by now, as often as they are. Nobody is woken for them: they matter
        when the next call is sent."""
        slow = []
        while self._late and self._late[0][0] <= now:
            _, batch, key, before = heappop(self._late)
            sent = self._sent.get(key)
            if sent is None or sent.batch != batch:
                continue
            since = max(sent.since, self.signs.before(sent.instance, sent.order))
            while (after_s := self._late_s(sent, before)) is not None and since + after_s <= now:
                slow.append(key)
                before += 1
            if after_s is not None:
                heappush(self._late, (since + after_s, batch, key, before))
        return slow

    def _has_more_time(self, sent: _Sent) -> bool:
        """Whether a call may be due later: its instance showed life, or it was sent blind and more
        is known by now."""
        alive = self.signs.before(sent.instance, sent.order)
        moved, blind = alive > sent.since, sent.expected_s is None and not sent.late
        if moved:
            sent.since = alive
        if blind:
            sent.wait_s = self._blind_s(sent.tokens)
        return moved or blind

    def next_at(self) -> float | None:
        """When the next one is due."""
        while self._due:
            at, batch, key = self._due[0]
            sent = self._sent.get(key)
            if sent is not None and sent.batch == batch and sent.due == at:
                return at
            heappop(self._due)
        return None
