"""Batching policies by name. To add one: a file here and a line below, `teola.register`, or an
entry point in the group `teola.policies` called `batching.<name>` (docs/add-a-policy.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from teola.errors import InputError
from teola.policies.batching.base import BatchingPolicy, is_whole
from teola.policies.batching.critical_path import CriticalPath
from teola.policies.batching.fair import Fair
from teola.policies.batching.fifo import Fifo
from teola.policies.batching.per_invocation import PerInvocation
from teola.policies.batching.prefix_groups import PrefixGroups
from teola.policies.batching.topology import Topology
from teola.policies.batching.urgency import Urgency
from teola.policies.routing import ORDER_AND_ROUTING
from teola.registry import Factories

DEFAULT: Final = "critical_path"
"""Why: decision 0012; how it compares: experiments.ablation_scheduling."""


def _fair(
    inner: str = DEFAULT,
    inner_options: Mapping[str, Any] | None = None,
    by: str = "both",
    weights: Mapping[str, float] | None = None,
) -> Fair:
    def made() -> BatchingPolicy:
        policy = make(inner, **(inner_options or {}))
        if is_whole(policy):
            raise InputError(
                f"batching policy 'fair': {inner!r} decides for all where work goes, too, and "
                "cannot be inside it; take inner='urgency' with the routing 'workload_balanced'"
            )
        return policy

    return Fair(made, by, weights or {})


BATCHING: Final[dict[str, Callable[..., BatchingPolicy]]] = {
    "topology": Topology,
    "fifo": Fifo,
    "per_invocation": PerInvocation,
    "critical_path": CriticalPath,
    "fair": _fair,
    "prefix_groups": PrefixGroups,
    "urgency": Urgency,
}
REGISTRY: Final = Factories(
    "batching policy",
    "teola.policies",
    {**BATCHING, **ORDER_AND_ROUTING},
    [BatchingPolicy],
    "batching.",
)


def make(name: str, **options: Any) -> BatchingPolicy:
    """A fresh policy called `name`. Raises UnknownName, also for an option that it does not take,
    and InputError for an option's value, or if what was made is no policy."""
    return REGISTRY.make(name, options)


__all__ = ["BATCHING", "DEFAULT", "REGISTRY", "BatchingPolicy", "make"]
