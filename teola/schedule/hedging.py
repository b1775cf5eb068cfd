"""Backup calls: a call whose first token is late may run a second time elsewhere. Sans I/O.

    sent ──▶ first token                                      most calls
    sent ──▶ later than 95 of 100 ──▶ a second try on an idle instance ──▶ whose token comes first,
                                                                            wins; the other is ended

The second try is no work of its own: the work stays in flight where it is, and a `Backup` says
where it runs besides. When that wins, it takes the place of the first one (`EngineQueue`).

There are at most `share` times as many as calls. One call in twenty is late by definition, though
nothing is wrong, and would use the share up. So a quarter of it is for calls that are twice as
late, such as those at a server that has become slow. A late call waits for its share, or for an
idle instance, until its token comes.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, NamedTuple

from teola.policies.work import Work, WorkKey
from teola.schedule.overdue import SOON_S, Overdue

AT: Final = 0.95
"""A second call is made when a first token is later than this share of all first tokens."""
ENOUGH: Final = 20
"""First tokens, of which one is later than that."""

FOR_LATE: Final = 0.75
"""So large a part of the share is for any call that is late; the rest for those that are twice as
late."""

LEAST_S: Final = 0.01
"""A first token that is later by less is not late, where all take the same time; and after which
one looks again whether a late call may run twice, at least."""


class Backup(NamedTuple):
    """A second try: on which instance, in which batch, since when."""

    instance: int
    batch: int
    sent: float


class EndingTry(NamedTuple):
    """A try that was ended, and has its place until its instance says so. items, weight: what it
    counts for there."""

    instance: int
    items: int
    weight: int


class Due(NamedTuple):
    """When one looks at a call that has given no token. batch: the one in which it was sent. sent:
    when. usual_s: within how many seconds of that 95 of 100 give one."""

    at: float
    batch: int
    key: WorkKey
    sent: float
    usual_s: float


class Hedging:
    """share: of an engine's calls, how many more there may be. made: second tries so far."""

    def __init__(self, share: float) -> None:
        self.share, self.made = share, 0
        self.running: dict[WorkKey, Backup] = {}
        self.ending: dict[tuple[WorkKey, int], EndingTry] = {}
        """By call and batch."""
        self._due: list[Due] = []
        self._alarm: float | None = None

    def sent(
        self, work: Work, batch: int, expected_s: float | None, firsts: Overdue, now: float
    ) -> None:
        """A call goes to an instance. expected_s: until its first token (None: nobody knows).
        firsts: how much longer than expected others took."""
        longer = firsts.longer(AT, ENOUGH)
        if expected_s is not None and longer is not None and may_run_twice(work):
            usual_s = longer * expected_s + LEAST_S
            key = work.run, work.primitive
            heappush(self._due, Due(now + usual_s, batch, key, now, usual_s))

    def again(self, due: Due, now: float) -> None:
        """No instance was idle, or the share is used up: look again when it is twice as late, and
        then after half of the time that it has taken, so that one does not look often."""
        twice = due.sent + 2 * due.usual_s
        later = twice if now < twice else now + (now - due.sent) / 2
        heappush(self._due, due._replace(at=max(later, now + LEAST_S)))

    def affords(self, calls: int, very_late: bool) -> bool:
        """Whether one more is not too many beside so many calls. very_late: twice as late as 95 of
        100."""
        return self.made < self.share * calls * (1.0 if very_late else FOR_LATE)

    def began(self, key: WorkKey, backup: Backup) -> None:
        """A second try was sent."""
        self.running[key] = backup
        self.made += 1

    def is_backup(self, key: WorkKey, batch: int) -> bool:
        """Whether the call of this batch is a second try, which runs now."""
        backup = self.running.get(key)
        return backup is not None and backup.batch == batch

    def late(self, now: float) -> list[Due]:
        """Calls that were to give a token by now: perhaps they have."""
        due: list[Due] = []
        if self._alarm is not None and self._alarm <= now + SOON_S:
            self._alarm = None
        while self._due and self._due[0].at <= now:
            due.append(heappop(self._due))
        return due

    def alarm(self) -> float | None:
        """When to look for late ones, if nobody is to look sooner already."""
        at = self._due[0].at if self._due else None
        if at is None or (self._alarm is not None and self._alarm <= at):
            return None
        self._alarm = at
        return at


def may_run_twice(work: Work) -> bool:
    """Whether it is a call by itself: no rows, and nobody counts what it takes."""
    return bool(work.spec.members) and not work.row_tokens and work.asker.budget is None
