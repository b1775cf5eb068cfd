"""How much slower or faster one instance is than its engine on average.

    seconds of an instance = those of its engine x slowness

A slowness is the median of its last calls: how long each took from being sent to its end, to what
the engine's times say of such a call. A call whose first token is late counts before it ends, with
the time that it had until then, up to three times, and again when it ends: an instance that takes
minutes is to be known before they are over. So a slowness is known after three calls. One that
slows down shows after one to three more, and one that recovers with its first call after a pause.
It is one figure, and no least squares of its own: those would tell two machines of one kind apart
by terms that calls cannot tell apart, and policies compare instances.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from teola.graph.ops import Op
from teola.learning.lessons import Slowness

LAST: Final = 5
"""Calls that a slowness is the median of."""
FEW: Final = 3
"""Calls after which it is known."""
LAST_S: Final = 20.0
"""A call that ended so much later than the one before it counts alone."""

WorkKind = Op | None
"""Op of a batch engine; None: calls of an LLM."""


class WholeCall(NamedTuple):
    """A call or a batch from being sent to its end, at `at`. quantities: of each term. others:
    instances at work beside it."""

    at: float
    kind: WorkKind
    quantities: Sequence[float]
    others: float
    seconds: float


class Pace:
    """How slow one instance is."""

    __slots__ = ("_known", "_last", "seen")

    def __init__(self) -> None:
        self._last: deque[WholeCall] = deque(maxlen=LAST)
        self._known = False
        self.seen = 0
        """Calls that ended well there, and how often one was late."""

    def ended(self, whole: WholeCall) -> None:
        """A call has ended well, or is late."""
        last = self._last
        if last and whole.at > last[-1].at + LAST_S:
            last.clear()
        last.append(whole)
        self.seen += 1
        self._known = self._known or len(last) >= FEW

    def slowness(self, times: Mapping[WorkKind, Sequence[float]]) -> Slowness | None:
        """How slow the instance is by its last calls (None: too few). times: the engine's
        coefficients by kind of work, the last one of each for others at work."""
        ratios = []
        for call in self._last if self._known else ():
            *terms, crowding = times.get(call.kind) or (0.0,)
            alone = sum(a * b for a, b in zip(terms, call.quantities, strict=False))
            if alone > 0:
                ratios.append(call.seconds / (alone * (1 + crowding * call.others)))
        return Slowness(median(ratios), self.seen) if ratios else None
