"""round_robin: the instances take turns."""

from __future__ import annotations

from collections.abc import Sequence

from teola.policies.routing.base import Load


class RoundRobin:
    """The instance after the one that was used last comes first."""

    def __init__(self) -> None:
        self._last = -1

    def order(self, loads: Sequence[Load], now: float) -> Sequence[int]:
        return sorted((load.instance for load in loads), key=lambda i: (i <= self._last, i))

    def dispatched(self, instance: int, now: float) -> None:
        self._last = instance
