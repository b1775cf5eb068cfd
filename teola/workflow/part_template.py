"""PartTemplate: the template of the parts that a component adds while the query runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import networkx as nx

from teola.errors import TemplateError
from teola.graph import GrowParams, Primitive
from teola.workflow.block import Feed
from teola.workflow.build import Builder
from teola.workflow.component import Component, Template
from teola.workflow.kinds import Kind


class Reads(Protocol):
    """A block, as far as it says what there is upstream."""

    def may_read(self, port: str) -> Feed | None: ...


class PartTemplate:
    """A template that reads what it is given, and anything upstream of the component whose parts
    it makes; only `gives` of it is seen.

    owner: that component's name. given: names of what each part is given of its own; carried: of
    what it may be given of its own instead of from upstream. needs, may_use: names, with their
    kinds, that it reads from upstream.
    """

    def __init__(
        self,
        owner: str,
        nodes: Component | Template,
        given: Sequence[str],
        gives: Sequence[str],
        carried: Iterable[str] = (),
    ) -> None:
        self.owner, self.gives = owner, tuple(dict.fromkeys(gives))
        self.template: Template = Template.beside(nodes)
        self.needs: dict[str, Kind] = {}
        self.may_use: dict[str, Kind] = {}
        self._given, self._carried = frozenset(given), frozenset(carried)
        self._builders: dict[tuple[tuple[str, Kind], ...], Builder] = {}
        self._find()
        self.kinds = self._kinds()

    def _find(self) -> None:
        """What its components read that none of them gives."""
        order, kinds = self.template.order_graph, dict[str, list[Kind]]()
        for c in self.template.components:
            inside = {
                name
                for before in nx.ancestors(order, c.name)
                for name in self.template.by_name[before].given_kinds
            }
            for ports, target in ((c.required, self.needs), (c.extra, self.may_use)):
                for port, name in ports.items():
                    if name not in inside:
                        kinds.setdefault(name, []).append(c.kind_of(port))
                        target[name] = _common(kinds[name])
        for name in self.needs:
            self.needs[name] = _common(kinds[name])
            self.may_use.pop(name, None)

    def _kinds(self) -> dict[str, Kind]:
        """Kinds of what it gives."""
        by_name = {}
        for name in self.gives:
            kinds = [c.given_kinds[name] for c in self.template.components if name in c.given_kinds]
            if not kinds:
                valid = sorted({n for c in self.template.components for n in c.given_kinds})
                raise TemplateError(
                    f"component {self.owner!r} wants {name!r} of its body, which nothing there "
                    f"gives (available: {', '.join(valid) or 'nothing'})"
                )
            by_name[name] = kinds[0]
        return by_name

    @property
    def effect(self) -> bool:
        """Whether a part may change the world."""
        return any(c.effect for c in self.template.components)

    def captured(self, names: Mapping[str, Kind]) -> dict[str, Kind]:
        """Those of `names` that no part is given of its own."""
        return {name: kind for name, kind in names.items() if name not in self._given}

    def builder(self, block: Reads) -> Builder:
        """The Builder for what is upstream in this template."""
        kinds: dict[str, Kind] = {}
        for names in (self.needs, self.may_use):
            for name, kind in names.items():
                feed = None if name in self._given else block.may_read(name)
                if feed is None and name not in self._given | self._carried:
                    continue
                many = feed is not None and feed.items is not None
                if kind in (Kind.ANY, Kind.TEXTS):
                    kind = Kind.TEXTS if many else Kind.TEXT if kind is Kind.TEXTS else kind
                kinds[name] = kind
        key = tuple(sorted(kinds.items(), key=lambda pair: pair[0]))
        cached = self._builders.get(key)
        if cached is None:
            outputs = {name: name for name in self.gives}
            cached = self._builders[key] = Builder(self.owner, self.template, kinds, outputs)
        return cached


def _common(kinds: Sequence[Kind]) -> Kind:
    """The kind that all of these take, the narrowest."""
    narrow = [kind for kind in kinds if kind is not Kind.ANY]
    fits = (kind for kind in narrow if all(other.accepts(kind) for other in narrow))
    return next(fits, narrow[0] if narrow else Kind.ANY)


def all_primitives(builder: Builder) -> Iterator[Primitive]:
    """Those of its p-graph by default, and of the parts that it may grow."""
    for p in builder.build(builder.configure({}), {}).primitives:
        yield p
        if isinstance(p.params, GrowParams):
            for body in p.params.grower.bodies.values():
                yield from all_primitives(body)
