"""Who else is at work: engines on one machine share its processors, and slow each other down.

    seconds = seconds alone x (1 + crowding x others at work meanwhile, on average)

Whether they share any, nobody has to say: where the others make no difference, `crowding` is
learned to be 0. What only waits (tools, searches in the web) does not count as work.
"""

from __future__ import annotations

from typing import Final

from teola.graph.ops import Op

WAITS: Final = frozenset({Op.TOOL_CALL, Op.WEB_SEARCH})


class AtWork:
    """Counts the instances of one runtime that are at work, over time."""

    def __init__(self) -> None:
        self._at_work, self._seconds, self._at = 0, 0.0, 0.0

    def came(self, now: float) -> None:
        """An instance begins to work."""
        self.seconds(now)
        self._at_work += 1

    def left(self, now: float) -> None:
        """An instance has ended its work."""
        self.seconds(now)
        self._at_work -= 1

    def seconds(self, now: float) -> float:
        """Seconds that all instances together have worked so far."""
        self._seconds += self._at_work * (now - self._at)
        self._at = now
        return self._seconds

    def others(self, before: float, passed: float, now: float) -> float:
        """How many others worked, on average, beside one that did for all of the `passed` seconds
        since the count was `before`."""
        return max(0.0, (self.seconds(now) - before) / passed - 1.0) if passed > 0 else 0.0


class Nobody(AtWork):
    """Where nobody shares a processor: in simulations of machines that have their own."""

    def came(self, now: float) -> None:
        """Does not count."""

    def left(self, now: float) -> None:
        """Does not count."""

    def others(self, before: float, passed: float, now: float) -> float:
        return 0.0
