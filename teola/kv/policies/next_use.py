"""next_use: the block that is read again latest, as far as that is known.

    its query has ended, and no other has read it     goes first, oldest first
    its graph says when (`Access.reads`)              worth 1 / (seconds until then)
    only its query has read it                        worth what queries' pauses say (`pauses.py`)
    others have read it, or nobody knows whose it is  worth P(read within life_s) / life_s, by what
                                                      was learned of its category (`fits.py`)

Worth is always reads for each second that the block is kept on, so that all are compared. What is
overdue is taken to be away from then on. Among equals the block deepest in its prompt goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from math import exp, expm1, inf
from sys import maxsize
from typing import ClassVar, Final, NamedTuple

from teola.engine import NextRead
from teola.kv.policies.base import Access
from teola.kv.policies.checked import positive_number, whole_number
from teola.kv.policies.fits import Fits
from teola.kv.policies.pauses import SAME_ACCESS_S, Pauses, guess
from teola.kv.policies.queues import Category, Queues
from teola.kv.policies.ranks import Ranks
from teola.kv.policies.workload_aware import category_of

NAME: Final = "next_use"
SOON_S: Final = 1e-3
UNKNOWN: Final = NextRead(maxsize, None)


class UseKind(NamedTuple):
    """What the worth of a block depends on, beside its age. own: only one query has read it; then
    `of` is the kind of that query's pause, else its category."""

    own: bool
    of: Category


class Held(NamedTuple):
    """A block, at its last access. query: whose it is alone (None: nobody's)."""

    kind: UseKind
    position: int
    query: Hashable
    next_s: float | None


class NextUse:
    """life_s: how far it looks ahead for what belongs to no query. window_s: how long what was seen
    counts. refit_s: how often it is summed up. min_samples: of reuse, for a category to have a fit
    of its own."""

    looks_ahead: ClassVar[bool] = True

    def __init__(
        self,
        life_s: float = 5.0,
        window_s: float = 3600.0,
        refit_s: float = 60.0,
        min_samples: int = 30,
    ) -> None:
        self._life = positive_number(NAME, "life_s", life_s, most=1e9)
        window, refit = (
            positive_number(NAME, "window_s", window_s),
            positive_number(NAME, "refit_s", refit_s),
        )
        few = whole_number(NAME, "min_samples", min_samples)
        self._fits = Fits(window, refit, few, SAME_ACCESS_S, lives=False)
        self._pauses = Pauses(window, refit)
        self._lower = False
        self._held: dict[int, Held] = {}
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._known, self._overdue = Ranks(), Ranks()
        self._others = Queues(self._worth)

    def below(self) -> NextUse:
        """It learns nothing of its own: what comes down to it was not read."""
        made = NextUse(self._life)
        made._fits, made._pauses, made._lower = self._fits, self._pauses, True
        return made

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        query, category, held = access.query, category_of(access), self._held
        own = None
        if query is not None:
            own = UseKind(True, self._pause(access, position, now))
        shared, common = UseKind(False, category), list[Hashable]()
        reads, until, next_s = iter(access.reads), 0, None
        for at, (block, key) in enumerate(zip(blocks, keys, strict=True), position):
            while at >= until:
                until, next_s = next(reads, UNKNOWN)
            before = held.get(block)
            if own is not None and (before is None or before.query == query):
                held[block] = Held(own, at, query, next_s)
            else:
                held[block] = Held(shared, at, None, None)
                common.append(key)
        if common and not self._lower:
            self._fits.access(common, category, now)
        self._others.changed()

    def _pause(self, access: Access, position: int, now: float) -> Category:
        """The kind of pause that the query begins."""
        if self._lower:
            return access.category, -1
        kind = self._pauses.access(access.query, access.category, now, begins=position == 0)
        if access.is_last:
            self._pauses.ended(access.query)
        return kind

    def offer(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            kind, position, _, next_s = self._held[block]
            if next_s is None:
                self._others.put(block, kind, position, now)
            elif next_s == inf:
                self._ended[block] = None
            else:
                self._known.put(block, -(now + next_s))
                self._overdue.put(block, now + next_s)

    def withdraw(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._take(block)

    def _take(self, block: int) -> None:
        if block in self._known:
            self._known.drop(block)
            self._overdue.drop(block)
        elif block in self._others:
            self._others.drop(block)
        else:
            del self._ended[block]

    def evict(self, now: float) -> int:
        block = self._choose(now)
        del self._held[block]
        return block

    def _choose(self, now: float) -> int:
        """Take out what goes first."""
        if self._ended:
            return self._ended.popitem(last=False)[0]
        while (due := self._overdue.first()) is not None and due[0] <= now:
            self._take(due[1])
            held = self._held[due[1]]
            self._others.put(due[1], held.kind, held.position, due[0])
        known, other = self._known.first(), self._others.first(now)
        if known is None or (other and other[0] < 1.0 / max(SOON_S, -known[0] - now)):
            return self._others.pop(now)
        self._take(known[1])
        return known[1]

    def _worth(self, kind: Category, last: float, now: float) -> float:
        assert isinstance(kind, UseKind)
        if kind.own:
            return self._pauses.worth(kind.of, now - last)
        fit = self._fits.of(kind.of)
        if fit is None:
            return guess(now - last)
        within = -expm1(-fit.rate * self._life)
        return fit.reused * exp(-fit.rate * max(0.0, now - last)) * within / self._life
