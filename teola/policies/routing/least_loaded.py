"""least_loaded: fewest requests in flight; for LLMs, fewest occupied slots (paper, section 6.2)."""

from __future__ import annotations

from collections.abc import Iterable

from teola.policies.routing.base import Loads


class LeastLoaded:
    """The instance with the least work in flight comes first."""

    def order(self, loads: Loads, now: float) -> Iterable[int]:
        return (load.instance for load in loads)

    def dispatched(self, instance: int, now: float) -> None:
        pass
