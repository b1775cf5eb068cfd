"""round_robin: the instances take turns."""

from __future__ import annotations

from collections.abc import Iterable

from teola.policies.reason import Because
from teola.policies.routing.base import Dispatched, Happening, Loads, RoutingPolicy


class RoundRobin(RoutingPolicy):
    """The instance after the one that was used last comes first."""

    observes = (Dispatched,)
    ordered = Because.TURN

    def __init__(self) -> None:
        self._last = -1

    def order(self, loads: Loads, now: float) -> Iterable[int]:
        return (load.instance for load in loads.after(self._last))

    def observe(self, event: Happening, now: float) -> None:
        if isinstance(event, Dispatched):
            self._last = event.instance
