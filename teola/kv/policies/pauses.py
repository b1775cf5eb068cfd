"""When queries come back for what they left in the cache: learned from those that did.

A query's accesses make pauses, from one to the next, of the category of the earlier one. What has
not come back yet is censored, not lost (Kaplan, Meier 1958). Whoever was away for long will be so
again: a category is told apart by the magnitude of the query's last pause.

    worth(age) = max over s of P(back within s | away for age) / E[time until then, or s | away]

is what keeping a block brings, in reads for each second of its room (an index of Gittins'; hit
density in Beckmann et al., LHD, NSDI 2018). It is kept as a table over ages of equal ratio.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from itertools import accumulate
from math import inf, log
from typing import Final, NamedTuple, TypeVar

from teola.kv.policies.queues import Category

PauseKind = TypeVar("PauseKind", bound=Hashable)

AGES: Final = (0.0, *(0.25 * 1.2**k for k in range(62)))
"""Where the bins of ages begin, in seconds, up to 5 hours."""
MAGNITUDE: Final = 4.0
MAGNITUDES: Final = 5
SAME_ACCESS_S: Final = 0.3
"""Accesses that are no further apart are taken for one."""
FEW_PAUSES: Final = 10
"""Pauses, ended or not, for a kind to be known by itself; else it is taken as all together."""
PRIOR: Final = 1.0
"""Pauses of no end that each category is taken to have had: one return proves little."""


class Away(NamedTuple):
    """A query that may come back. since: its last access. kind: of the pause, as it is learned."""

    since: float
    kind: Category


class Pauses:
    """Learns from `access`, and publishes anew every `refit_s`. Forgets who is away for longer than
    `window_s`; of pauses that have ended, half in so long a time."""

    def __init__(self, window_s: float, refit_s: float) -> None:
        self._window, self._refit = window_s, refit_s
        self._away: OrderedDict[Hashable, Away] = OrderedDict()
        self._back: dict[Category, list[float]] = {}
        self._given_up: dict[Category, list[float]] = {}
        self._due = -inf
        self._worth: dict[Category, Sequence[float]] = {}
        self._all: Sequence[float] | None = None

    def access(
        self, query: Hashable, category: Category, now: float, *, begins: bool = True
    ) -> Category:
        """A query used the cache; the kind of pause that begins now. begins: not with more blocks
        of a request that it has told of."""
        away, last = self._away.pop(query, None), -1
        if away is not None:
            pause = now - away.since
            if not begins or pause <= SAME_ACCESS_S:
                self._away[query] = Away(now, away.kind)
                return away.kind
            count_pause(self._back, away.kind, pause)
            last = magnitude(pause)
        kind = category, last
        self._away[query] = Away(now, kind)
        if now >= self._due:
            self._due = now + self._refit
            self.fit(now)
        return kind

    def ended(self, query: Hashable) -> None:
        """It will not come back, as is known: nothing is learned of that."""
        self._away.pop(query, None)

    def fit(self, now: float) -> None:
        """Publish what is known."""
        oldest = now - self._window
        while self._away and (first := next(iter(self._away.items())))[1].since < oldest:
            del self._away[first[0]]
            count_pause(self._given_up, first[1].kind, now - first[1].since)
        left = {kind: [*ages] for kind, ages in self._given_up.items()}
        for away in self._away.values():
            count_pause(left, away.kind, now - away.since)
        nothing = [0.0] * len(AGES)
        kinds = [*self._back.keys() | left.keys()]
        pairs = [(self._back.get(kind, nothing), left.get(kind, nothing)) for kind in kinds]
        self._worth = {
            kind: worth(*pair)
            for kind, pair in zip(kinds, pairs, strict=True)
            if sum(map(sum, pair)) >= FEW_PAUSES
        }
        if sum(sum(map(sum, pair)) for pair in pairs) >= FEW_PAUSES:
            back, gone = (
                [sum(bins) for bins in zip(*of, strict=True)] for of in zip(*pairs, strict=True)
            )
            self._all = worth(back, gone)
        fades = 0.5 ** (self._refit / self._window)
        for counts in (*self._back.values(), *self._given_up.values()):
            counts[:] = [each * fades for each in counts]

    def worth(self, kind: Category, age: float) -> float:
        """Reads for each second that a block is kept on, whose query has been away so long."""
        table = self._worth.get(kind, self._all)
        return guess(age) if table is None else table[bisect_right(AGES, max(0.0, age)) - 1]


def guess(age: float) -> float:
    """As long as nothing is known: it comes back after as long again."""
    return 1.0 / (1.0 + max(0.0, age))


def magnitude(pause_s: float) -> int:
    """Of a pause, by which the next ones are told apart."""
    return min(MAGNITUDES, int(log(max(pause_s, 1.0), MAGNITUDE)))


def count_pause(bins: dict[PauseKind, list[float]], kind: PauseKind, age: float) -> None:
    """Add a pause of this age."""
    bins.setdefault(kind, [0.0] * len(AGES))[bisect_right(AGES, max(0.0, age)) - 1] += 1.0


def return_rates(back: Sequence[float], left: Sequence[float]) -> list[float]:
    """At the beginning of each bin of ages: the most returns for each second that one can have by
    waiting until the beginning of a later one. back: pauses that ended in each bin; left: those of
    which so much is known that they lasted until then."""
    risk = PRIOR + sum(back) + sum(left)
    points, away, area = [(0.0, 1.0)], 1.0, 0.0
    for k in range(len(AGES) - 1):
        staying = away * (1.0 - back[k] / (risk - left[k] / 2)) if back[k] else away
        area += (away + staying) / 2 * (AGES[k + 1] - AGES[k])
        away, risk = staying, risk - back[k] - left[k]
        points.append((area, away))
    # The steepest way down from each point to a later one: those lie on the hull of what follows.
    found, hull = [0.0] * len(AGES), list[tuple[float, float]]()
    for k in range(len(AGES) - 1, -1, -1):
        while len(hull) > 1 and _fall(points[k], hull[-2]) >= _fall(points[k], hull[-1]):
            hull.pop()
        if hull:
            found[k] = _fall(points[k], hull[-1])
        hull.append(points[k])
    return found


def worth(back: Sequence[float], left: Sequence[float]) -> list[float]:
    """The same, and never less than at a later age: what is kept until then is kept now."""
    return list(accumulate(reversed(return_rates(back, left)), max))[::-1]


def _fall(here: tuple[float, float], there: tuple[float, float]) -> float:
    return (here[1] - there[1]) / max(there[0] - here[0], 1e-9)
