"""Wiring: which output each input of a template's components reads.

A name is looked for upstream, the nearest producer first. Where the nearest ones may all be
skipped (they stand in a Condition's branch), the producers behind them serve as fall-backs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import networkx as nx

from teola.errors import TemplateError
from teola.graph import Guard
from teola.workflow.component import Component, Template
from teola.workflow.kinds import Kind


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a name comes from: an output of a component, or (component "") a query input."""

    component: str
    name: str


Wiring = Mapping[tuple[str, str], tuple[Origin, ...]]
"""(component, port) -> sources, the one to prefer first; () for an absent optional input."""


class Wirer:
    """Resolves every name of a template; raises TemplateError with the nearest valid name."""

    def __init__(self, template: Template, inputs: Mapping[str, Kind]) -> None:
        self.template, self.inputs = template, inputs
        order = template.order_graph
        self.upstream = {name: nx.ancestors(order, name) for name in template.by_name}

    def wire(self, outputs: Mapping[str, str]) -> tuple[Wiring, dict[str, tuple[Origin, ...]]]:
        """The wiring of all components, and the sources of each output of the application."""
        wiring: dict[tuple[str, str], tuple[Origin, ...]] = {}
        for component in self.template.components:
            ports = {**component.required, **component.extra}
            for port, name in ports.items():
                needed = port in component.required
                sources = self._sources(component.name, name)
                if not sources and needed:
                    raise self._missing(f"component {component.name!r}", name, component.name)
                for source in sources:
                    self._check_kind(component, port, source)
                wiring[component.name, port] = sources
        finals = {}
        for output, name in outputs.items():
            finals[output] = self._sources(None, name)
            if not finals[output]:
                raise self._missing(f"output {output!r}", name, None)
        self._check_used(wiring, finals)
        return wiring, finals

    def check_chunks(self, wiring: Wiring, outputs: Mapping[str, tuple[Origin, ...]]) -> None:
        """Raise TemplateError if an output is made of the documents' `chunks`, which are only the
        new ones: what was indexed before would be silently missing (docs/decisions/0046). What a
        component with an effect gives is its own affair."""
        new = Origin("", "chunks")
        made_of = {new: ""}
        for name in self.template.order:
            component = self.template.by_name[name]
            read = {s for port in _ports(component) for s in wiring[name, port]}
            readers = [made_of[source] or name for source in sorted(read & made_of.keys(), key=str)]
            if readers and not component.effect:
                made_of |= {
                    Origin(name, given_name): readers[0] for given_name in component.given_kinds
                }
        for output, sources in outputs.items():
            for source in sources:
                if source in made_of:
                    reader = made_of[source]
                    who = f"component {reader!r} reads" if reader else f"output {output!r} is"
                    raise TemplateError(
                        f"{who} 'chunks', which are only those that are new to the collection: "
                        f"output {output!r} would lack what was indexed before. Read what a Search "
                        "finds (`hits`) instead, or give the texts as an input of kind 'texts'; a "
                        "component that stores what is new says so with effect=True"
                    )

    def check_absent(self, wiring: Wiring, absent: Collection[str]) -> None:
        """Raise TemplateError if a component needs one of the inputs `absent`, without which a
        query may come."""
        for (name, port), sources in wiring.items():
            component = self.template.by_name[name]
            optional = sources and all(not s.component and s.name in absent for s in sources)
            if optional and port in component.required and not component.lenient:
                input_name = component.required[port]
                raise TemplateError(
                    f"component {name!r} needs {input_name!r}, which is an optional input without "
                    f'a default: give it one, such as Input(..., default=""), or make {port!r} '
                    "optional in the component"
                )

    def _sources(self, consumer: str | None, name: str) -> tuple[Origin, ...]:
        scope = set(self.template.by_name) if consumer is None else self.upstream[consumer]
        left = [c for c in scope if name in self.template.by_name[c].given_kinds]
        origins: list[Origin] = []
        own = set(self.template.guards.get(consumer, ())) if consumer else set()
        while left:
            nearest = [c for c in left if not any(c in self.upstream[d] for d in left)]
            nearest.sort(key=self.template.order.index)
            free = [c for c in nearest if not set(self._guards(c)) - own]
            if len(free) > 1 or not self._exclusive(nearest):
                listed = " and ".join(repr(c) for c in nearest)
                raise TemplateError(
                    f"{name!r} is given by {listed} at once; rename one with outputs={{...}}"
                )
            origins += [Origin(c, name) for c in nearest]
            if free or self._exhaustive(nearest, own):
                return tuple(origins)
            left = [c for c in left if c not in nearest]
        if name in self.inputs:
            origins.append(Origin("", name))
        return tuple(origins)

    def _guards(self, component: str) -> tuple[Guard, ...]:
        return self.template.guards.get(component, ())

    def _exclusive(self, components: list[str]) -> bool:
        """At most one of them will run: each pair stands in different branches of a Condition."""
        taken = [{g.condition: g.branch for g in self._guards(c)} for c in components]
        return all(
            any(a[condition] != b[condition] for condition in a.keys() & b.keys())
            for i, a in enumerate(taken)
            for b in taken[i + 1 :]
        )

    def _exhaustive(self, components: list[str], own: set[Guard]) -> bool:
        """One of them will run: they cover both branches of one unguarded Condition."""
        by_condition: dict[str, set[str]] = {}
        for c in components:
            new = [g for g in self._guards(c) if g not in own]
            if len(new) == 1:
                by_condition.setdefault(new[0].condition, set()).add(new[0].branch)
        return any(len(branches) == 2 for branches in by_condition.values())

    def _check_kind(self, component: Component, port: str, source: Origin) -> None:
        if source.component:
            kind = self.template.by_name[source.component].given_kinds[source.name]
            origin = f"component {source.component!r}"
        else:
            kind, origin = self.inputs[source.name], "the query"
        needed = component.kind_of(port)
        if not needed.accepts(kind):
            raise TemplateError(
                f"component {component.name!r} needs {source.name!r} to be {needed.value}, but "
                f"{origin} gives {kind.value}"
            )

    def _missing(self, who: str, name: str, consumer: str | None) -> TemplateError:
        scope = self.template.by_name if consumer is None else self.upstream[consumer]
        names = [n for c in scope for n in self.template.by_name[c].given_kinds]
        names += list(self.inputs)
        near = get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        later = [c.name for c in self.template.components if consumer and name in c.given_kinds]
        if later:
            hint = f"; {later[0]!r} gives it, but does not come before: put it upstream with `>>`"
        listed = ", ".join(sorted(set(names))) or "nothing"
        return TemplateError(
            f"{who} needs {name!r}, which nothing upstream gives{hint} (available: {listed})"
        )

    def _check_used(self, wiring: Wiring, finals: Mapping[str, tuple[Origin, ...]]) -> None:
        used = {source.component for sources in finals.values() for source in sources}
        used |= {c.name for c in self.template.components if c.effect}
        used |= {guard.condition for guards in self.template.guards.values() for guard in guards}
        frontier = list(used - {""})
        while frontier:
            name = frontier.pop()
            feeds = {
                s.component for (c, _), sources in wiring.items() if c == name for s in sources
            }
            frontier += feeds - used - {""}
            used |= feeds
        unused = [c for c in self.template.components if c.name not in used]
        if unused:
            raise self._unused(unused, wiring)

    def _unused(self, unused: Sequence[Component], wiring: Wiring) -> TemplateError:
        """About the last of `unused`: what feeds only that one is none the worse for itself."""
        read = {s.component for c in unused for p in _ports(c) for s in wiring[c.name, p]}
        component = next(c for c in unused if c.name not in read)
        names = ", ".join(map(repr, component.outputs.values()))
        ways = [
            f"{self._called(c)}(inputs={{{port!r}: {name!r}}})"
            for c in self.template.components
            if component.name in self.upstream[c.name] and c not in unused
            for name, kind in component.given_kinds.items()
            for port in self._open_to(c, kind, wiring)
        ]
        way = f"; to have it read, write {' or '.join(ways)}" if ways else ""
        return TemplateError(
            f"component {component.name!r} is unused: no output, and nothing reads "
            f"{names or 'it'}{way}"
        )

    def _open_to(self, component: Component, kind: Kind, wiring: Wiring) -> list[str]:
        """Inputs of `component` that could take what is of `kind` and have nothing, or else one
        that reads what the query gives anyway."""
        fits = [p for p in _ports(component) if component.kind_of(p).accepts(kind)]
        free = [p for p in fits if not wiring[component.name, p]]
        taken = [p for p in fits if any(not s.component for s in wiring[component.name, p])]
        return free or taken

    def _called(self, component: Component) -> str:
        """How a component is made, for a message."""
        return type(component).__name__ if type(component).__name__ != "Function" else "component"


def _ports(component: Component) -> list[str]:
    return [*component.required, *component.extra]
