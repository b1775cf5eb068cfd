"""What a routing policy is: in which order an engine's instances are offered the next batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Load(NamedTuple):
    """An instance that can take work now. load: weight in flight, relative to its size."""

    instance: int
    load: float


class RoutingPolicy(Protocol):
    """No I/O, no clock, no randomness; ties are broken by instance."""

    def order(self, loads: Sequence[Load], now: float) -> Sequence[int]:
        """Instances, the one to prefer first."""
        ...

    def dispatched(self, instance: int, now: float) -> None:
        """A batch went to `instance`."""
        ...
