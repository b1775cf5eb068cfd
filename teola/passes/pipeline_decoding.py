"""Pass 4, pipeline decoding (paper, section 5.2): let each item of a list go as it is generated.

    before    decode(3 items) ──▶ embed(3) ──▶ search(3) ──▶ union

    after     decode.1 ──▶ embed.1 ──▶ search.1 ──╮
              decode.2 ──▶ embed.2 ──▶ search.2 ──┼──▶ union
              decode.3 ──▶ embed.3 ──▶ search.3 ──╯

The partial decodings are one stream of one call; they form a group with its prefilling.
"""

from __future__ import annotations

from dataclasses import replace

from teola.graph import DecodeParams, Graph, Op, Primitive, Ref
from teola.passes.rewrite import Cut, Rewrite, aligned_successors
from teola.profile import Profile

NAME = "pipeline_decoding"


def pipeline_decoding(graph: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
    """Split the first decoding whose items have a batchable consumer."""
    refused: list[Rewrite] = []
    for id in graph.order:
        p = graph[id]
        if p.op is not Op.DECODING:
            continue
        reason, members = _match(graph, p)
        if members:
            return _pipeline(graph, p, members), [Rewrite(NAME, id, True, reason)]
        refused.append(Rewrite(NAME, id, False, reason))
    return graph, refused


def _match(graph: Graph, p: Primitive) -> tuple[str, list[str]]:
    assert isinstance(p.params, DecodeParams)
    count = p.params.items
    if not p.splittable or count is None:
        return "its output is one piece, not a list declared splittable", []
    if count < 2:
        return "one item leaves nothing to pipeline", []
    members = aligned_successors(graph, [p.id], count)[1:]
    inside = {p.id}
    for member in members:  # in topological order
        if _only_from(graph, member, inside):
            inside.add(member)
    members = [m for m in members if m in inside]
    if not members:
        return "nothing downstream takes single items", []
    return f"{count} items go on one by one to {', '.join(members)}", members


def _only_from(graph: Graph, id: str, inside: set[str]) -> bool:
    return all(ref.producer in inside for _, ref in graph[id].item_refs())


def _pipeline(graph: Graph, p: Primitive, members: list[str]) -> Graph:
    assert isinstance(p.params, DecodeParams)
    assert p.params.items is not None
    count = p.params.items
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
                outputs=(*(o for o in p.outputs if o == "items" or last), "sequence"),
                params=replace(p.params, item=i),
                origin=p.origin or p.id,
            )
        )

    def outside(ref: Ref, i: int) -> Ref:
        return replace(ref, producer=partials[i].id)

    return Cut(graph, members, [1] * count, outside, {p.id: partials}).apply()
