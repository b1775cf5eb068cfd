"""Routing policies by name. To add one: a file here and a line below, or an entry point in the
group `teola.policies` called `routing.<name>` (docs/add-a-policy.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from teola.policies.registry import find
from teola.policies.routing.base import Load, Loads, RoutingPolicy
from teola.policies.routing.least_loaded import LeastLoaded
from teola.policies.routing.round_robin import RoundRobin

ROUTING: Final[dict[str, Callable[..., RoutingPolicy]]] = {
    "least_loaded": LeastLoaded,
    "round_robin": RoundRobin,
}


def make(name: str, **options: Any) -> RoutingPolicy:
    """A fresh policy called `name`. Raises UnknownName."""
    policy: RoutingPolicy = find("routing", name, ROUTING)(**options)
    return policy


__all__ = ["ROUTING", "Load", "Loads", "RoutingPolicy", "make"]
