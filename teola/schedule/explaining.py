"""Why works go where they go (`Work.reason`), noted while somebody observes.

What was bound when it was queued, its routing policy explains (`RoutingPolicy.why`). What was left
to whoever has room is explained here, by what puts instances in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from teola.policies.reason import Because, Hold, Reason
from teola.policies.routing.base import HELD, RoutingPolicy
from teola.policies.work import Slice, Work
from teola.schedule.asking import Asking
from teola.schedule.instances import Instances


class Explaining:
    """Says of the works of one engine why they go where they go."""

    def __init__(self, routing: RoutingPolicy, instances: Instances, asking: Asking) -> None:
        self._routing, self._instances, self._asking = routing, instances, asking
        self._by_load = type(routing).order is RoutingPolicy.order
        routing.explains = True

    def bound(self, work: Work, before: int, held: bool, now: float) -> None:
        """A work has just been bound, left free (ANY), or is held. before: where it was bound."""
        last, at = work.reason, work.affinity
        holds = last.until(now).holds if last is not None else ()
        if held:
            reason = self._routing.why(work, HELD, now)
            work.reason = reason._replace(holds=holds, since=now)
        elif at < 0:
            work.reason = Reason(Because.ROOM, holds=holds) if holds else None
        elif at != before or last is None:
            total = work.tokens if work.keys else 0
            work.reason = self._placed(work, at, now)._replace(
                instances=len(self._instances), found=work.found, total=total, holds=holds
            )

    def looks(self, work: Work) -> None:
        """A work has been bound to an instance to see how long that takes by now."""
        last = work.reason
        holds = last.holds if last is not None else ()
        work.reason = Reason(Because.LOOKS, instances=len(self._instances), holds=holds)

    def _placed(self, work: Work, at: int, now: float) -> Reason:
        if len(self._instances) == 1:
            return Reason(Because.ONLY)
        if at == work.home:
            return Reason(Because.HOME)
        return self._routing.why(work, at, now)

    def sent(self, i: int, slices: Sequence[Slice], now: float) -> None:
        """A batch has just been sent to instance `i`, perhaps with what was bound to none."""
        free = [work for work, _, _ in slices if work.affinity < 0]
        if free:
            reason = self._taken(i, sum(work.weighs(hi - lo) for work, lo, hi in slices), now)
            for work in free:
                holds = work.reason.holds if work.reason is not None else ()
                work.reason = reason._replace(instances=len(self._instances), holds=holds)
        clock = self._instances.limited_s(now)
        for work, _, _ in slices if clock else ():
            if clock > work.limited_from and work.reason is not None:
                limit = Hold(Because.LIMIT, clock - work.limited_from)
                others = (hold for hold in work.reason.holds if hold.because is not Because.LIMIT)
                work.reason = work.reason._replace(holds=(*others, limit))

    def _taken(self, i: int, tokens: int, now: float) -> Reason:
        """Why instance `i` took what was bound to none. tokens: of the batch, which counts there
        already."""
        instances = self._instances
        if len(instances) == 1:
            return Reason(Because.ONLY)
        if (prefers := self._asking.preference) is not None:
            return Reason(Because.DEARER if prefers.dearer(i) else Because.CHEAPEST)
        if not self._by_load:
            return Reason(self._routing.ordered)
        next_best = next(
            (candidate for candidate in instances.open(now) if candidate.instance != i), None
        )
        own_tokens = instances[i].context - tokens
        load = own_tokens / instances[i].limits.max_batch
        if next_best is None or (next_best.load < load and not instances.slowness):
            return Reason(Because.ROOM)
        if slowness := instances.slowness:
            ours, its = load * slowness[i], next_best.load * slowness[next_best.instance]
            return Reason(Because.SPEED, "", ours, its, next_best.instance)
        there = instances[next_best.instance]
        if there.limits.max_batch != instances[i].limits.max_batch:
            return Reason(Because.LOAD, "", load, next_best.load, next_best.instance)
        return Reason(Because.LOAD, "tokens", own_tokens, there.context, next_best.instance)
