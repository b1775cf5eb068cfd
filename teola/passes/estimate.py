"""Planned sizes and times of a graph under a profile, before anything has run.

Sizes are plans: literal text at four characters a token, chunks at 256 tokens, questions and
answers as long as those of the paper's workloads (section 7.1). What really flows is measured at
run time; these numbers serve passes and `explain` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from teola.graph import QUERY, DecodeParams, Graph, Op, Part, Primitive, Prompt, Ref, Role
from teola.graph.ops import CONTROL, DECODES, PREFILLS
from teola.profile import Profile

CHUNK_TOKENS: Final = 256
ROLE_TOKENS: Final = {
    Role.INSTRUCTION: 64,
    Role.QUESTION: 16,
    Role.CONTEXT: CHUNK_TOKENS,
    Role.ANSWER: 16,
    Role.HISTORY: 1024,
}
ANSWER_TOKENS: Final = 16
ITEM_TOKENS: Final = 17


def part_tokens(graph: Graph, part: Part) -> int:
    """Planned tokens of one prompt part."""
    if isinstance(part.content, str):
        return len(part.content) // 4 + 1
    if part.role is Role.CONTEXT:
        return CHUNK_TOKENS * _length(graph, part.content)
    return ROLE_TOKENS[part.role]


def _length(graph: Graph, ref: Ref) -> int:
    """Planned number of items behind `ref`; 1 for a single value."""
    if ref.items is not None and ref.items[1] is not None:
        return ref.items[1] - ref.items[0]
    if ref.producer == QUERY:
        return 1
    producer = graph[ref.producer]
    k = getattr(producer.params, "k", None)
    return k or producer.items


def planned_tokens(graph: Graph, p: Primitive) -> int:
    """Planned input tokens of a primitive (0 where its engine does not count tokens)."""
    if p.op in PREFILLS:
        prompt = p.input("prompt")
        assert isinstance(prompt, Prompt)
        return sum(part_tokens(graph, part) for part in prompt.parts)
    if p.op is Op.EMBEDDING:
        from_query = any(r.producer == QUERY and r.port == "chunks" for r in p.refs())
        return p.items * (CHUNK_TOKENS if from_query else ITEM_TOKENS)
    return 0


def planned_output(p: Primitive) -> int:
    """Planned tokens that a decoding generates (the first one comes from its prefilling)."""
    params = p.params
    if not isinstance(params, DecodeParams):
        return 0
    if params.item is not None:
        return ITEM_TOKENS
    if params.items is not None:
        return ITEM_TOKENS * params.items
    return min(ANSWER_TOKENS, params.max_tokens)


def seconds(graph: Graph, p: Primitive, profile: Profile) -> float:
    """Estimated execution time of a primitive alone on its engine."""
    if p.op in CONTROL:
        return 0.0
    engine = profile.engine(p.engine)
    hop = 0.0 if p.op in DECODES else profile.dispatch_s
    return hop + engine.seconds(p.op, p.items, planned_tokens(graph, p), planned_output(p))


def finish_times(graph: Graph, profile: Profile) -> dict[str, float]:
    """When each primitive is done if engines are never busy, in seconds from the start."""
    found: dict[str, float] = {}
    for id in graph.order:
        start = max((found[q] for q in graph.parents[id]), default=0.0)
        found[id] = start + seconds(graph, graph[id], profile)
    return found


def remaining(graph: Graph, profile: Profile) -> dict[str, float]:
    """The longest path in seconds from the start of each primitive to the end of its query."""
    found: dict[str, float] = {}
    for id in reversed(graph.order):
        after = max((found[child] for child in graph.children[id]), default=0.0)
        found[id] = after + seconds(graph, graph[id], profile)
    return found


def total(graph: Graph, profile: Profile) -> float:
    """Seconds of all primitives one after another, without branches that are not expected."""
    return sum(seconds(graph, p, profile) for p in graph.primitives if _expected(graph, p))


def _expected(graph: Graph, p: Primitive) -> bool:
    return all(g.branch == getattr(graph[g.condition].params, "prefer", "") for g in p.guards)


def critical_path(
    graph: Graph, profile: Profile, weight: Callable[[Primitive], float] | None = None
) -> tuple[float, list[str]]:
    """Length in seconds and ids of the longest path; branches not expected count as skipped."""
    finish: dict[str, float] = {}
    via: dict[str, str | None] = {}
    skipped: set[str] = set()
    for id in graph.order:
        p = graph[id]
        if not _expected(graph, p):
            skipped.add(id)
        parents = [q for q in graph.parents[id] if q not in skipped]
        via[id] = max(parents, key=finish.__getitem__, default=None)
        start = finish[via[id]] if via[id] else 0.0  # type: ignore[index]
        cost = weight(p) if weight else seconds(graph, p, profile)
        finish[id] = start if id in skipped else start + cost
    end = max((i for i in finish if i not in skipped), key=finish.__getitem__, default=None)
    path: list[str] = []
    length = finish[end] if end else 0.0
    while end:
        path.append(end)
        end = via[end]
    return length, path[::-1]
