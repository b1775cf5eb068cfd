"""Pass 4, pipeline decoding (paper, section 5.2): let each item of a list go as it is generated.

    before    decode(3 items) ──▶ embed(3) ──▶ search(3) ──▶ union

    after     decode.1 ──▶ embed.1 ──▶ search.1 ──╮
              decode.2 ──▶ embed.2 ──▶ search.2 ──┼──▶ union
              decode.3 ──▶ embed.3 ──▶ search.3 ──╯

The partial decodings are one stream of one call; they form a group with its prefilling. What reads
one item, such as an LLM call for each, waits for that one alone. What reads the list gathered with
others (the question and its rewritings) is cut too, the others being a piece of their own.

Every piece costs its engines a batch. So items go on one by one, or two, four, ... at a time,
whichever the profile says is best, reranking by the next pass included: it is what pieces pay for
in most workflows. The pass declines where the whole list at once is best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from teola.graph import AggregateParams, Aggregation, DecodeParams, Graph, Op, Primitive, Ref
from teola.passes.estimate import total
from teola.passes.rewrite import EQUAL_S, LEAST_GAIN, Cut, Rewrite, aligned_successors
from teola.passes.split_reranking import split_reranking
from teola.passes.timetable import timetable
from teola.profile import Profile

NAME = "pipeline_decoding"
LIST = "items"
"""The port of a decoding at which its list is."""


def pipeline_decoding(graph: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
    """Split the first decoding of which single items are read."""
    refused: list[Rewrite] = []
    for id in graph.order:
        p = graph[id]
        if p.op is not Op.DECODING:
            continue
        reason, after = _considered(graph, p, profile)
        if after is not None:
            return after, [Rewrite(NAME, id, True, reason)]
        refused.append(Rewrite(NAME, id, False, reason))
    return graph, refused


@dataclass(frozen=True, slots=True)
class _Followers:
    """What items can go on to. members: what is cut along the list; gathered: Aggregate -> what is
    cut along what it makes of the list and others; single: what reads single items."""

    members: Sequence[str]
    gathered: Mapping[str, Sequence[str]]
    single: Sequence[str]

    @property
    def cut(self) -> list[str]:
        """All that is cut."""
        return [*self.members, *(id for chain in self.gathered.values() for id in chain)]


def _considered(graph: Graph, p: Primitive, profile: Profile) -> tuple[str, Graph | None]:
    """Why, and what the graph becomes (None: it stays)."""
    assert isinstance(p.params, DecodeParams)
    count = p.params.items
    if not p.splittable or count is None:
        return "its output is one piece, not a list declared splittable", None
    if count < 2:
        return "one item leaves nothing to pipeline", None
    followers = _followers(graph, p, count)
    if not (followers.cut or followers.single):
        return "nothing downstream takes single items", None
    size, after = _best(graph, p, followers, profile)
    if after is None:
        return "by the profile its items would cost more batches than they save time", None
    readers = ", ".join([*followers.cut, *followers.single])
    how = "one by one" if size == 1 else f"{size} at a time"
    return f"{count} items go on {how} to {readers}", after


def _best(
    graph: Graph, p: Primitive, followers: _Followers, profile: Profile
) -> tuple[int, Graph | None]:
    """How many items go on at a time, and the graph then; None if it is best as it is."""
    assert isinstance(p.params, DecodeParams)
    assert p.params.items is not None
    best: tuple[int, Graph | None] = (0, None)
    least, size = _cost(graph, profile) + EQUAL_S, 1
    while size < p.params.items and (size == 1 or followers.cut):
        after = _Pieces(graph, p, followers, size).apply()
        cost = _cost(after, profile)
        if cost < least:
            best, least = (size, after), cost - EQUAL_S
        size *= 2
    return best


def _cost(graph: Graph, profile: Profile) -> float:
    """Seconds that the query takes, and the part that pays of those that its engines work."""
    while True:
        split, _ = split_reranking(graph, profile)
        if split is graph:
            return timetable(graph, profile).length_s + LEAST_GAIN * total(graph, profile)
        graph = split


def _followers(graph: Graph, p: Primitive, count: int) -> _Followers:
    gathered: dict[str, Sequence[str]] = {}
    single: list[str] = []
    for q in graph.consumers(p.id):
        if sum(ref == Ref(p.id, LIST) for ref in q.refs()) == 1 and _concatenates(q):
            readers = [r.items for r in graph.consumers(q.id) if r.batchable and r.items > count]
            chain = _aligned(graph, q.id, readers[0]) if readers else []
            if chain:
                gathered[q.id] = chain
        if any(ref.producer == p.id and ref.items is not None for ref in q.refs()):
            single.append(q.id)
    return _Followers(_aligned(graph, p.id, count), gathered, single)


def _concatenates(q: Primitive) -> bool:
    return q.params == AggregateParams(Aggregation.CONCAT)


def _aligned(graph: Graph, root: str, items: int) -> list[str]:
    """Primitives that are cut along the list of `root`, and read no other list."""
    inside = {root}
    for id in aligned_successors(graph, [root], items)[1:]:  # in topological order
        if all(ref.producer in inside for _, ref in graph[id].item_refs()):
            inside.add(id)
    return [id for id in graph.order if id in inside - {root}]


class _Pieces:
    """The graph in which `size` items at a time go on."""

    def __init__(self, graph: Graph, p: Primitive, followers: _Followers, size: int) -> None:
        assert isinstance(p.params, DecodeParams)
        assert p.params.items is not None
        self.graph, self.p, self.followers = graph, p, followers
        self.partials = _partials(p, p.params, p.params.items)
        firsts = range(0, p.params.items, size)
        groups = [self.partials[at : at + size] for at in firsts]
        self.sizes = [len(group) for group in groups]
        self.joins = [
            _gather(p, f"{p.id}.group{j + 1}", [Ref(q.id, LIST) for q in group])
            for j, group in enumerate(groups)
            if len(group) > 1
        ]
        joined = iter(self.joins)
        self.refs = [
            Ref(next(joined).id, "out") if len(group) > 1 else Ref(group[0].id, LIST)
            for group in groups
        ]

    def apply(self) -> Graph:
        """The graph with the partial decodings and all that follows them in pieces."""
        pieces = {self.p.id: [*self.partials, *self.joins]}
        graph = Cut(
            self.graph, self.followers.members, self.sizes, lambda _, i: self.refs[i], pieces
        ).apply()
        for id, chain in self.followers.gathered.items():
            graph = self._through(graph, self.graph[id], chain)
        return graph

    def _through(self, graph: Graph, gather: Primitive, chain: Sequence[str]) -> Graph:
        """Cut what reads `gather` as the list in it is; what is before and behind that is a piece
        each."""
        parts = list(gather.refs())
        at = parts.index(Ref(self.p.id, LIST))
        before, behind = parts[:at], parts[at + 1 :]
        others = graph[chain[0]].items - sum(self.sizes)
        first = min(len(before), others) if behind else others
        refs, sizes, gathers = list(self.refs), list(self.sizes), []
        if before:
            gathers.append(_gather(gather, f"{gather.id}.before", before))
            refs.insert(0, Ref(gathers[-1].id, "out"))
            sizes.insert(0, first)
        if behind:
            gathers.append(_gather(gather, f"{gather.id}.behind", behind))
            refs.append(Ref(gathers[-1].id, "out"))
            sizes.append(others - first if before else others)
        graph = Graph(graph.name, [*graph.primitives, *gathers], graph.outputs, graph.inputs)
        return Cut(graph, chain, sizes, lambda _, i: refs[i]).apply()


def _partials(p: Primitive, params: DecodeParams, count: int) -> list[Primitive]:
    partials: list[Primitive] = []
    for i in range(count):
        last = i == count - 1
        sequence = p.input("sequence") if not partials else Ref(partials[-1].id, "sequence")
        partials.append(
            replace(
                p,
                id=f"{p.id}.{i + 1}",
                op=Op.PARTIAL_DECODING,
                inputs=(("sequence", sequence),),
                outputs=(*(o for o in p.outputs if o == LIST or last), "sequence"),
                params=replace(params, item=i),
                origin=p.origin or p.id,
            )
        )
    return partials


def _gather(p: Primitive, id: str, parts: Sequence[Ref]) -> Primitive:
    return Primitive(
        id=id,
        op=Op.AGGREGATE,
        component=p.component,
        engine="",
        inputs=(("parts", tuple(parts)),),
        outputs=("out",),
        params=AggregateParams(Aggregation.CONCAT),
        guards=p.guards,
    )
