"""least_loaded: the instance with the least work in flight; of LLMs, the one whose KV memory is
occupied least (paper, section 6.2)."""

from __future__ import annotations

from teola.policies.routing.base import RoutingPolicy


class LeastLoaded(RoutingPolicy):
    """What every policy does by default."""
