"""Component: one box of a developer's template, and `>>`, which puts boxes in order.

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
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from teola.errors import InputError, TemplateError, UnknownName

if TYPE_CHECKING:
    from teola.workflow.build import Block
    from teola.workflow.template import Template


class Kind(Enum):
    """What flows between components."""

    TEXT = "text"
    TEXTS = "texts"
    VECTORS = "vectors"
    CHUNKS = "chunks"
    HITS = "hits"
    SCOPE = "scope"
    DOCUMENTS = "documents"
    ANY = "any"

    __hash__ = object.__hash__

    def accepts(self, given: Kind) -> bool:
        """Whether an input of this kind can take `given`."""
        if self is given or Kind.ANY in (self, given):
            return True
        return (self, given) in _WIDENS


_WIDENS = {
    (Kind.TEXTS, Kind.TEXT),  # one text is a list of one
    (Kind.TEXTS, Kind.CHUNKS),
    (Kind.TEXTS, Kind.HITS),
}


LISTS = frozenset({Kind.TEXTS, Kind.HITS})
"""Kinds of inputs whose length shapes a query's graph."""


class Config(BaseModel):
    """Parameters of a component: validated, frozen, every field overridable per query."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


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
        given = {name: getattr(base, name) for name in base.model_fields_set} if base else {}
        try:
            return self.config_type(**{**given, **values})
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in (self.name, *first["loc"]))
            raise InputError(f"{field}: {first['msg']} (got {first['input']!r})") from None

    def decompose(self, block: Block) -> None:
        """Add this component's primitives to `block` and name what they give."""
        raise NotImplementedError

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
        from teola.workflow.template import Template

        return Template.of(self)

    def __rshift__(self, other: Nodes) -> Template:
        return self.template() >> other

    def __rrshift__(self, other: Nodes) -> Template:
        from teola.workflow.template import Template

        return Template.beside(other) >> self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


Node: TypeAlias = "Component | Template | str"
"""A name stands for the component that is registered, installed or built in under it."""
Nodes: TypeAlias = "Node | Sequence[Node]"
