"""Batching policies by name. To add one: a file here and a line below, or an entry point in the
group `teola.policies` called `batching.<name>` (docs/add-a-policy.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from teola.policies.batching.base import BatchingPolicy
from teola.policies.batching.fifo import Fifo
from teola.policies.batching.per_invocation import PerInvocation
from teola.policies.batching.topology import Topology
from teola.policies.registry import find

BATCHING: Final[dict[str, Callable[..., BatchingPolicy]]] = {
    "topology": Topology,
    "fifo": Fifo,
    "per_invocation": PerInvocation,
}


def make(name: str, **options: Any) -> BatchingPolicy:
    """A fresh policy called `name`. Raises UnknownName."""
    policy: BatchingPolicy = find("batching", name, BATCHING)(**options)
    return policy


__all__ = ["BATCHING", "BatchingPolicy", "make"]
