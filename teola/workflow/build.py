"""From template to p-graph (the paper's Algorithm 1).

Every component adds its primitives; the template's order becomes order edges from the tail
primitives of one component to the head primitives of the next. Those carry no data and are there
to be pruned by the first pass, except where they protect an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import Any

from teola.errors import TemplateError, UnknownName
from teola.graph import (
    QUERY,
    AggregateParams,
    Aggregation,
    Graph,
    GrowParams,
    Guard,
    Op,
    Order,
    Primitive,
    Ref,
)
from teola.graph.ops import EFFECTS, SPECULATIVE, STORE_READS
from teola.workflow.block import UNKNOWN_ITEMS, Block, Feed
from teola.workflow.component import Component, Config, Template
from teola.workflow.kinds import LISTS, Kind
from teola.workflow.wiring import Origin, Wirer

ParameterValues = Mapping[str, Mapping[str, Any]]
"""component -> parameter -> value."""


class Builder:
    """Builds p-graphs of one template. Declaring it checks the template (TemplateError).

    absent: inputs that a query may come without.
    """

    def __init__(
        self,
        name: str,
        template: Component | Template,
        inputs: Mapping[str, Kind],
        outputs: Mapping[str, str],
        absent: frozenset[str] = frozenset(),
    ) -> None:
        self.name = name
        self.template = Template.beside(template)
        self.inside = _inside(name, self.template)
        self.inputs = expand_inputs(inputs)
        if not outputs:
            raise TemplateError(f"application {name!r} declares no outputs")
        self.wirer = Wirer(self.template, self.inputs)
        self.wiring, self.finals = self.wirer.wire(outputs)
        self.wirer.check_absent(self.wiring, absent)
        if Kind.DOCUMENTS in inputs.values():
            self.wirer.check_chunks(self.wiring, self.finals)
        self._planned: dict[str, Graph] = {}

    @cached_property
    def reads(self) -> frozenset[str]:
        """Stores that its primitives search."""
        return _united(map(reads_of, self.build(self.configure({}), {}).primitives))

    @cached_property
    def writes(self) -> frozenset[str]:
        """Stores that its primitives change."""
        return _united(map(writes_of, self.build(self.configure({}), {}).primitives))

    def planned(self, app: str) -> Graph:
        """The p-graph of a query that overrides nothing and of whose lists nobody knows how long
        they are, as one of application `app`: for estimates of the parts that this builds."""
        graph = self._planned.get(app)
        if graph is None:
            lists = (name for name, kind in self.inputs.items() if kind in LISTS)
            sizes = dict.fromkeys(lists, UNKNOWN_ITEMS)
            graph = self._planned[app] = self.build(self.configure({}), sizes, name=app)
        return graph

    def configure(self, overrides: ParameterValues) -> dict[str, Config]:
        """Configurations of all components under `overrides`. Raises InputError, UnknownName."""
        for name in overrides:
            if name not in self.inside:
                raise UnknownName("component", name, self.inside, f"application {self.name!r}")
            self.inside[name].configure(overrides[name], self.inside[name].config)
        return {
            c.name: c.configure(overrides[c.name], c.config) if c.name in overrides else c.config
            for c in self.template.components
        }

    def build(
        self,
        configs: Mapping[str, Config],
        sizes: Mapping[str, int],
        most_primitives: float = inf,
        absent: frozenset[str] = frozenset(),
        windows: Mapping[str, int] = MappingProxyType({}),
        name: str = "",
    ) -> Graph:
        """The p-graph. name: its own, if not the builder's. sizes: lengths of the query inputs that
        are lists. absent: inputs that the query comes without. windows: of engines of which one
        knows it, the tokens that a prompt and its answer may have. Raises InputError instead of
        building one of more than `most_primitives`."""
        return _Build(self, configs, sizes, most_primitives, absent, windows).graph(name)


def reads_of(p: Primitive) -> frozenset[str]:
    """Stores that a primitive searches, itself or in its parts."""
    if isinstance(p.params, GrowParams):
        return _united(body.reads for body in p.params.grower.bodies.values())
    return frozenset((p.engine,) if p.op in STORE_READS else ())


def writes_of(p: Primitive) -> frozenset[str]:
    """Stores that a primitive changes, itself or in its parts."""
    if isinstance(p.params, GrowParams):
        return _united(body.writes for body in p.params.grower.bodies.values())
    return frozenset((p.engine,) if p.op in EFFECTS else ())


def _united(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _inside(app: str, template: Template) -> dict[str, Component]:
    """Its components by name, and those of the parts that they may grow. Raises TemplateError where
    two have one name, by which overrides and habits go."""
    components = dict(template.by_name)
    for component in template.components:
        for body in component.bodies:
            for name, inner in _inside(app, body.template).items():
                if components.setdefault(name, inner) is not inner:
                    raise TemplateError(
                        f"two components of {app!r} are called {name!r}, one of them in the body "
                        f"of {component.name!r}; give one a name of its own: "
                        f"{type(inner).__name__}(name=...)"
                    )
    return components


def expand_inputs(inputs: Mapping[str, Kind]) -> dict[str, Kind]:
    """Inputs as the graph sees them: documents become the chunks to index and a search scope."""
    expanded: dict[str, Kind] = {}
    for name, kind in inputs.items():
        if kind is Kind.DOCUMENTS:
            expanded |= {"chunks": Kind.CHUNKS, "scope": Kind.SCOPE}
        else:
            expanded[name] = kind
    return expanded


class _Build:
    def __init__(
        self,
        builder: Builder,
        configs: Mapping[str, Config],
        sizes: Mapping[str, int],
        most: float,
        absent: frozenset[str],
        windows: Mapping[str, int],
    ) -> None:
        self.builder, self.configs, self.sizes, self.most = builder, configs, sizes, most
        self.absent, self.windows = absent, windows
        self.template = builder.template
        self.primitives: list[Primitive] = []
        self.given: dict[tuple[str, str], Feed] = {}
        self.tails: dict[str, list[str]] = {}
        self.conditions: dict[str, str] = {}
        self.position = {name: k for k, name in enumerate(self.template.order)}
        self.effects = {
            name for name, component in self.template.by_name.items() if _tool_effect(component)
        }

    def graph(self, called: str) -> Graph:
        for name in self.template.order:
            self._component(self.template.by_name[name])
        outputs = {}
        for output, sources in self.builder.finals.items():
            outputs[output] = self._join("output", output, sources, self.primitives.append).ref
        name = called or self.builder.name
        return Graph(name, self.primitives, outputs, tuple(self.builder.inputs))

    def _component(self, component: Component) -> None:
        joins: list[Primitive] = []
        feeds = {}
        for port in (*component.required, *component.extra):
            sources = self.builder.wiring[component.name, port]
            if self.absent and not component.lenient:
                sources = tuple(s for s in sources if s.component or s.name not in self.absent)
            if sources:
                feeds[port] = self._join(component.name, port, sources, joins.append)
        room = self.most - len(self.primitives) - len(joins)
        window = self.windows.get(component.engine)
        block = Block(component, self.configs[component.name], feeds, room, window)
        component.decompose(block)
        block.check()
        own = joins + block.primitives
        inside = {p.id for p in own}
        heads = {p.id for p in own if not any(r.producer in inside for r in p.refs())}
        read = {r.producer for p in own for r in p.refs()}
        for p in own:
            after = self._orders(component, p) if p.id in heads else ()
            after += self._protect(component, p)
            guards = self._guards(component, p)
            self.primitives.append(replace(p, after=after, guards=guards))
        self.tails[component.name] = [p.id for p in own if p.id not in read]
        for p in own:
            if p.op is Op.CONDITION:
                self.conditions[component.name] = p.id
        for port, feed in block.given.items():
            self.given[component.name, component.outputs[port]] = feed

    def _guards(self, component: Component, p: Primitive) -> tuple[Guard, ...]:
        """The branches that the component stands in, speculative where that is asked for."""
        return tuple(
            Guard(
                self.conditions[g.condition],
                g.branch,
                p.op in SPECULATIVE and getattr(self.configs[g.condition], "speculate", False),
            )
            for g in self.template.guards.get(component.name, ())
        )

    def _orders(self, component: Component, primitive: Primitive) -> tuple[Order, ...]:
        """Order edges from the components before, as the template has them.

        A function with an effect waits for all that comes before it, however far, and all that
        comes after waits for it: what lies between may come loose.
        """
        upstream, effects = self.builder.wirer.upstream[component.name], self.effects
        waits = component.name in effects
        if not waits:
            near = self.template.order_graph.predecessors(component.name)
            upstream = upstream & effects.union(near)
        orders = []
        for before in sorted(upstream, key=self.position.__getitem__):
            effect = waits or before in effects
            reason = "keeps the order of effects" if effect else "order of the template"
            orders += [Order(tail, reason, effect) for tail in self.tails[before]]
        return tuple(orders)

    def _protect(self, component: Component, primitive: Primitive) -> tuple[Order, ...]:
        """A search waits for every ingestion upstream into the store that it searches, and an
        ingestion for every search upstream of the store that it changes; what grows, for those of
        its parts."""
        reads, writes = reads_of(primitive), writes_of(primitive)
        if not reads and not writes:
            return ()
        upstream = self.builder.wirer.upstream[component.name]
        orders = []
        for p in self.primitives:
            if p.component not in upstream:
                continue
            if reads & writes_of(p):
                orders.append(Order(p.id, "searches what it stores", effect=True))
            elif writes & reads_of(p):
                orders.append(Order(p.id, "searches what was stored before", effect=True))
        return tuple(orders)

    def _join(
        self,
        owner: str,
        port: str,
        sources: tuple[Origin, ...],
        add: Callable[[Primitive], None],
    ) -> Feed:
        feeds = [self._feed(source) for source in sources]
        if len(feeds) == 1:
            return feeds[0]
        id = f"{owner}.{port}"
        add(
            Primitive(
                id=id,
                op=Op.AGGREGATE,
                component=owner,
                engine="",
                inputs=(("parts", tuple(feed.ref for feed in feeds)),),
                outputs=("out",),
                params=AggregateParams(Aggregation.FIRST),
            )
        )
        longest = max((feed.items for feed in feeds if feed.items is not None), default=None)
        return Feed(Ref(id, "out"), longest, any(feed.open for feed in feeds))

    def _feed(self, source: Origin) -> Feed:
        if source.component:
            return self.given[source.component, source.name]
        kind = self.builder.inputs[source.name]
        items = self.sizes.get(source.name, 1) if kind in _LISTS else None
        return Feed(Ref(QUERY, source.name), items)


_LISTS = {Kind.TEXTS, Kind.VECTORS, Kind.CHUNKS, Kind.HITS}


def _tool_effect(component: Component) -> bool:
    return component.effect and (
        "function" in component.config.model_fields_set or bool(component.bodies)
    )
