"""prefix_groups: calls in groups by how much of their prompts is kept, the better kept more often.

(Preble, ICLR 2025, section 4.6.) Of P groups, group g holds calls of whose prompt the instance
keeps g / P or more; a group's weight is g + 1. Places of a batch go round by smooth weighted round
robin: every group that has something gains its weight, the one with most credit gets the place and
pays the weights of all. So shares are exact, and with ten groups the last one gets one place in 55:
what is found does not have to be computed, and what is new does not starve.

Within a group the first to come is the first to go. What an instance keeps is looked up anew for
each batch. A batch of other work than LLM calls is in order of arrival: nothing of it is kept.
"""

from __future__ import annotations

from typing import ClassVar, Final

from teola.errors import InputError
from teola.policies.routing.base import EngineView, found_tokens
from teola.policies.work import Slice, Slots, Taker, Work

MOST: Final = 1000
"""Groups."""


class PrefixGroups:
    """groups: how many."""

    eager = True
    wants_keys: ClassVar[bool] = True

    def __init__(self, groups: int = 10) -> None:
        if isinstance(groups, bool) or not isinstance(groups, int) or not 0 < groups <= MOST:
            raise InputError(
                f"batching policy 'prefix_groups': groups must be a whole number from 1 to {MOST}, "
                f"got {groups!r}"
            )
        self.groups = groups
        self._view: EngineView | None = None
        self._queue: dict[tuple[str, int], Work] = {}
        self._kept: dict[tuple[str, int], dict[int, int]] = {}
        """Blocks of each queued call's prompt that instances kept when one last looked."""
        self._credit = [0] * groups
        self._offered: list[tuple[Work, list[int]]] = []
        """Works of the last batch, each with the credits after it."""

    def attach(self, view: EngineView) -> None:
        self._view = view

    def add(self, work: Work, now: float) -> None:
        self._queue[work.run, work.primitive] = work

    def remove(self, work: Work, now: float) -> None:
        key = work.run, work.primitive
        if self._queue.get(key) is work:
            del self._queue[key]
            self._kept.pop(key, None)
        for offered, credit in self._offered:
            if offered is work and work.flying:
                self._credit = credit

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        taker = Taker(slots)
        works = sorted(self._queue.values(), key=lambda w: (w.arrival, w.seq, w.tries))
        first = next((work for work in works if taker.fits(work)), None)
        waiting: dict[int, list[Work]] = {}
        for work in reversed(works):
            if taker.fits(work) and first is not None and work.spec.lane is first.spec.lane:
                group = self.group(work, self._found(work, slots.instance))
                waiting.setdefault(group, []).append(work)
        credit, self._offered = self._credit.copy(), []
        for group in range(self.groups):
            if group not in waiting:
                credit[group] = 0
        while waiting and taker.room:
            group = next_group(waiting, credit)
            work = waiting[group].pop()
            if not waiting[group]:
                del waiting[group]
                credit[group] = 0
            before = len(taker.slices)
            has_room = taker.take(work)
            if len(taker.slices) > before:
                self._offered.append((work, credit.copy()))
                if not has_room:
                    break
        return taker.slices

    def wake_at(self, now: float) -> float | None:
        return None

    def group(self, work: Work, found: int) -> int:
        """The group of a work of which so many tokens are kept."""
        return min(self.groups - 1, found * self.groups // work.tokens) if work.tokens > 0 else 0

    def _found(self, work: Work, i: int) -> int:
        """Tokens of its prompt that an instance keeps now."""
        if self._view is None or not work.keys:
            return 0
        kept = self._kept.setdefault((work.run, work.primitive), {})
        kept[i] = self._view.depth(i, work.keys, kept.get(i, 0))
        return found_tokens(work, kept[i], self._view.limits[i].block_tokens)


def next_group(waiting: dict[int, list[Work]], credit: list[int]) -> int:
    """The group whose turn it is, by smooth weighted round robin; it pays for it."""
    for group in waiting:
        credit[group] += group + 1
    turn = max(waiting, key=lambda group: (credit[group], group))
    credit[turn] -= sum(group + 1 for group in waiting)
    return turn
