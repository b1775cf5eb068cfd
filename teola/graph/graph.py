"""Graph: an immutable set of primitives. Edges are derived from them and never stored twice.

data    a Ref among the inputs          a ──▶ b
order   `after`, with a reason          a ┄┄▶ b
guard   a Condition's branch            c ──◇ b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import networkx as nx

from teola.errors import GraphError
from teola.graph.ops import ConditionParams
from teola.graph.primitive import Primitive, refs_of
from teola.graph.prompt import QUERY, Ref


class Edge(NamedTuple):
    """A derived edge; `kind` is data, order or guard."""

    source: str
    target: str
    kind: str
    label: str


class Graph:
    """Primitives by id, in the order given; `inputs` the caller's names, `outputs` the answers.

    Nothing is checked on construction (passes make many graphs); `validate` checks everything.
    """

    def __init__(
        self,
        name: str,
        primitives: Iterable[Primitive],
        outputs: Mapping[str, Ref],
        inputs: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.primitives = tuple(primitives)
        self.outputs: Mapping[str, Ref] = MappingProxyType(dict(outputs))
        self.inputs = tuple(inputs)

    def __len__(self) -> int:
        return len(self.primitives)

    def __getitem__(self, id: str) -> Primitive:
        return self.by_id[id]

    def __contains__(self, id: str) -> bool:
        return id in self.by_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self.primitives == other.primitives and dict(self.outputs) == dict(other.outputs)

    def __hash__(self) -> int:
        return hash((self.name, len(self.primitives)))

    @cached_property
    def by_id(self) -> Mapping[str, Primitive]:
        return {p.id: p for p in self.primitives}

    @cached_property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """Distinct producers that each primitive waits for, over all kinds of edges.

        A speculative guard is not waited for, but by those who read from behind it and do not
        stand there themselves.
        """
        parents: dict[str, tuple[str, ...]] = {}
        guessed = {p.id: [g for g in p.guards if g.speculative] for p in self.primitives}
        for p in self.primitives:
            seen = dict.fromkeys(r.producer for r in p.refs() if r.producer != QUERY)
            for order in p.after:
                seen[order.producer] = None
            own = p.guards
            for producer in tuple(seen):
                for guard in guessed.get(producer, ()):
                    if guard not in own:
                        seen[guard.condition] = None
            for guard in own:
                if not guard.speculative:
                    seen[guard.condition] = None
            parents[p.id] = tuple(seen)
        return parents

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        by_parent: dict[str, list[str]] = {p.id: [] for p in self.primitives}
        for child, parents in self.parents.items():
            for parent in parents:
                by_parent[parent].append(child)
        return {id: tuple(children) for id, children in by_parent.items()}

    def edges(self) -> list[Edge]:
        """All edges, one per (producer, consumer, kind)."""
        edges: dict[tuple[str, str, str], Edge] = {}
        for p in self.primitives:
            for ref in p.refs():
                if ref.producer != QUERY:
                    edge = Edge(ref.producer, p.id, "data", ref.port)
                    edges.setdefault(edge[:3], edge)
            for order in p.after:
                edge = Edge(order.producer, p.id, "order", order.reason)
                edges.setdefault(edge[:3], edge)
            for guard in p.guards:
                label = f"{guard.branch}, speculative" if guard.speculative else guard.branch
                edge = Edge(guard.condition, p.id, "guard", label)
                edges.setdefault(edge[:3], edge)
        return list(edges.values())

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Ids in topological order, ties in the order given. Raises GraphError on a cycle."""
        waiting = {id: len(parents) for id, parents in self.parents.items()}
        ready = [id for id, count in waiting.items() if count == 0]
        for id in ready:  # grows while it is read
            for child in self.children[id]:
                waiting[child] -= 1
                if waiting[child] == 0:
                    ready.append(child)
        if len(ready) < len(self.primitives):
            cycle = nx.find_cycle(self.to_networkx())
            path = " -> ".join(edge[0] for edge in cycle)
            raise GraphError(f"graph {self.name!r} has a cycle: {path} -> {cycle[0][0]}")
        return tuple(ready)

    @cached_property
    def depth(self) -> Mapping[str, int]:
        """Longest distance to a primitive without children (the paper's Algorithm 2)."""
        depth: dict[str, int] = {}
        for id in reversed(self.order):
            depth[id] = max((depth[child] + 1 for child in self.children[id]), default=0)
        return depth

    @cached_property
    def ancestors(self) -> Mapping[str, frozenset[str]]:
        """Everything that each primitive waits for, transitively."""
        ancestors: dict[str, frozenset[str]] = {}
        for id in self.order:
            parents = self.parents[id]
            ancestors[id] = frozenset(parents).union(*(ancestors[parent] for parent in parents))
        return ancestors

    def consumers(self, id: str) -> list[Primitive]:
        """Primitives that read data of `id`."""
        by_id = self.by_id
        return [
            by_id[child]
            for child in self.children[id]
            if any(ref.producer == id for ref in by_id[child].refs())
        ]

    def to_networkx(self) -> nx.DiGraph[str]:
        """Primitives as nodes (attribute `primitive`), edges with attribute `kind`."""
        graph: nx.DiGraph[str] = nx.DiGraph(name=self.name)
        for p in self.primitives:
            graph.add_node(p.id, primitive=p)
        for edge in self.edges():
            graph.add_edge(edge.source, edge.target, kind=edge.kind)
        return graph

    def validate(self) -> None:
        """Raise GraphError, naming component and nearest valid name, if a rule is broken."""
        if len(self.by_id) < len(self.primitives):
            (twice, _), *_ = Counter(p.id for p in self.primitives).most_common(1)
            raise GraphError(f"graph {self.name!r}: two primitives are called {twice!r}")
        for p in self.primitives:
            for name, value in p.inputs:
                where = f"component {p.component!r}, primitive {p.id!r}, input {name!r}"
                for ref in refs_of(value):
                    self._check_ref(ref, where)
            for order in p.after:
                self._check_producer(order.producer, f"primitive {p.id!r} runs after")
            for guard in p.guards:
                self._check_producer(guard.condition, f"primitive {p.id!r} is guarded by")
                params = self[guard.condition].params
                if not isinstance(params, ConditionParams) or guard.branch not in params.branches:
                    raise GraphError(
                        f"primitive {p.id!r} waits for branch {guard.branch!r} of "
                        f"{guard.condition!r}, which has no such branch"
                    )
        for name, ref in self.outputs.items():
            self._check_ref(ref, f"output {name!r}")
        _ = self.order

    def _check_producer(self, id: str, where: str) -> None:
        if id not in self.by_id:
            near = get_close_matches(id, self.by_id)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise GraphError(f"{where} {id!r}, which does not exist{hint}")

    def _check_ref(self, ref: Ref, where: str) -> None:
        if ref.producer == QUERY:
            valid: Iterable[str] = self.inputs
        else:
            self._check_producer(ref.producer, f"{where} reads")
            valid = self[ref.producer].outputs
        if ref.port not in valid:
            near = get_close_matches(ref.port, valid)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise GraphError(
                f"{where} reads {ref.port!r} of {ref.producer!r}, which gives only "
                f"{', '.join(valid) or 'nothing'}{hint}"
            )
        if ref.items is not None:
            lo, hi = ref.items
            if lo < 0 or (hi is not None and hi <= lo):
                raise GraphError(f"{where} reads an empty range of items: {ref}")
