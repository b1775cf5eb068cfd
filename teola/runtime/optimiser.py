"""From a query's configuration to the plan that runs it, through a cache.

Optimised graphs are reused for equal (overrides, passes, numbers of stages): stages are ranges with
an open end, so the exact length of a list does not matter, only into how many stages it falls.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from teola.graph import Graph
from teola.passes import Optimised, optimise, select
from teola.profile import Profile
from teola.schedule.plan import Plan
from teola.workflow.build import Builder, Overrides

CACHED_PLANS: Final = 256


class Optimiser:
    """Builds, optimises and compiles the graphs of one application under one profile."""

    def __init__(self, builder: Builder, profile: Profile) -> None:
        self.builder, self.profile = builder, profile
        self._plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()
        self._sizes: tuple[int, ...] | None = None
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
        if self._sizes is None:
            sample: Graph = self.builder.build(self.builder.configure({}), {})
            batchable = {(p.engine, p.op) for p in sample.primitives if p.batchable}
            batches = {self.profile.engine(e).max_efficient_batch(op) for e, op in batchable}
            self._sizes = tuple(sorted(batches))
        return tuple(
            (name, batch, -(-count // batch))
            for name, count in sorted(sizes.items())
            for batch in self._sizes
        )
