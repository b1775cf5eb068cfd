"""What a server that others run takes of us now: for how long nothing, how many calls at once, how
much in a minute. Sans I/O. Long because refusals, budgets and calls at once decide together.

    open ──busy──▶ closed until its Retry-After, else 1 s doubled to 30 s ──▶ open, fewer at once
         ──away──▶ closed for 1/8 s doubled to 30 s ──▶ one probe at a time, until one gives a token

How many at once is not known until the server first refuses: what it kept of those in flight then
is what it takes. From there the number grows again as long as all of it is used, slowly, because
each refusal closes the server: up to what it took before, and beyond that by one call in 30 s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil, inf
from typing import Final, Literal, NamedTuple
from zlib import crc32

from teola.policies.work import WorkSpec

LONGEST_S: Final = 300.0
"""A server that says to wait for longer is asked again after this time."""
FIRST_S: Final = 1.0
AWAY_S: Final = 0.125
MOST_S: Final = 30.0
"""How long a server that does not say is left alone: at first when it was busy or late, at first
when it was away, and at most. One connection that broke says little of a server, and to ask one
that is not there costs it nothing."""
DOUBLINGS: Final = 8
"""From the shortest of these to the longest."""
RAISE_S: Final = 30.0
"""After so long without a refusal, one call more than it ever took is tried."""
MINUTE_S: Final = 60.5
"""A minute as the server counts it, which sees our calls a moment after they were sent."""
SECONDS: Final = 3.0
"""A server that says to wait for longer than this means a budget, and not that it is full."""
LATE: Final = 2
"""After so many calls without a first token it is on probation."""
SHORT_S: Final = 59.0
"""The same, where what it did not count must not be counted."""
GROWS: Final = 0.05
"""What was learned of a minute grows by this share in the first minute without a refusal, and by
twice as much in each one that follows: it may have been refused for something else."""
GRAIN_S: Final = 0.1
"""Calls are counted in pieces of a minute this long."""
RECENT: Final = 1024
"""So many of the newest draws are known one by one. Few budgets let more calls be in flight."""


class Refusal(NamedTuple):
    """A server does not take a call. kind: `busy`, it takes no more now (429, 503), or `away`, it
    is not there (no connection, reset before the first token, 502, 504). after_s: when it is to be
    asked again, if it says so."""

    kind: Literal["busy", "away"]
    after_s: float | None = None


class MinuteLimits(NamedTuple):
    """What one account may use in any minute. None: not limited, or not known."""

    requests: int | None = None
    tokens: int | None = None


UNLIMITED: Final = MinuteLimits()


class MinuteBudget:
    """What may be drawn in any minute. most: None until somebody says it; the server may say what
    is left of it, and how much that is when it is whole again."""

    __slots__ = ("_drawn", "_limit", "_recent", "_told", "_told_of", "_told_until", "_used", "most")

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._drawn: deque[list[float]] = deque()  # [from when, how much]
        self._recent: deque[list[float]] = deque(maxlen=RECENT)  # [when, how much]
        self._used = 0.0
        self._told = self._limit = inf
        self._told_of = -inf
        """When the call was sent whose answer told it."""
        self._told_until = 0.0

    def left(self, now: float) -> float:
        """How much may be drawn."""
        self._forget(now)
        mine = self.size - self._used
        return min(mine, self._told) if now < self._told_until else mine

    @property
    def size(self) -> float:
        """What a minute has, as far as one knows."""
        return self._limit if self.most is None else min(self.most, self._limit)

    def used(self, now: float) -> float:
        """How much was drawn in this minute, and surely not before."""
        return sum(amount for begun, amount in self._drawn if begun > now - SHORT_S)

    @property
    def whole(self) -> bool:
        """Whether all of it is there, or nothing was drawn in this minute."""
        most = self.size
        return most - self._used >= most if most < inf else not self._drawn  # as `opens_at` reckons

    def draw(self, amount: float, now: float) -> None:
        """Take so much of it."""
        self._forget(now)
        if not self._drawn or now >= self._drawn[-1][0] + GRAIN_S:
            self._drawn.append([now, 0.0])
        self._drawn[-1][1] += amount
        self._recent.append([now, amount])
        self._used += amount
        self._told -= amount

    def give_back(self, amount: float, drawn: float, now: float) -> None:
        """Give back what was drawn at that time and not used; after a minute it counts no more."""
        self._forget(now)
        self._told += amount
        self._used -= _taken_back(self._drawn, amount, drawn)
        _taken_back(self._recent, amount, drawn)

    def told(
        self,
        left: float,
        reset_s: float,
        now: float,
        sent: float | None = None,
        limit: float | None = None,
    ) -> None:
        """The server says that so much is left, until that time; it is asked again before long.
        sent: when the call was sent whose answer says it (None: now). What was drawn since then,
        the server may not have seen when it wrote this. limit: so much there is when it is whole.
        That is a minute's, and no second's, if some of it is not there for longer than seconds."""
        sent = now if sent is None else sent
        if limit is None:
            self._limit = inf
        elif reset_s > SECONDS:
            self._limit = limit
        for at, amount in reversed(self._recent):
            if at <= sent:
                break
            left -= amount
        if sent < self._told_of and now < self._told_until:
            left = min(left, self._told)  # answers came in another order than their questions went
        self._told, self._told_of = left, max(sent, self._told_of)
        self._told_until = now + min(reset_s, LONGEST_S)

    def opens_at(self, wanted: float, now: float) -> float:
        """When so much may be drawn, if nothing else is (all of it, where that is less)."""
        self._forget(now)
        most = self.size
        wanted = min(wanted, most)
        at = self._told_until if now < self._told_until and self._told < wanted else now
        missing = wanted - (most - self._used)
        for begun, amount in self._drawn:
            if missing <= 0:
                break
            missing -= amount
            at = max(at, begun + GRAIN_S + MINUTE_S)
        return at

    def _forget(self, now: float) -> None:
        drawn = self._drawn
        while drawn and now >= drawn[0][0] + GRAIN_S + MINUTE_S:
            self._used -= drawn.popleft()[1]
        if not drawn:
            self._used = 0.0


def _taken_back(draws: deque[list[float]], amount: float, drawn: float) -> float:
    """Take so much, which was drawn then, out of these draws; how much of it they had."""
    missing = amount
    for entry in reversed(draws):
        if missing <= 0:
            break
        if entry[0] <= drawn:
            back = min(missing, entry[1])
            entry[1] -= back
            missing -= back
    return amount - missing


class ApiAccount:
    """What instances share that draw on one API key of one server. limits: as far as one knows."""

    __slots__ = ("_call_tokens", "_grows", "_learned_at", "_unbounded", "requests", "tokens")

    def __init__(self, limits: MinuteLimits = UNLIMITED) -> None:
        self.requests, self.tokens = MinuteBudget(limits.requests), MinuteBudget(limits.tokens)
        self._call_tokens = 0.0
        self._unbounded = True
        """Whether they are of calls that were sent before anybody knew a bound."""
        self._learned_at: float | None = None
        self._grows = GROWS

    def also(self, limits: MinuteLimits) -> None:
        """Somebody else says this of the same account: what is less holds."""
        for budget, most in ((self.requests, limits.requests), (self.tokens, limits.tokens)):
            if most is not None:
                budget.most = most if budget.most is None else min(budget.most, most)

    def refused(self, now: float, *, learn: bool) -> None:
        """A call that was drawn was not taken. learn: because so many a minute are all it takes,
        which nobody had said."""
        self.requests.give_back(1, now, now)
        self.tokens.give_back(self._call_tokens, now, now)
        if learn and (self.requests.most is None or self._learned_at is not None):
            self.requests.most, self._learned_at = max(1, round(self.requests.used(now))), now
            self._grows = GROWS

    def came_back(self, now: float) -> None:
        """A call was taken: what was learned may be too little by now, and the longer nothing is
        refused, the more so."""
        if self._learned_at is not None and now >= self._learned_at + MINUTE_S:
            self._learned_at = now
            self.requests.most = ceil((self.requests.most or 1) * (1 + self._grows))
            self._grows *= 2

    def draw(self, tokens: int, now: float) -> None:
        """A call of about so many tokens, its answer included, is sent."""
        like = self._per_call
        self._call_tokens = like + (tokens - like) / 8 if like else tokens
        self._unbounded = self.tokens.size == inf
        self.requests.draw(1, now)
        self.tokens.draw(tokens, now)

    def calls(self, now: float) -> float:
        """How many calls like those before may be sent now."""
        tokens, like = self.tokens.left(now), self._per_call
        if tokens < inf and not like:
            tokens = 1.0 if tokens > 0 else 0.0
        elif tokens < inf:
            # one that is larger than the whole budget goes when nothing else does
            whole = self.tokens.whole and tokens > 0
            tokens = max(tokens / like, 1.0 if whole else 0.0)
        return max(0.0, min(self.requests.left(now), tokens))

    @property
    def _per_call(self) -> float:
        """Tokens of a call, on average; 0 if nobody knows, as of calls that drew more than a minute
        has before anybody knew how much that is: those that follow draw less (`Quota.answer`)."""
        unknown = self._unbounded and self._call_tokens > self.tokens.size
        return 0.0 if unknown else self._call_tokens

    def opens_at(self, now: float) -> float:
        """When one such call may be sent."""
        return max(
            self.requests.opens_at(1, now), self.tokens.opens_at(max(1.0, self._per_call), now)
        )


class Quota:
    """State of one instance. Times in seconds, on the driver's clock. account: what it shares with
    others. seed: of what spreads its back-off."""

    __slots__ = (
        "_account",
        "_batch",
        "_before",
        "_ceiling",
        "_overdue",
        "_raised_at",
        "_refused",
        "_seed",
        "_sent",
        "_streak",
        "closed_until",
        "probing",
        "refusals",
        "window",
    )

    def __init__(self, seed: str, account: ApiAccount | None = None) -> None:
        self.closed_until = 0.0
        self.probing = 0
        """It was away or late, and no call gave a token since: no more than these (0: any)."""
        self.window = inf
        """Calls at once that it takes."""
        self.refusals = 0
        """So far."""
        self._account = account
        self._seed = seed
        self._streak = 0  # refusals of calls sent one after another, with nothing back between
        self._overdue = 0  # calls that gave no token in time, since one came back
        self._batch = 0  # those of earlier batches were refused together
        self._sent = self._refused = 0  # of them: in flight when the first was refused; refused
        self._before = inf, 0  # window and ceiling, when the first of them was refused
        self._ceiling = 0  # calls at once that it took
        self._raised_at = 0.0

    @property
    def account(self) -> ApiAccount:
        """Its budgets, made when they first matter."""
        if self._account is None:
            self._account = ApiAccount()
        return self._account

    @property
    def rationed(self) -> bool:
        """Whether it takes only so many requests a minute, as far as one knows."""
        return self._account is not None and self._account.requests.most is not None

    def closed(self, now: float) -> bool:
        """Whether nothing may be sent to it."""
        return now < self.closed_until or (
            self._account is not None and self._account.calls(now) < 1
        )

    def room(self, calls: int, now: float) -> float:
        """How many calls may be sent now, if so many are in flight."""
        if now < self.closed_until:
            return 0
        most = min(self.probing, self.window) if self.probing else self.window
        left = int(most) - calls if most < inf else inf
        if self._account is not None:
            left = min(left, int(few) if (few := self._account.calls(now)) < inf else inf)
        return max(0, left)

    def opens_at(self, now: float) -> float:
        """When something may be sent to it, if not now."""
        at = self.closed_until
        return max(at, self._account.opens_at(now)) if self._account is not None else at

    def answer(self, prompt: int, spec: WorkSpec) -> int:
        """Tokens of an answer that a call draws: all that it may have, as servers count until it
        has ended. One that counted so would take no call for which that is more than a minute has:
        of such a call what is expected."""
        most = spec.most_output or spec.answer_tokens
        fits = self._account is None or prompt + most <= self._account.tokens.size
        return most if fits else spec.answer_tokens

    def sent(self, tokens: Sequence[int], now: float, *, together: bool) -> None:
        """Slices of about so many tokens each go there. together: as one call."""
        if self._account is not None:
            for each in (sum(tokens),) if together else tokens:
                self._account.draw(each, now)

    def settled(self, more: int, sent: float, now: float) -> None:
        """A call that was sent then had so many more tokens than one thought."""
        if self._account is not None and more > 0:
            self._account.tokens.draw(more, now)
        elif self._account is not None:
            self._account.tokens.give_back(-more, sent, now)

    def refused(self, why: Refusal, batch: int, after: int, calls: int, now: float) -> float:
        """A call of this batch was refused; until when it is left alone. after: the number of the
        next batch. calls: still in flight there."""
        self.refusals += 1
        together = batch < self._batch
        if not together:
            self._batch, self._streak = after, self._streak + 1
            self._sent, self._refused = calls + 1, 0
            self._before = self.window, self._ceiling
        self._refused += 1
        if why.kind == "away":
            self.probing = 1
        elif self._account is None or self._account.calls(now) >= 1:
            self._narrow(now, minutely=why.after_s is not None and why.after_s > SECONDS)
        elif self._account is not None:
            self._account.refused(now, learn=False)
        if not together or why.after_s is not None:
            wait = self._back_off(AWAY_S if why.kind == "away" else FIRST_S)
            if why.after_s is not None and why.after_s > 0:
                wait = max(min(why.after_s, LONGEST_S), wait / 4)
            self.closed_until = max(self.closed_until, now + wait)
        return self.closed_until

    def late(self, calls: int, now: float, *, others: bool, again: bool) -> None:
        """A call gave no token in time, of so many in flight (again: it was late before). After two
        of them, or one that was a probe, one at a time is tried there, more and more seldom; of the
        only server, besides those that hang there."""
        self._overdue += not again
        if self._overdue < LATE and not self.probing:
            return
        self.probing = 1 if others else calls + 1
        if others:
            self._streak += 1
            self.closed_until = max(self.closed_until, now + self._back_off(FIRST_S))

    def _back_off(self, first_s: float) -> float:
        """Seconds to leave it alone that does not say for how long. first_s: the first time."""
        doubled = max(0, self._streak - 1)  # 0 if one came back since it was first refused
        delay = min(MOST_S, first_s * 2.0 ** min(doubled, DOUBLINGS))
        spread = crc32(f"{self._seed}/{self.refusals}/{self._streak}".encode()) / 2**32
        return delay * (0.5 + spread / 2)

    def _narrow(self, now: float, *, minutely: bool) -> None:
        """It takes no more calls at once than it kept; of which none was kept, half as many, unless
        it is so many a minute that it takes no more of."""
        taken = self._sent - self._refused
        if self._account is not None:
            learn = taken <= 0 and minutely and self._account.requests.used(now) > 1
            self._account.refused(now, learn=learn)
            if learn:
                self.window, self._ceiling = self._before
                return
        if taken > 0:
            self._ceiling, self.window = taken, min(self.window, taken)
        else:
            self._ceiling = max(1, self._sent - 1)
            self.window = max(1, min(self.window, self._sent) // 2)
        self._raised_at = now

    def began(self) -> None:
        """A call gave its first token."""
        self._overdue = self.probing = 0

    def came_back(self, calls: int, now: float) -> None:
        """A call came back, of so many that were in flight."""
        self.began()
        self._streak = 0
        if self._account is not None:
            self._account.came_back(now)
        if self.window == inf or calls < int(self.window):
            return
        if int(self.window) > self._ceiling:
            self._ceiling, self._raised_at = int(self.window), now
        top = self._ceiling + (now >= self._raised_at + RAISE_S)
        self.window = max(self.window, min(self.window + 1 / self.window, top))

    def restored(self) -> None:
        """It was replaced by a fresh one."""
        self.closed_until, self._streak, self._overdue, self.probing = 0.0, 0, 0, 0
