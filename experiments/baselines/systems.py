"""The systems that are compared: how each orchestrates a query and batches at the engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from experiments.baselines.knowledge import Knows, known
from experiments.baselines.modules import chain, side_by_side
from experiments.baselines.tuning import tuned
from experiments.common import workloads
from experiments.common.testbed import Testbed
from teola.graph import Graph
from teola.learning import Learner
from teola.policies.batching import DEFAULT
from teola.profile import Profile
from teola.runtime.optimiser import Optimiser
from teola.schedule.plan import Plan
from teola.workflow.build import Builder, ParameterValues

Rewrite = Callable[[Graph], Graph]


class Cache(Enum):
    """What LLMs find of a prompt: what the same query computed, or what any query did."""

    QUERY = "query"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class System:
    """p_graph: what a query's p-graph is made into before any pass. waits: batches that are not
    full wait for more. cache: the prefix cache of its LLMs. knows: what its core knows of times."""

    name: str
    p_graph: Rewrite
    passes: str | Sequence[str] = "all"
    batching: str = DEFAULT
    waits: bool = False
    cache: Cache = Cache.ALL
    knows: Knows = Knows.LEARNED


TEOLA: Final = System("teola", chain)
"""As it is shipped: the applications' own graphs, all passes, the default batching policy, and of
the engines' times what it finds out by itself."""
VARIANTS: Final = tuple(
    replace(TEOLA, name=f"teola_{knows.value}", knows=knows)
    for knows in (Knows.EXACT, Knows.BORROWED, Knows.DOUBLE, Knows.HALF)
)
"""The same, given a profile: the engines' own, another testbed's, twice and half the times."""
TOPOLOGY: Final = replace(TEOLA, name="teola_topology", batching="topology")
"""The same with the paper's own batching policy, to the letter."""
_PO: Final = System("llamadist_po", chain, "none", "per_invocation", knows=Knows.EXACT)
_TO: Final = System("llamadist_to", chain, "none", "fifo", waits=True, knows=Knows.EXACT)
PAPERS: Final = (
    _PO,
    _TO,
    replace(_PO, name="llamadist_pc_po", p_graph=side_by_side),
    replace(_TO, name="llamadist_pc_to", p_graph=side_by_side),
)
"""The baselines of the paper. They ask for no times, so there is nothing to learn."""
CROSS: Final = System("llamadist_pc_critical_path", side_by_side, "none")
"""Their best graph under our batching policy."""
BASELINES: Final = (
    *PAPERS,
    *(
        replace(system, name=f"{system.name}_nowait", waits=False)
        for system in PAPERS
        if system.waits
    ),
    CROSS,
)
SYSTEMS: Final = {system.name: system for system in (TEOLA, *VARIANTS, *BASELINES)}


class Rewritten:
    """A builder whose p-graphs are rewritten before anybody sees them."""

    def __init__(self, builder: Builder, rewrite: Rewrite) -> None:
        self._builder, self._rewrite = builder, rewrite
        self.configure = builder.configure

    def build(self, configs: Any, sizes: Mapping[str, int], *bound: float) -> Graph:
        """The p-graph, rewritten."""
        return self._rewrite(self._builder.build(configs, sizes, *bound))


SHARED: Final = {"judge": "proxy"}
"""Engines that are another one of the testbed: the search agent's judge is the 7B model that
drafts, on the same GPUs."""


def deployed(graph: Graph) -> Graph:
    """The graph with the engines that the testbed has."""
    made = [replace(p, engine=SHARED.get(p.engine, p.engine)) for p in graph.primitives]
    return Graph(graph.name, made, graph.outputs, graph.inputs)


class Planner:
    """Plans the queries of one application for one system, by what its core knows; equal plans are
    shared. learner: what it finds out."""

    def __init__(
        self,
        system: System,
        app: str,
        testbed: Testbed,
        overrides: ParameterValues | None = None,
        learner: Learner | None = None,
    ) -> None:
        builder: Any = Rewritten(
            workloads.find_app(app).builder, lambda graph: system.p_graph(deployed(graph))
        )
        declared = _caching(system, known(system.knows, testbed))
        self.optimiser = Optimiser(builder, declared, learner)
        self._passes, self._listed = system.passes, app != "search-agent"
        self._overrides = workloads.overrides(app, testbed.values, overrides or {})

    def plan(self, chunks: int) -> Plan:
        """The plan for a document of so many chunks."""
        sizes = {"chunks": chunks} if self._listed else {}
        return self.optimiser.plan(self._overrides, sizes, self._passes)


def profile_of(system: System, testbed: Testbed) -> Profile:
    """The times that engines take, with the batch sizes and the prefix cache of the system."""
    tunes = system.batching == "fifo"
    return _caching(system, tuned(testbed.profile) if tunes else testbed.profile)


def _caching(system: System, profile: Profile) -> Profile:
    """The profile with the prefix cache that the system's LLMs have."""
    if system.cache is Cache.ALL:
        return profile
    engines = {n: replace(e, keeps_prefixes=False) for n, e in profile.engines.items()}
    return replace(profile, engines=engines)


def batching_options(system: System, testbed: Testbed) -> Mapping[str, Mapping[str, Any]]:
    """Options of the batching policy by engine: how long a batch waits to fill."""
    if not system.waits:
        return {}
    engines = testbed.profile.engines
    waits = {name: {"max_wait_s": testbed.wait_s} for name in engines}
    waits["vectorstore"] = {"max_wait_s": testbed.wait_store_s}
    return waits
