"""From a query's configuration to the plan that runs it, through a cache.

Optimised graphs are reused for equal (overrides, passes, numbers of stages): stages are ranges with
an open end, so the exact length of a list does not matter, only into how many stages it falls.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from teola.graph import QUERY, Graph
from teola.passes import Optimised, optimise, select
from teola.passes.rewrite import aligned_successors
from teola.profile import Profile
from teola.schedule.plan import Plan
from teola.workflow.build import Builder, Overrides

CACHED_PLANS: Final = 256


class Optimiser:
    """Builds, optimises and compiles the graphs of one application under one profile."""

    def __init__(self, builder: Builder, profile: Profile) -> None:
        self.builder, self.profile = builder, profile
        self._plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()
        self._batches: dict[str, tuple[int, ...]] | None = None
        self.hits = self.misses = 0

    def plan(
        self,
        overrides: Overrides,
        sizes: Mapping[str, int],
        passes: Sequence[str] | str | None = None,
        *,
        debug: bool = False,
    ) -> Plan:
        """The plan for a query. sizes: lengths of its list inputs. Raises InputError."""
        names = passes if type(passes) is tuple else select(passes)
        key = (
            json.dumps(overrides, sort_keys=True, default=repr) if overrides else "",
            names,
            self._stages(sizes),
        )
        plan = self._plans.get(key)
        if plan is not None:
            self.hits += 1
            self._plans.move_to_end(key)
            return plan
        self.misses += 1
        plan = Plan(self.optimise(overrides, sizes, names, debug=debug).e_graph)
        self._plans[key] = plan
        if len(self._plans) > CACHED_PLANS:
            self._plans.popitem(last=False)
        return plan

    def optimise(
        self,
        overrides: Overrides,
        sizes: Mapping[str, int],
        passes: Sequence[str] | str | None = None,
        *,
        debug: bool = False,
    ) -> Optimised:
        """p-graph, e-graph and every decision between them; not cached."""
        graph = self.builder.build(self.builder.configure(overrides), sizes)
        if debug:
            graph.validate()
        return optimise(graph, self.profile, select(passes), debug=debug)

    def _stages(self, sizes: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
        """Into how many stages each list falls, for each batch size that may cut it."""
        if self._batches is None:
            self._batches = self._find_batches()
        return tuple(
            (name, batch, -(-count // batch))
            for name, count in sizes.items()
            for batch in self._batches.get(name, ())
        )

    def _find_batches(self) -> dict[str, tuple[int, ...]]:
        """Input -> maximum efficient batch sizes of what is cut along it, directly or behind."""
        graph: Graph = self.builder.build(self.builder.configure({}), {})
        found: dict[str, set[int]] = {}
        for p in graph.primitives:
            names = {ref.port for _, ref in p.item_refs() if ref.producer == QUERY}
            if not names or not p.batchable:
                continue
            for id in aligned_successors(graph, [p.id], p.items):
                q = graph[id]
                batch = self.profile.engine(q.engine).max_efficient_batch(q.op)
                for name in names:
                    found.setdefault(name, set()).add(batch)
        return {name: tuple(sorted(batches)) for name, batches in found.items()}
