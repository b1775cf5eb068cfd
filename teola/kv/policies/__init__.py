"""Eviction policies by name. To add one: a file here and a line below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from teola.errors import UnknownName
from teola.kv.policies.base import Access, Policy
from teola.kv.policies.lru import Lru

POLICIES: Final[dict[str, Callable[..., Policy]]] = {"lru": Lru}


def make_policy(name: str, **options: Any) -> Policy:
    """A fresh policy called `name`. Raises UnknownName."""
    if name not in POLICIES:
        raise UnknownName("eviction policy", name, POLICIES)
    return POLICIES[name](**options)


__all__ = ["POLICIES", "Access", "Policy", "make_policy"]
