"""Pass 2, decompose stages (paper, section 5.2): cut long batchable work, pipeline the pieces.

    before    embed(48) ──▶ ingest(48)

    after     embed.1(32) ──▶ ingest.1(32)          embed.2 runs while ingest.1 does
              embed.2(16) ──▶ ingest.2(16)

The size of a stage is the engine's maximum efficient batch size, or a multiple of it where there
would be more than 16 stages: the graph of a long document stays small, and the engine cuts batches
from a stage as it needs them. The last stage takes whatever is left, so that one e-graph serves all
sizes with equally many stages. A list that an LLM writes stays whole: its items come one after
another, and to let each go on as it comes (pass 4) is better than to wait for a stage.
"""

from __future__ import annotations

from typing import Final

from teola.graph import QUERY, AggregateParams, Aggregation, Graph, Primitive, Ref
from teola.graph.ops import DECODES
from teola.passes.rewrite import Cut, Rewrite, aligned_successors
from teola.profile import Profile

NAME = "decompose_stages"
MOST_STAGES: Final = 16


def decompose_stages(graph: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
    """Cut the first primitive that is worth it, and its batchable successors with it."""
    refused: list[Rewrite] = []
    for id in graph.order:
        p = graph[id]
        if not p.batchable or p.origin:  # a piece is not cut again
            continue
        size = _stage(p.items, profile.engine(p.engine).max_efficient_batch(p.op))
        reason, members = _match(graph, p, size)
        if members:
            return _cut(graph, p, size, members), [Rewrite(NAME, id, True, reason)]
        refused.append(Rewrite(NAME, id, False, reason))
    return graph, refused


def _stage(items: int, batch: int) -> int:
    """Items of a stage."""
    stages = -(-items // batch)
    return batch * -(-stages // MOST_STAGES)


def _match(graph: Graph, p: Primitive, size: int) -> tuple[str, list[str]]:
    """Why, and which primitives to cut (none: refused)."""
    if p.items <= size:
        return f"{p.items} items fit the maximum efficient batch of {size}", []
    if _written(graph, p):
        return "its items are generated one after another", []
    members = aligned_successors(graph, [p.id], p.items)
    if len(members) == 1:
        return "nothing batchable follows that could be pipelined behind its stages", []
    stages = -(-p.items // size)
    followers = ", ".join(members[1:])
    return f"{p.items} items exceed {size}: {stages} stages, with {followers} behind each", members


def _written(graph: Graph, p: Primitive) -> bool:
    """Whether an LLM writes the list that `p` is cut along, alone or gathered with others."""
    for producer in {ref.producer for _, ref in p.item_refs()} - {QUERY}:
        q = graph[producer]
        decodes = [q, *(graph[r.producer] for r in q.refs() if r.producer != QUERY)]
        listed = decodes if q.params == AggregateParams(Aggregation.CONCAT) else decodes[:1]
        if any(d.splittable and d.op in DECODES for d in listed):
            return True
        if q.batchable and q.items == p.items and _written(graph, q):
            return True
    return False


def _cut(graph: Graph, p: Primitive, size: int, members: list[str]) -> Graph:
    stages = -(-p.items // size)
    sizes = [size] * (stages - 1) + [p.items - size * (stages - 1)]

    def outside(ref: Ref, i: int) -> Ref:
        lo, hi = ref.items or (0, None)
        end = hi if i == stages - 1 else lo + (i + 1) * size
        return Ref(ref.producer, ref.port, (lo + i * size, end))

    return Cut(graph, members, sizes, outside).apply()
