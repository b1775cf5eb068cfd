"""Routing policies by name. To add one: a file here and a line below, `teola.register`, or an
entry point in the group `teola.policies` called `routing.<name>` (docs/add-a-policy.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from teola.policies.routing.base import ANY, Load, Loads, RoutingPolicy
from teola.policies.routing.least_loaded import LeastLoaded
from teola.policies.routing.prefix_affinity import PrefixAffinity
from teola.policies.routing.round_robin import RoundRobin
from teola.registry import Factories

DEFAULT: Final = "least_loaded"
"""What the paper routes by."""

ROUTING: Final[dict[str, Callable[..., RoutingPolicy]]] = {
    "least_loaded": LeastLoaded,
    "prefix_affinity": PrefixAffinity,
    "round_robin": RoundRobin,
}
REGISTRY: Final = Factories(
    "routing policy", "teola.policies", ROUTING, [RoutingPolicy], "routing."
)


def make(name: str, **options: Any) -> RoutingPolicy:
    """A fresh policy called `name`. Raises UnknownName, also for an option that it does not take,
    and InputError if what was made is no policy."""
    return REGISTRY.make(name, options)


__all__ = ["ANY", "DEFAULT", "REGISTRY", "ROUTING", "Load", "Loads", "RoutingPolicy", "make"]
