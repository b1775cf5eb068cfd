"""Component, one box of a developer's template, and Template, which `>>` makes of boxes in order.

A component declares named inputs and outputs with kinds, a configuration every field of which can
be overridden per query, and how it decomposes into primitives (the paper's Algorithm 1, line 4).

    a >> b          b after a
    a >> [b, c]     fan-out: b and c after a
    [b, c] >> d     fan-in: d after both
    a >> "mine"     a component by its name (`teola.register`)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import networkx as nx
from pydantic import BaseModel, ConfigDict, ValidationError

from teola.errors import InputError, TemplateError, UnknownName
from teola.graph import Guard
from teola.registry import Registry
from teola.workflow.block import Block
from teola.workflow.declaration import check_class
from teola.workflow.kinds import Kind


class Config(BaseModel):
    """Parameters of a component: validated, frozen, every field overridable per query."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class HasTemplate(Protocol):
    """What is made of components."""

    @property
    def template(self) -> Template: ...


class Component:
    """Base of all components.

    name: unique in its template; overrides are addressed by it (`search.top_k=4`). engine: name of
    the engine that serves it. inputs / outputs: port -> name in the template, where they differ.
    batchable: the items of its list input are independent. splittable: the items of its output mean
    something on their own. optional: if it fails, the query goes on without it and ends `partial`.
    Everything else is configuration, checked here: TemplateError names what is wrong.
    """

    default_name: ClassVar[str] = "component"
    default_engine: ClassVar[str] = ""
    needs: ClassVar[Mapping[str, Kind]] = {}
    may_use: ClassVar[Mapping[str, Kind]] = {}
    gives: ClassVar[Mapping[str, Kind]] = {}
    effect: ClassVar[bool] = False
    lenient: ClassVar[bool] = False
    """Whether what it needs may be absent in a query."""
    config_type: ClassVar[type[Config]] = Config
    bodies: Sequence[HasTemplate] = ()
    """Templates of the parts that it adds while a query runs."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        check_class(cls, Component, Config)

    def __init__(
        self,
        name: str | None = None,
        *,
        engine: str | None = None,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        batchable: bool = True,
        splittable: bool = True,
        optional: bool = False,
        **config: Any,
    ) -> None:
        self.name = name or self.default_name
        if not re.fullmatch(r"[A-Za-z_][\w-]*", self.name):
            raise TemplateError(
                f"component name {self.name!r} must be letters, digits, _ or -, letter first"
            )
        self.engine = engine or self.default_engine
        self.batchable, self.splittable, self.optional = batchable, splittable, optional
        self.config = self.configure(config)
        self.required = self._named(self.needs, inputs, "input", also=self.may_use)
        self.extra = self._named(self.may_use, inputs, "input", also=self.needs)
        self.outputs = self._named(self.gives, outputs, "output")

    def _named(
        self,
        ports: Mapping[str, Kind],
        names: Mapping[str, str] | None,
        what: str,
        also: Mapping[str, Kind] | None = None,
    ) -> dict[str, str]:
        for port in names or {}:
            if port not in ports and port not in (also or {}):
                valid = [*ports, *(also or {})]
                raise TemplateError(str(UnknownName(what, port, valid, f"component {self.name!r}")))
        return {port: (names or {}).get(port, port) for port in ports}

    def configure(self, values: Mapping[str, Any], base: Config | None = None) -> Config:
        """The configuration with `values` put in. Raises InputError or UnknownName."""
        for key in values:
            if key not in self.config_type.model_fields:
                raise UnknownName(
                    "parameter", key, self.config_type.model_fields, f"component {self.name!r}"
                )
        base_values = {name: getattr(base, name) for name in base.model_fields_set} if base else {}
        try:
            return self.config_type(**{**base_values, **values})
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in (self.name, *first["loc"]))
            raise InputError(f"{field}: {first['msg']} (got {first['input']!r})") from None

    def decompose(self, block: Block) -> None:
        """Add this component's primitives to `block` and name what they give."""
        type_name = type(self).__name__
        raise TemplateError(
            f"component {self.name!r} ({type_name}): {type_name} has no method "
            "`decompose(self, block)`, which adds its primitives"
        )

    def kind_of(self, port: str) -> Kind:
        """Kind of an input or output port."""
        for ports in (self.needs, self.may_use, self.gives):
            if port in ports:
                return ports[port]
        raise UnknownName("port", port, [*self.needs, *self.may_use, *self.gives], self.name)

    @property
    def given_kinds(self) -> dict[str, Kind]:
        """Kinds of the outputs, by their names in the template."""
        return {name: self.gives[port] for port, name in self.outputs.items()}

    def template(self) -> Template:
        """This component as a template of one."""
        return Template.of(self)

    def __rshift__(self, other: Nodes) -> Template:
        return self.template() >> other

    def __rrshift__(self, other: Nodes) -> Template:
        return Template.beside(other) >> self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


@dataclass(frozen=True)
class Template:
    """T = (T_N, T_E) of the paper: components, their order, and who is guarded by which branch."""

    components: tuple[Component, ...]
    edges: tuple[tuple[str, str], ...]
    heads: tuple[str, ...]
    tails: tuple[str, ...]
    guards: Mapping[str, tuple[Guard, ...]]

    @staticmethod
    def of(component: Component) -> Template:
        """A template of one component."""
        only = (component.name,)
        return Template((component,), (), only, only, {})

    @staticmethod
    def beside(nodes: Nodes) -> Template:
        """Several nodes side by side."""
        if isinstance(nodes, str):
            nodes = _in_template(nodes)
        if isinstance(nodes, (Component, Template)):
            return nodes.template() if isinstance(nodes, Component) else nodes
        listed = nodes if isinstance(nodes, (list, tuple)) and nodes else [nodes]
        for node in listed:
            if not isinstance(node, (Component, Template, str)):
                raise _not_joinable(node)
        parts = [Template.beside(node) for node in nodes]
        components: dict[str, Component] = {}
        for part in parts:
            for component in part.components:
                _add(components, component)
        return Template(
            tuple(components.values()),
            tuple(dict.fromkeys(edge for part in parts for edge in part.edges)),
            tuple(dict.fromkeys(head for part in parts for head in part.heads)),
            tuple(dict.fromkeys(tail for part in parts for tail in part.tails)),
            {name: guards for part in parts for name, guards in part.guards.items()},
        )

    def __rshift__(self, other: Nodes) -> Template:
        after = Template.beside(other)
        components = {component.name: component for component in self.components}
        for component in after.components:
            _add(components, component)
        joins = [(tail, head) for tail in self.tails for head in after.heads]
        joined = Template(
            tuple(components.values()),
            tuple(dict.fromkeys((*self.edges, *after.edges, *joins))),
            self.heads,
            after.tails,
            {**self.guards, **after.guards},
        )
        order = joined.order_graph
        if not nx.is_directed_acyclic_graph(order):
            path = " >> ".join(edge[0] for edge in nx.find_cycle(order))
            raise TemplateError(f"the template has a cycle: {path} >> ...")
        return joined

    def __rrshift__(self, other: Nodes) -> Template:
        return Template.beside(other) >> self

    @cached_property
    def by_name(self) -> Mapping[str, Component]:
        return {component.name: component for component in self.components}

    @cached_property
    def order_graph(self) -> nx.DiGraph[str]:
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(component.name for component in self.components)
        graph.add_edges_from(self.edges)
        return graph

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Component names, producers first, ties as declared."""
        rank = {component.name: i for i, component in enumerate(self.components)}
        return tuple(nx.lexicographical_topological_sort(self.order_graph, key=rank.__getitem__))


Node: TypeAlias = "Component | Template | str"
"""A name stands for the component that is registered, installed or built in under it."""
Nodes: TypeAlias = "Node | Sequence[Node]"


def _check(called: str, thing: Any) -> None:
    if not isinstance(thing, Component) and not (
        isinstance(thing, type) and issubclass(thing, Component)
    ):
        raise InputError(
            f"{called} must be a Component or a class of them (a function: wrap it by "
            f"component(...)), not {thing!r}"
        )


COMPONENT_TYPES: Final[Registry[Component | type[Component]]] = Registry(
    "component", "teola.components", {}, _check
)
"""Components by name; `teola.workflow.components` adds its own."""


def named(name: str) -> Component:
    """The component called `name`, with the parameters that it has by default. Raises UnknownName,
    and InputError where it cannot be made without any."""
    thing = COMPONENT_TYPES.find(name)
    if isinstance(thing, Component):
        return thing
    try:
        return thing()
    except TypeError as error:
        raise InputError(f"{COMPONENT_TYPES.called(name)} needs parameters: {error}") from None


def _in_template(name: str) -> Component:
    try:
        return named(name)
    except InputError as error:
        raise TemplateError(str(error)) from None


def _not_joinable(node: object) -> TemplateError:
    if isinstance(node, type) and issubclass(node, Component):
        way = f"; make one of the class: {node.__name__}()"
    elif callable(node):
        name = getattr(node, "__name__", "function")
        way = "; wrap a function: component(" + (
            "lambda ...)" if name == "<lambda>" else f"{name})"
        )
    else:
        way = ""
    return TemplateError(f"`>>` joins components, templates or lists of them, not {node!r}{way}")


def _add(components: dict[str, Component], component: Component) -> None:
    first = components.setdefault(component.name, component)
    if first is not component:
        raise TemplateError(
            f"two components are called {component.name!r}; give one a name of its own: "
            f"{type(component).__name__}(name=...)"
        )
