"""Pass 5, split reranking (beyond the paper): score the hits of each search as they come.

    before    search.1 ──╮                                  (after pipeline_decoding)
              search.2 ──┴▶ union ──▶ rerank ──▶ best

    after     search.1 ──▶ new.1 ──▶ rerank.1 ──╮
              search.2 ──▶ new.2 ──▶ rerank.2 ──┴▶ scores ──▶ best ◀── union

A hit that several searches find is scored once, with the one of them that is done first by the
profile (`new`), so there is no more to score than before. `best` looks the scores up by hit and
takes the hits in the order of the union, so the answer is the same, ties included. Unions of
unions, as hybrid searches make them, count as one. It declines where the profile says that the
pieces, one after another, would be done no sooner: every piece costs the engine a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from teola.graph import AggregateParams, Aggregation, Graph, Op, Primitive, Ref
from teola.passes.rewrite import Rewrite
from teola.passes.timetable import timetable
from teola.profile import Profile

NAME = "split_reranking"


def split_reranking(graph: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
    """Split the first reranking that is done sooner in pieces."""
    refused: list[Rewrite] = []
    for p in graph.primitives:
        if p.op is not Op.RERANKING or p.origin:
            continue
        lists = _lists(graph, p)
        ends_s = timetable(graph, profile).ends_s if len(lists) > 1 else {}
        come = _in_time(graph, lists, ends_s)
        reason = _refusal(graph, p, [lists[k] for k in come], profile, ends_s)
        if not reason:
            reason = f"the hits of {len(lists)} searches are scored as they come"
            return _split(graph, p, lists, come), [Rewrite(NAME, p.id, True, reason)]
        refused.append(Rewrite(NAME, p.id, False, reason))
    return graph, refused


def _lists(graph: Graph, p: Primitive) -> tuple[Ref, ...]:
    """The lists of hits whose union `p` scores; none if it is no union of what others produce."""
    hits = p.input("hits")
    if type(hits) is not Ref or hits.items is not None or hits.producer not in graph:
        return ()
    lists = _united(graph, hits)
    return lists if all(part.producer in graph for part in lists) else ()


def _united(graph: Graph, hits: Ref) -> tuple[Ref, ...]:
    """The lists whose union `hits` is, those of unions in it included; none if it is no union. What
    stands in another branch than the union does, stays in one piece."""
    union = graph[hits.producer]
    if union.params != AggregateParams(Aggregation.UNION):
        return ()
    lists: list[Ref] = []
    for ref in union.refs():
        inner = graph.by_id.get(ref.producer, union)
        whole = ref.items is None and inner.guards == union.guards
        lists += (whole and _united(graph, ref)) or [ref]
    return tuple(lists)


def _in_time(graph: Graph, lists: Sequence[Ref], ends_s: Mapping[str, float]) -> list[int]:
    """The lists in the order in which they come; where that is not known, by how much comes before
    them."""

    def when(k: int) -> tuple[float, int]:
        producer = lists[k].producer
        return ends_s[producer], len(graph.ancestors[producer])

    return sorted(range(len(lists)), key=when) if ends_s else list(range(len(lists)))


def _refusal(
    graph: Graph,
    p: Primitive,
    lists: Sequence[Ref],
    profile: Profile,
    ends_s: Mapping[str, float],
) -> str:
    """Why `p` stays as it is; empty if it does not."""
    if len(lists) < 2:
        return "its hits come all at once"
    if p.optional:
        return "it is optional: its scores are there for all hits or for none"
    is_output = any(ref.producer == p.id for ref in graph.outputs.values())
    if is_output or not all(_picks(q, p) for q in graph.consumers(p.id)):
        return "its scores are read by more than the choice of the best"
    if not _pays(graph, p, lists, profile, ends_s):
        return "by the profile its pieces would be done no sooner"
    return ""


def _picks(q: Primitive, p: Primitive) -> bool:
    """Whether `q` only chooses the best of the hits that `p` scores."""
    if not isinstance(q.params, AggregateParams) or q.params.mode is not Aggregation.TOP_K:
        return False
    return dict(q.inputs) == {"hits": p.input("hits"), "scores": Ref(p.id, "scores")}


def _pays(
    graph: Graph,
    p: Primitive,
    lists: Sequence[Ref],
    profile: Profile,
    finish: Mapping[str, float],
) -> bool:
    """Whether the pieces, one after another on one instance, are done before the whole would be."""
    engine, hop = profile.engine(p.engine), profile.dispatch_s
    hits = {ref.producer for name, ref in p.item_refs() if name == "hits"}
    ready = max((finish[q] for q in graph.parents[p.id] if q not in hits), default=0.0)
    done = 0.0
    for part, items in zip(lists, _sizes(p, len(lists)), strict=True):
        ready = max(ready, finish[part.producer])
        done = max(done, ready) + hop + engine.seconds(p.op, items, 0)
    return done < ready + hop + engine.seconds(p.op, p.items, 0)


def _sizes(p: Primitive, count: int) -> list[int]:
    each, more = divmod(p.items, count)
    return [each + (i < more) for i in range(count)]


def _split(graph: Graph, p: Primitive, lists: Sequence[Ref], come: Sequence[int]) -> Graph:
    """come: the lists in the order in which they are scored."""
    added: list[Primitive] = []
    fresh: list[Ref] = []
    for i, items in enumerate(_sizes(p, len(lists))):
        so_far = [lists[k] for k in come[: i + 1]]
        new = _gather(p, f"new.{i + 1}", so_far, Aggregation.NEW)
        fresh.append(Ref(new.id, "out"))
        inputs = tuple((name, fresh[-1] if name == "hits" else v) for name, v in p.inputs)
        added += [new, replace(p, id=f"{p.id}.{i + 1}", inputs=inputs, items=items, origin=p.id)]
    pieces = [Ref(q.id, "scores") for q in added if q.op is Op.RERANKING]
    places = [come.index(k) for k in range(len(lists))]  # what ties is told apart by the union
    scores = _gather(p, "scores", [pieces[i] for i in places], Aggregation.CONCAT)
    scored = _gather(p, "scored", [fresh[i] for i in places], Aggregation.CONCAT)
    primitives: list[Primitive] = []
    for q in graph.primitives:
        if q.id == p.id:
            primitives += [*added, scores, scored]
            continue
        if any(ref.producer == p.id for ref in q.refs()):
            score_inputs = {"scores": Ref(scores.id, "out"), "scored": Ref(scored.id, "out")}
            q = replace(q, inputs=tuple({**dict(q.inputs), **score_inputs}.items()))
        primitives.append(q)
    return Graph(graph.name, primitives, graph.outputs, graph.inputs)


def _gather(p: Primitive, key: str, parts: Sequence[Ref], mode: Aggregation) -> Primitive:
    return Primitive(
        id=f"{p.id}.{key}",
        op=Op.AGGREGATE,
        component=p.component,
        engine="",
        inputs=(("parts", tuple(parts)),),
        outputs=("out",),
        params=AggregateParams(mode),
        guards=p.guards,
    )
