"""Eviction policies by name. To add one: a file here and a line below, `teola.register`, or an
entry point in the group `teola.policies` called `eviction.<name>` (docs/add-a-policy.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from teola.kv.policies.base import NEVER, Access, Policy, looks_ahead
from teola.kv.policies.first_in import FirstIn
from teola.kv.policies.gdfs import Gdfs
from teola.kv.policies.lfu import Lfu
from teola.kv.policies.lru import Lru
from teola.kv.policies.next_use import NextUse
from teola.kv.policies.workload_aware import WorkloadAware
from teola.registry import Factories

DEFAULT: Final = "lru"

POLICIES: Final[dict[str, Callable[..., Policy]]] = {
    "lru": Lru,
    "fifo": FirstIn,
    "lfu": Lfu,
    "gdfs": Gdfs,
    "workload_aware": WorkloadAware,
    "next_use": NextUse,
}
REGISTRY: Final = Factories("eviction policy", "teola.policies", POLICIES, [Policy], "eviction.")


def make_policy(name: str, **options: Any) -> Policy:
    """A fresh policy called `name`. Raises UnknownName, also for an option that it does not take,
    and InputError if what was made is no policy."""
    return REGISTRY.make(name, options)


__all__ = [
    "DEFAULT",
    "NEVER",
    "POLICIES",
    "REGISTRY",
    "Access",
    "Policy",
    "looks_ahead",
    "make_policy",
]
