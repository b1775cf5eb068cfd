"""From a query's configuration to the plan that runs it, through a cache.

Plans are reused for equal (overrides, passes, numbers of stages) within an epoch of the profile:
stages are ranges with an open end, so the exact length of a list does not matter, only into how
many stages it falls. It matters only where the p-graph itself has a primitive for each item, such
as an LLM call. A pass that is registered anew under an old name is another pass. Of each shape the
last plan is kept. Its successor takes the p-graph over, and all that was compiled where the passes
make the same e-graph of it.

    times known, an epoch begins ─▶ the next query runs by the plan of before ─▶ its first calls
    are out ─▶ the plan is made anew, while the models work ─▶ whoever comes next runs by that
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, NamedTuple

from pydantic import BaseModel

from teola.errors import TeolaError
from teola.graph import QUERY, Graph, Op, Primitive
from teola.learning import NO_LESSONS, Learner
from teola.passes import Optimised, PassSequence, optimise, select
from teola.passes.rewrite import Pass, aligned_successors
from teola.profile import Profile
from teola.registry import Named
from teola.schedule.plan import Plan
from teola.workflow.build import Builder, ParameterValues
from teola.workflow.kinds import LISTS

CACHED_PLANS: Final = 256
Later = Callable[[Callable[[], None]], object]
"""Does something a little later."""


class _Shape(NamedTuple):
    """What a p-graph is built from."""

    overrides: ParameterValues
    sizes: Mapping[str, int]
    most_primitives: float
    absent: frozenset[str]


class _Kept(NamedTuple):
    """The last plan of a shape. built_of: lengths of lists, and windows of engines, which its
    p-graph was built from besides."""

    plan: Plan
    built_of: tuple[Mapping[str, int], Mapping[str, int]]


class Optimiser:
    """Builds, optimises and compiles the graphs of one application, and of the parts that they may
    grow. app: whose habits they have, if not those of the builder's name.

    declared: the profile that holds as long as nothing is learned. learner: knows better. A plan
    goes by what was known when it was made, and is made anew when that has changed. later: makes
    plans anew while nobody waits for them (None: whoever asks waits).
    """

    def __init__(
        self,
        builder: Builder,
        declared: Profile,
        learner: Learner | None = None,
        app: str = "",
        later: Later | None = None,
    ) -> None:
        self.builder, self.declared, self.app = builder, declared, app
        self._later, self._coming = later, set[tuple[object, ...]]()
        self._parts: dict[Builder, Optimiser] = {}
        self._learner, self._lessons = learner, NO_LESSONS
        self._profile = declared
        self._plans: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()
        self._batches: dict[str, tuple[int, ...]] | None = None
        self._cut: tuple[tuple[str, str, Op], ...] | None = None
        self._shaping: dict[tuple[str, frozenset[str]], frozenset[str]] = {}
        self.hits = self.misses = 0

    @property
    def profile(self) -> Profile:
        """What is known by now."""
        if self._learner is not None and self._learner.lessons is not self._lessons:
            self._lessons = self._learner.lessons
            self._profile = self._lessons.over(self.declared)
            self._batches = None
        return self._profile

    def plan(
        self,
        overrides: ParameterValues,
        sizes: Mapping[str, int],
        passes: Sequence[str | Named[Pass]] | str | None = None,
        *,
        debug: bool = False,
        most_primitives: float = inf,
        absent: frozenset[str] = frozenset(),
        at_once: bool = True,
    ) -> Plan:
        """The plan for a query. sizes: lengths of its list inputs. absent: optional inputs that it
        has not. at_once: whether it goes by all that is known; else it may lack the last epoch,
        where times were known before that. Raises InputError, also where its p-graph would have
        more than `most_primitives`; passes keep the e-graph below that."""
        steps = select(passes)
        chosen = json.dumps(overrides, sort_keys=True, default=_told) if overrides else ""
        shape = _Shape(overrides, sizes, most_primitives, absent)
        lengths, epoch = self._lengths(chosen, shape), self.profile.epoch
        key = (chosen, steps, absent, self._stages(sizes), lengths, most_primitives)
        kept = self._plans.get(key)
        if kept is not None and kept.plan.profile.epoch == epoch:
            self.hits += 1
            self._plans.move_to_end(key)
            return kept.plan
        if kept is not None and not at_once and self._later is not None:
            before = kept.plan
            if before.profile.epoch == epoch - 1 and before.total_s:
                if key not in self._coming:
                    self._coming.add(key)
                    about = overrides, dict(sizes), steps, debug, most_primitives, absent
                    self._later(partial(self._renew, key, *about))
                self.hits += 1
                return before
        self.misses += 1
        built_of = dict(sizes), self._windows()
        last = kept.plan if kept is not None and kept.built_of == built_of else None
        plan = self._made(shape, steps, debug, last)
        self._plans[key] = _Kept(plan, built_of)
        self._plans.move_to_end(key)
        if len(self._plans) > CACHED_PLANS:
            self._plans.popitem(last=False)
        return plan

    def _made(self, of: _Shape, steps: PassSequence, debug: bool, last: Plan | None) -> Plan:
        """A plan by all that is known. last: the one before it, if that has the same p-graph."""
        known = last.optimised if last is not None else None
        graph = known.p_graph if known is not None else self._built(of)
        optimised = self._optimised(graph, steps, debug, of.most_primitives)
        parts = _PartPlans(self, of.overrides, steps)
        if last is not None and optimised.e_graph == last.graph:
            return last.successor(self.profile, optimised, parts)
        return Plan(optimised.e_graph, self.profile, optimised, parts)

    def _renew(
        self,
        key: tuple[object, ...],
        overrides: ParameterValues,
        sizes: Mapping[str, int],
        steps: PassSequence,
        debug: bool,
        most_primitives: float,
        absent: frozenset[str],
    ) -> None:
        """Make the plan of a key by what is known by now."""
        self._coming.discard(key)
        with suppress(TeolaError):  # whoever needs the plan is told
            self.plan(
                overrides,
                sizes,
                steps,
                debug=debug,
                most_primitives=most_primitives,
                absent=absent,
            )

    def part(
        self,
        overrides: ParameterValues,
        steps: PassSequence,
        body: Builder,
        sizes: Mapping[str, int],
    ) -> Plan:
        """The plan of a part of queries with these overrides."""
        of = self._parts.get(body)
        if of is None:
            if len(self._parts) >= CACHED_PLANS:
                self._parts.clear()
            name = self.app or self.builder.name
            of = self._parts[body] = Optimiser(
                body, self.declared, self._learner, name, self._later
            )
        part_overrides = {name: values for name, values in overrides.items() if name in body.inside}
        lists = {name: size for name, size in sizes.items() if body.inputs[name] in LISTS}
        return of.plan(part_overrides, lists, steps, at_once=False)

    def optimise(
        self,
        overrides: ParameterValues,
        sizes: Mapping[str, int],
        passes: Sequence[str | Named[Pass]] | str | None = None,
        *,
        debug: bool = False,
        absent: frozenset[str] = frozenset(),
    ) -> Optimised:
        """p-graph, e-graph and every decision between them; not cached."""
        graph = self._built(_Shape(overrides, sizes, inf, absent))
        return self._optimised(graph, select(passes), debug)

    def _built(self, of: _Shape) -> Graph:
        configs, windows = self.builder.configure(of.overrides), self._windows()
        return self.builder.build(
            configs, of.sizes, of.most_primitives, of.absent, windows, self.app
        )

    def _windows(self) -> dict[str, int]:
        """Tokens that engines hold, of those of which that is known."""
        engines = self.profile.engines.items()
        return {name: engine.window for name, engine in engines if engine.window}

    def _optimised(
        self, graph: Graph, passes: PassSequence, debug: bool, most_primitives: float = inf
    ) -> Optimised:
        if debug:
            graph.validate()
        return optimise(graph, self.profile, passes, debug=debug, most_primitives=most_primitives)

    def _stages(self, sizes: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
        """Into how many stages each list falls, for each batch size that may cut it."""
        if self._batches is None:
            self._batches = self._find_batches()
        return tuple(
            (name, batch, -(-count // batch))
            for name, count in sizes.items()
            for batch in self._batches.get(name, ())
        )

    def _lengths(self, chosen: str, of: _Shape) -> tuple[int, ...]:
        """Lengths of the lists that shape the p-graph under the overrides `chosen`."""
        key = (chosen, of.absent)
        shaping = self._shaping.get(key)
        if shaping is None:
            if len(self._shaping) >= CACHED_PLANS:
                self._shaping.clear()
            shaping = self._shaping[key] = self._find_shaping(of)
        sizes = of.sizes
        return tuple(sizes[name] for name in sizes if name in shaping) if shaping else ()

    def _find_shaping(self, of: _Shape) -> frozenset[str]:
        """Inputs whose length changes the p-graph itself, not only its numbers of planned items."""
        one = dict.fromkeys(of.sizes, 1)
        shape = _planless(self._built(of._replace(sizes=one)))
        return frozenset(
            name
            for name in of.sizes
            if _planless(self._built(of._replace(sizes={**one, name: 2}))) != shape
        )

    def _find_batches(self) -> dict[str, tuple[int, ...]]:
        """Input -> maximum efficient batch sizes of what is cut along it, directly or behind."""
        if self._cut is None:
            self._cut = tuple(dict.fromkeys(self._find_cut()))
        sizes: dict[str, set[int]] = {}
        for name, engine, op in self._cut:
            batch = self.profile.engine(engine).max_efficient_batch(op)
            sizes.setdefault(name, set()).add(batch)
        return {name: tuple(sorted(batches)) for name, batches in sizes.items()}

    def _find_cut(self) -> Iterator[tuple[str, str, Op]]:
        """Inputs, each with an engine and op that may cut it, whatever is known of them."""
        graph: Graph = self.builder.build(self.builder.configure({}), {})
        for p in graph.primitives:
            names = {ref.port for _, ref in p.item_refs() if ref.producer == QUERY}
            if not names or not p.batchable:
                continue
            for id in aligned_successors(graph, [p.id], p.items):
                q = graph[id]
                for name in names:
                    yield name, q.engine, q.op


class _PartPlans:
    """Plans of the parts that queries of one plan grow. Those of an epoch are found at once: there
    may be thousands that are all alike."""

    __slots__ = ("_epoch", "_found", "_of", "_optimiser")

    def __init__(
        self, optimiser: Optimiser, overrides: ParameterValues, steps: PassSequence
    ) -> None:
        self._optimiser, self._of = optimiser, (overrides, steps)
        self._epoch = -1
        self._found: dict[tuple[object, ...], Plan] = {}

    def __call__(self, body: Builder, sizes: Mapping[str, int]) -> Plan:
        epoch = self._optimiser.profile.epoch
        if epoch != self._epoch or len(self._found) >= CACHED_PLANS:
            self._epoch = epoch
            self._found.clear()
        key = (body, *sizes.items())
        plan = self._found.get(key)
        if plan is None:
            plan = self._optimiser.part(*self._of, body, sizes)
            if plan.profile.epoch == epoch:  # else it is soon made anew
                self._found[key] = plan
        return plan


def _told(value: object) -> object:
    """A JSON value that identifies an override which is no JSON: two classes may have one name."""
    if isinstance(value, type) and issubclass(value, BaseModel):
        return value.model_json_schema()
    return repr(value)


def _planless(graph: Graph) -> list[Primitive]:
    return [replace(p, items=1) for p in graph.primitives]
