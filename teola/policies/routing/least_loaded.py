"""least_loaded: fewest requests in flight; for LLMs, fewest occupied slots (paper, section 6.2)."""

from __future__ import annotations

from collections.abc import Sequence

from teola.policies.routing.base import Load


class LeastLoaded:
    """The instance with the least work in flight comes first."""

    def order(self, loads: Sequence[Load], now: float) -> Sequence[int]:
        return [load.instance for load in sorted(loads, key=lambda load: load[::-1])]

    def dispatched(self, instance: int, now: float) -> None:
        pass
