"""workload_aware: the block that is least likely to be read again within the next `life_s` seconds,
by what was learned of its category; of those that are equal, the one deepest in its prompt.

    P = reused * (exp(-rate * t) - exp(-rate * (t + life)))      t: seconds since its last use

Categories are those of whole requests: app, component and turn of the conversation (from the fifth
on as one). A category of which too little is known is taken for the mean of all; as long as nothing
is known, the least recently used goes first. P is not conditioned on "not read until t": an
exponential has no memory, and would not order the blocks of a category.

Blocks of a category are in a queue, by their last use: its front has its least P. So only fronts
are compared, one for each category, by log P, which does not underflow.

    KVCache Cache in the Wild, USENIX ATC 2025.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import expm1, inf, log
from typing import Final, Literal

from teola.errors import InputError
from teola.kv.policies.base import Access
from teola.kv.policies.checked import positive_number, whole_number
from teola.kv.policies.fits import Fit, Fits
from teola.kv.policies.queues import Category, Queues

NAME: Final = "workload_aware"
LAST_TURN: Final = 4


def category_of(access: Access) -> Category:
    """What is told apart: app, component, and the turn, from the fifth on as one."""
    return access.category, min(access.turn, LAST_TURN)


class WorkloadAware:
    """life_s: how far it looks ahead; it has to be well below the times after which blocks are read
    again ("fitted": for each category, the median time from the first access to the last one).
    window_s: how long what was seen counts. refit_s: how often it is summed up. min_samples: of
    reuse, for a category to have a fit of its own. same_s: accesses that are no further apart are
    taken for one."""

    def __init__(
        self,
        life_s: float | Literal["fitted"] = 5.0,
        window_s: float = 3600.0,
        refit_s: float = 60.0,
        min_samples: int = 30,
        same_s: float = 0.3,
    ) -> None:
        fitted = life_s == "fitted"
        if isinstance(life_s, str) and not fitted:
            raise InputError(
                f"eviction policy {NAME!r}: life_s must be a number above 0 or 'fitted', "
                f"got {life_s!r}"
            )
        self._life = None if fitted else positive_number(NAME, "life_s", life_s)
        window, refit = (
            positive_number(NAME, "window_s", window_s),
            positive_number(NAME, "refit_s", refit_s),
        )
        if refit > window:
            raise InputError(
                f"eviction policy {NAME!r}: refit_s must not be more than window_s, or nothing "
                f"would be left to fit; got {refit_s!r} and {window_s!r}"
            )
        few, same = (
            whole_number(NAME, "min_samples", min_samples),
            positive_number(NAME, "same_s", same_s, above=False),
        )
        self.fits = Fits(window, refit, few, same, lives=fitted)
        self._lower = False
        self._seen: dict[int, tuple[Category, int]] = {}
        self._offered = Queues(self._worth)
        self._curves: dict[Category, tuple[float, float] | None] = {}
        self._fitted_by = self.fits.published

    def below(self) -> WorkloadAware:
        """It learns nothing of its own: what comes down to it was not read."""
        made = WorkloadAware()
        made._life, made.fits, made._lower = self._life, self.fits, True
        return made

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        category, seen = category_of(access), self._seen
        for at, block in enumerate(blocks, position):
            seen[block] = category, at
        if not self._lower:
            self.fits.access(keys, category, now)
        self._offered.changed()

    def offer(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            self._offered.put(block, *self._seen[block], now)

    def withdraw(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._offered.drop(block)

    def evict(self, now: float) -> int:
        block = self._offered.pop(now)
        del self._seen[block]
        return block

    def _worth(self, category: Category, last: float, now: float) -> float:
        curve = self._curve(category)
        if curve is None:
            return last
        return curve[0] - curve[1] * max(0.0, now - last)

    def _curve(self, category: Category) -> tuple[float, float] | None:
        """log P at the last use, and by how much it falls a second; None: nothing is known."""
        if self._fitted_by is not self.fits.published:
            self._fitted_by, self._curves = self.fits.published, {}
        if category not in self._curves:
            self._curves[category] = self._fitted(self.fits.of(category))
        return self._curves[category]

    def _fitted(self, fit: Fit | None) -> tuple[float, float] | None:
        if fit is None:
            return None
        life = fit.life_s if self._life is None else self._life
        within = -expm1(-fit.rate * life)
        return (log(fit.reused * within) if fit.reused * within > 0 else -inf), fit.rate
