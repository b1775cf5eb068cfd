"""What one instance takes, where those of its engine are not alike.

    seconds = what its own least squares say  x  pace
              (those of its engine as prior)

The coefficients learn what kind of machine it is, from many calls. Its pace is learned from a few:
how much longer its last calls took than that, from being sent to their end. So one that slows down
is known after three of them, and one that recovers with its first call after a pause. Instances
that are alike have the times of their engine all the same: `LearnedProfiles` sees to that.

How much others at work slow it down is taken from the engine: of two that are always at work
together one could not tell who is slow and who is slowed down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final, NamedTuple

from teola.graph.ops import Op
from teola.learning.least_squares import LeastSquares

PRIOR_CALLS: Final = 16
"""So many calls of its own count as much as what is known of its engine."""
LAST: Final = 5
"""Calls that a pace is the median of."""
FEW: Final = 3
"""Calls after which it is known."""
LAST_S: Final = 20.0
"""A call that ended so much later than the one before it makes a pace of its own."""

Kind = Op | None
"""Op of a batch engine; None: calls of an LLM."""


class Whole(NamedTuple):
    """A call or a batch from being sent to its end, at `at`. quantities: of each term. others:
    instances at work beside it."""

    at: float
    kind: Kind
    quantities: Sequence[float]
    others: float
    seconds: float


class Known(NamedTuple):
    """Coefficients from an earlier time, the last one of the engine for crowding. own: of the
    instance; engine: of its engine (None: nobody knows)."""

    own: Sequence[float] | None = None
    engine: Sequence[float] | None = None


NOTHING: Final = Known()


class InstanceTimes:
    """Of one instance."""

    __slots__ = ("_known", "_last", "_squares", "is_known", "seen")

    def __init__(self) -> None:
        self._squares: dict[Kind, LeastSquares] = {}
        self._known: dict[Kind, Known] = {}
        self._last: deque[Whole] = deque(maxlen=LAST)
        self.is_known = False
        """Whether enough calls have ended there to say something of it."""
        self.seen = 0
        """Calls that ended well there."""

    def recall(self, kind: Kind, known: Known) -> None:
        """Begin with this."""
        self._known[kind] = known

    def add(
        self,
        kind: Kind,
        pool: LeastSquares,
        ridge: Sequence[float],
        quantities: Sequence[float],
        others: float,
        seconds: float,
    ) -> None:
        """A measurement, as that of its engine gets it. pool: the least squares of that."""
        own = self._squares.get(kind)
        if own is None:
            start = self._known.get(kind, NOTHING).own
            terms = ridge[: len(quantities)]
            own = self._squares[kind] = LeastSquares(terms, pool, PRIOR_CALLS, start)
        own.add(quantities, seconds / (1 + others * pool.latest[-1]))

    def ended(self, whole: Whole) -> None:
        """A call has ended well."""
        last = self._last
        if last and whole.at > last[-1].at + LAST_S:
            last.clear()
        last.append(whole)
        self.seen += 1
        self.is_known = self.is_known or len(last) >= FEW

    @property
    def kinds(self) -> Iterable[Kind]:
        """Of what work something was seen."""
        return dict.fromkeys((*self._squares, *(one.kind for one in self._last)))

    def coefficients(self, kind: Kind, pool: LeastSquares, enough: int) -> Sequence[float] | None:
        """As they are known, without the pace. enough: measurements after which those of the engine
        are known."""
        known = self._known.get(kind, NOTHING)
        if pool.count < enough:
            return known.own or known.engine
        own = self._squares.get(kind)
        if own is None:
            return known.own or pool.solve()
        return *own.solve(), pool.solve()[-1]

    def pace(self, coefficients: dict[Kind, Sequence[float]]) -> float:
        """Measured seconds of its last calls to those that these would have taken."""
        ratios = []
        for one in self._last:
            *terms, crowding = coefficients.get(one.kind) or (0.0,)
            alone = sum(a * b for a, b in zip(terms, one.quantities, strict=False))
            if alone > 0:
                ratios.append(one.seconds / (alone * (1 + crowding * one.others)))
        return median(ratios) if ratios else 1.0
