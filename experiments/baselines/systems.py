"""The systems that are compared: how each orchestrates a query and batches at the engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from experiments.baselines.modules import chain, side_by_side
from experiments.baselines.tuning import tuned
from experiments.common import workloads
from experiments.common.testbed import Testbed
from teola.graph import Graph
from teola.policies.batching import DEFAULT
from teola.profile import Profile
from teola.runtime.optimiser import Optimiser
from teola.schedule.plan import Plan
from teola.workflow.build import Builder, Overrides

Rewrite = Callable[[Graph], Graph]


class Cache(Enum):
    """What LLMs find of a prompt: nothing; what the same query computed; what any query did."""

    NONE = "none"
    QUERY = "query"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class System:
    """p_graph: what a query's p-graph is made into before any pass. waits: batches that are not
    full wait for more (TO). cache: the prefix cache of its LLMs."""

    name: str
    p_graph: Rewrite
    passes: str | Sequence[str] = "none"
    batching: str = DEFAULT
    waits: bool = False
    cache: Cache = Cache.ALL


TEOLA: Final = System("teola", chain, "all")
"""As it is shipped: all passes, the default batching policy. Its LLMs have the prefix cache that
those of LlamaDistPC have."""
BASELINES: Final = (
    System("llamadist_po", chain, batching="per_invocation", cache=Cache.NONE),
    System("llamadist_to", chain, batching="fifo", waits=True, cache=Cache.NONE),
    System("llamadist_pc_po", side_by_side, batching="per_invocation"),
    System("llamadist_pc_to", side_by_side, batching="fifo", waits=True),
)
SYSTEMS: Final = {system.name: system for system in (TEOLA, *BASELINES)}
"""The five that the paper's figures compare."""
TOPOLOGY: Final = replace(TEOLA, name="teola_topology", batching="topology")
"""The same with the paper's own batching policy, to the letter."""
ALL: Final = {**SYSTEMS, TOPOLOGY.name: TOPOLOGY}


class Rewritten:
    """A builder whose p-graphs are rewritten before anybody sees them."""

    def __init__(self, builder: Builder, rewrite: Rewrite) -> None:
        self._builder, self._rewrite = builder, rewrite
        self.configure = builder.configure

    def build(self, configs: Any, sizes: Mapping[str, int], *bound: float) -> Graph:
        """The p-graph, rewritten."""
        return self._rewrite(self._builder.build(configs, sizes, *bound))


class Planner:
    """Plans the queries of one application for one system; equal plans are shared."""

    def __init__(
        self, system: System, app: str, testbed: Testbed, overrides: Overrides | None = None
    ) -> None:
        builder: Any = Rewritten(workloads.find_app(app).builder, system.p_graph)
        self.optimiser = Optimiser(builder, profile_of(system, testbed))
        self._passes, self._listed = system.passes, app != "search-agent"
        self._overrides = workloads.overrides(app, testbed.values, overrides or {})

    def plan(self, chunks: int) -> Plan:
        """The plan for a document of so many chunks."""
        sizes = {"chunks": chunks} if self._listed else {}
        return self.optimiser.plan(self._overrides, sizes, self._passes)


def profile_of(system: System, testbed: Testbed) -> Profile:
    """The profile with the batch sizes and the prefix cache that the system uses."""
    profile = tuned(testbed.profile) if system.waits else testbed.profile
    if system.cache is Cache.ALL:
        return profile
    lacks = {"keeps_prefixes": False}
    if system.cache is Cache.NONE:
        lacks["prefix_reuse"] = False
    engines = {name: replace(engine, **lacks) for name, engine in profile.engines.items()}
    return replace(profile, engines=engines)


def batching_options(system: System, testbed: Testbed) -> Mapping[str, Mapping[str, Any]]:
    """Options of the batching policy by engine: how long a batch waits to fill."""
    if not system.waits:
        return {}
    engines = testbed.profile.engines
    waits = {name: {"max_wait_s": testbed.wait_s} for name in engines}
    waits["vectorstore"] = {"max_wait_s": testbed.wait_store_s}
    return waits
