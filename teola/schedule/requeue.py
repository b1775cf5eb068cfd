"""Works that are queued anew: after a failure, or because their instance is not to be had."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from itertools import chain, islice, takewhile
from math import inf
from typing import Final

from teola.policies.routing.base import MOST_HELD_S, holdable
from teola.policies.work import Work
from teola.schedule.events import Cause
from teola.schedule.instances import LOOKS_S, Instances
from teola.schedule.placing import Placing
from teola.schedule.waiting_line import WaitingLine

LOOKED_AT: Final = 32
"""Works of which one is chosen that can wait."""
LOOKS_ANYWAY_S: Final = 5 * LOOKS_S
"""An instance that has had nothing for so long is looked at, whatever the call may lose by it."""
FEW: Final = 8
"""Works that may be bound anew in one round because an instance has nothing to do."""
RETRY_BUDGET: Final = 0.1
RETRY_FLOOR: Final = 10
"""Retries may be 10 % of an engine's requests, and always at least this many. What was on an
instance that is gone is no retry in that sense: it adds nothing to what the engine had to do
(docs/decisions/0036-deaths-outside-the-budget.md)."""


class Requeue:
    """Another try is a work of its own in the place of the old one, because policies have to forget
    that. requests, retries: so far. budgeted: retries that count against the budget."""

    def __init__(
        self,
        works: MutableMapping[tuple[str, int], Work],
        line: WaitingLine,
        placing: Placing,
        instances: Instances,
    ) -> None:
        self._works, self._line, self._placing = works, line, placing
        self._instances = instances
        self.requests = self.retries = self.budgeted = 0
        self._avoided: set[int] = set()
        """Instances that something queued may be kept from."""

    def may_retry(self, work: Work, cause: Cause) -> bool:
        """Whether what failed for this reason may be tried again."""
        return (
            cause.retryable
            and not work.streamed
            and work.tries < work.spec.retries + work.excused
            and (cause.lost or self.affordable)
        )

    @property
    def affordable(self) -> bool:
        """Whether the budget has room for one more."""
        return self.budgeted < max(RETRY_FLOOR, RETRY_BUDGET * self.requests)

    def retry(self, old: Work, cause: Cause, lo: int, hi: int, instance: int, now: float) -> None:
        """Queue the failed slice, with what is still queued of the same primitive, anew."""
        self._line.remove(old, now)
        self.retries += 1
        self.budgeted += not cause.lost
        avoid = instance if self._instances.others(instance, now) else -1
        spans = [(lo, hi), *old.spans]
        self._again(replace(old, spans=spans, home=-1, avoid=avoid, queued=True), now)

    def may_move(self, work: Work, cause: Cause, now: float) -> bool:
        """Whether what a server refused may go on waiting, or elsewhere. That it takes no more now
        costs no try; that it is not there costs one, while another is."""
        assert cause.refused is not None
        if cause.refused.kind == "busy" or not any(one.usable(now) for one in self._instances):
            work.excused += 1
        return work.tries < work.spec.retries + work.excused

    def back(self, old: Work, lo: int, hi: int, instance: int, now: float, *, away: bool) -> None:
        """Queue the refused slice where it stood, with what is still queued of its primitive. away:
        its server is not there, and it is not the work that looks whether it is again."""
        self._line.remove(old, now)
        avoid = instance if away and self._instances.others(instance, now) else old.avoid
        elsewhere = old.home == instance and len(self._instances) > 1
        home = -1 if elsewhere else old.home
        self._again(
            replace(old, spans=[(lo, hi), *old.spans], home=home, avoid=avoid, queued=True), now
        )

    def rows(self, old: Work, spans: list[tuple[int, int]], avoid: int, now: float) -> None:
        """Queue a window of rows anew, with these of it to be sent. Its rows count their tries
        themselves, so it costs the window none."""
        self._line.remove(old, now)
        excused = old.excused + 1
        self._again(replace(old, spans=spans, avoid=avoid, queued=True, excused=excused), now)

    def unbind(self, i: int, now: float) -> None:
        """What should have gone to instance `i` may go elsewhere, and is computed anew there.

        That is another try, which costs none; fifo puts it before the others, hence the order.
        """
        for old in reversed(list(self._works.values())):
            if old.affinity == i and old.queued:
                self._elsewhere(old, -1 if old.home == i else old.home, now)

    def rebind(self, now: float, most: int | None = None) -> None:
        """Ask the routing again for those that are bound without a home and wait. most: how many of
        the oldest."""
        bound = (w for w in self._works.values() if w.queued and w.affinity >= 0 and w.home < 0)
        for old in list(islice(bound, most)):
            before, found = old.affinity, old.found
            self._placing.bind(old, now)
            at, finds = old.affinity, old.found
            old.affinity, old.found = before, found  # as it was counted
            if at != before:
                self._elsewhere(old, -1, now)
            elif finds != found:
                self._line.asking.left(old)
                old.found = finds
                self._line.asking.queued(old)

    def reconsider(self, now: float) -> None:
        """Before a round: what is held may go, what waits for a busy instance to an idle one, and
        what failed on one to that again, if no other takes anything."""
        for i in [i for i in self._avoided if not self._instances.others(i, now)]:
            self._avoided.discard(i)
            for work in self._works.values():
                work.avoid = -1 if work.avoid == i else work.avoid
            self._line.asking.forget()
        if self._placing.early:
            if self._line.held:
                self._free(now)
            if self._line.asking.bound and self._instances.open(now).idle:
                self.rebind(now, FEW)
        if self._instances.slowness and self._placing.learns and self._line.ready:
            prefers, waiting = self._line.asking.preference, self._line.asking.free_calls
            for i in list(self._instances.due(now)):
                if prefers is None or prefers.takes(i, waiting, now):
                    self._look(i, now)

    def _look(self, i: int, now: float) -> None:
        """Let a work go to instance `i`, to see whether that is as slow as it was: of the oldest
        the one that can wait longest. It keeps its query's objective even if the instance is as
        slow as before; where none does, the instance is looked at less often."""
        instance, slowness = self._instances[i], self._instances.slowness[i]
        most = instance.limits.max_batch
        least_s = -inf if now >= instance.sent_at + LOOKS_ANYWAY_S else 0.0
        able = (
            work
            for work in islice(self._works.values(), LOOKED_AT)
            if work.queued
            and (work.run, work.primitive) not in self._line.held
            and work.home < 0
            and not work.row_tokens
            and work.avoid != i
            and work.total <= most
            and work.spans == [(0, work.total)]
            and work.deadline > now + LOOKS_S
            and _spare_s(work, slowness, now) > least_s
        )
        old = max(able, key=lambda work: _can_wait(work, slowness, now), default=None)
        if old is None or old.affinity == i:
            return
        self._line.remove(old, now)
        self._placing.left(old, now)
        work = replace(old, queued=True, tries=old.tries + 1, excused=old.excused + 1)
        self._works[work.run, work.primitive] = work
        self._placing.send_to(work, i)
        self._line.add(work, now)

    def _free(self, now: float) -> None:
        """Ask the routing again for what it holds: what it names, and what waited long enough."""
        held = self._line.held
        again = list(takewhile(lambda work: not holdable(work, now), held.values()))
        for work in chain(again, self._placing.free(now)):
            if held.get((work.run, work.primitive)) is not work:
                continue
            if not self._placing.bind(work, now, may_hold=True):
                self._line.release(work, now)

    def wake(self, now: float) -> float | None:
        """When to begin a round though nothing has happened."""
        asked = self._line.asking.wake(now) if self._line.ready else None
        opens = self._instances.opens_at(now)
        if not self._line.held:
            return min((at for at in (asked, opens) if at is not None), default=None)
        wanted = self._placing.wake_at(now)
        due = next(iter(self._line.held.values())).arrival + MOST_HELD_S
        times = (at for at in (due, asked, wanted) if at is not None and (at > now or at == due))
        return min(times) if opens is None else min(*times, opens)

    def _elsewhere(self, old: Work, home: int, now: float) -> None:
        self._line.remove(old, now)
        self._again(replace(old, home=home, queued=True, excused=old.excused + 1), now)

    def _again(self, work: Work, now: float) -> None:
        work.tries += 1
        if work.avoid >= 0:
            self._avoided.add(work.avoid)
        self._works[work.run, work.primitive] = work
        self._placing.bind(work, now)
        self._line.add(work, now)


def _spare_s(work: Work, slowness: float, now: float) -> float:
    """Seconds between the end of the query and its objective, if this call takes `slowness` times
    as long as expected and the rest does not."""
    estimate = work.spec.estimate
    takes_s = estimate.rest_s + work.behind_s + (slowness - 1) * estimate.call_s
    return work.asker.finish_by - now - takes_s


def _can_wait(work: Work, slowness: float, now: float) -> tuple[float, float, float]:
    """The more, the longer: seconds to spare until its objective, until when its query runs, and
    when the work is to begin."""
    begins = work.began + work.spec.estimate.latest_s
    return _spare_s(work, slowness, now), work.deadline, begins
