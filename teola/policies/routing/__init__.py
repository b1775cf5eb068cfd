"""Routing policies by name. To add one: a file here and a line below, `teola.register`, or an
entry point in the group `teola.policies` called `routing.<name>` (docs/add-a-policy.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from teola.policies.routing.aibrix import AIBrix
from teola.policies.routing.base import ANY, Load, Loads, RoutingPolicy
from teola.policies.routing.dualmap import DualMap
from teola.policies.routing.dynamo import Dynamo
from teola.policies.routing.dynamo_two_tier import DynamoTwoTier
from teola.policies.routing.e2 import E2
from teola.policies.routing.graph_aware import GraphAware
from teola.policies.routing.join_shortest import JoinShortest
from teola.policies.routing.least_loaded import LeastLoaded
from teola.policies.routing.llm_d import LLMD
from teola.policies.routing.lmetric import LMetric
from teola.policies.routing.marginal_cost import MarginalCost
from teola.policies.routing.mooncake import Mooncake
from teola.policies.routing.paced import Paced
from teola.policies.routing.prefix_affinity import PrefixAffinity
from teola.policies.routing.production_stack import ProductionStack
from teola.policies.routing.ray_serve import RayServe
from teola.policies.routing.round_robin import RoundRobin
from teola.policies.routing.sglang import SGLang
from teola.policies.routing.workload_balanced import WorkloadBalanced
from teola.registry import Factories

DEFAULT: Final = "least_loaded"
"""The routing policy of the paper, and the default."""

ROUTING: Final[dict[str, Callable[..., RoutingPolicy]]] = {
    "least_loaded": LeastLoaded,
    "round_robin": RoundRobin,
    "prefix_affinity": PrefixAffinity,
    "marginal_cost": MarginalCost,
    "graph_aware": GraphAware,
    "workload_balanced": WorkloadBalanced,
    "e2": E2,
    "join_shortest": JoinShortest,
    "lmetric": LMetric,
    "dynamo": Dynamo,
    "dynamo_two_tier": DynamoTwoTier,
    "sglang": SGLang,
    "llm_d": LLMD,
    "aibrix": AIBrix,
    "production_stack": ProductionStack,
    "ray_serve": RayServe,
    "mooncake": Mooncake,
    "dualmap": DualMap,
}
ORDER_AND_ROUTING: Final[dict[str, Callable[..., Paced]]] = {"paced": Paced}
"""Policies that are batching and routing in one: they stand in both registries (decision 0057)."""
REGISTRY: Final = Factories(
    "routing policy",
    "teola.policies",
    {**ROUTING, **ORDER_AND_ROUTING},
    [RoutingPolicy],
    "routing.",
)


def make(name: str, **options: Any) -> RoutingPolicy:
    """A fresh policy called `name`. Raises UnknownName, also for an option that it does not take,
    and InputError for an option's value, or if what was made is no policy."""
    return REGISTRY.make(name, options)


__all__ = [
    "ANY",
    "DEFAULT",
    "ORDER_AND_ROUTING",
    "REGISTRY",
    "ROUTING",
    "Load",
    "Loads",
    "RoutingPolicy",
    "make",
]
