"""What an Aggregate makes of its parts (the modes are in `teola.graph.ops`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from teola.engine import Hit
from teola.graph import AggregateParams, Aggregation


def gather(params: AggregateParams, values: Sequence[Any]) -> Any:
    """The value of an Aggregate. values: of its parts, in order; None where one is absent."""
    mode = params.mode
    if mode is Aggregation.TOP_K:
        hits, scores, *scored = (value or [] for value in values)
        if scored:
            hits, scores = _in_order(hits, scored[0], scores)
        scores = _with_words(hits, scores, params.lexical_weight)
        return _top_k(hits, scores, params.k or len(hits))
    if mode is Aggregation.NEW:
        return _new(_flat(values[:-1]), _flat(values[-1:]))
    present = [value for value in values if value is not None]
    if mode is Aggregation.FIRST:
        return present[0]
    if mode in (Aggregation.LAST, Aggregation.MERGED):
        return present[-1]
    flat: list[Any] = []
    for value in present:
        flat.extend(value) if isinstance(value, list) else flat.append(value)
    return _union(flat) if mode is Aggregation.UNION else flat


def _union(found: list[Any]) -> list[Any]:
    """Hits without duplicates, the best score of each, best first (ties: first found first)."""
    best: dict[str, Hit] = {}
    unscored = []
    for item in found:
        for hit in item if isinstance(item, list) else (item,):
            if not isinstance(hit, Hit):
                unscored.append(hit)
            elif hit.id not in best or hit.score > best[hit.id].score:
                best[hit.id] = hit
    return sorted(best.values(), key=lambda hit: -hit.score) + unscored


def _flat(found: Iterable[Any]) -> list[Any]:
    """The hits of lists, and of lists of lists; nothing for what is absent."""
    flat: list[Any] = []
    for item in found:
        if isinstance(item, list):
            flat += _flat(item)
        elif item is not None:
            flat.append(item)
    return flat


def _new(known: list[Any], found: list[Any]) -> list[Any]:
    """Hits of `found`, each once, that are not among `known`."""
    seen = {hit.id for hit in known if isinstance(hit, Hit)}
    fresh = []
    for hit in found:
        if isinstance(hit, Hit):
            if hit.id in seen:
                continue
            seen.add(hit.id)
        fresh.append(hit)
    return fresh


def _in_order(hits: list[Any], scored: list[Any], scores: list[Any]) -> tuple[list[Any], list[Any]]:
    """The scored ones of `hits`, with their scores, which came in the order of `scored`."""
    by_id = {hit.id: x for hit, x in zip(scored, scores, strict=False) if isinstance(hit, Hit)}
    pairs = [(hit, by_id[hit.id]) for hit in hits if isinstance(hit, Hit) and hit.id in by_id]
    pairs += [(x, y) for x, y in zip(scored, scores, strict=False) if not isinstance(x, Hit)]
    return [hit for hit, _ in pairs], [score for _, score in pairs]


def _with_words(hits: list[Any], scores: list[Any], weight: float) -> list[Any]:
    """Scores plus the lexical ones, of which the highest counts `weight`."""
    lexical = [(hit.lexical or 0.0) if isinstance(hit, Hit) else 0.0 for hit in hits]
    highest = max(lexical, default=0.0)
    if not weight or highest <= 0.0:
        return scores
    return [float(x) + weight * y / highest for x, y in zip(scores, lexical, strict=False)]


def _top_k(hits: list[Any], scores: list[Any], k: int) -> list[Any]:
    """The k best by score (ties: in order), with their new scores."""
    order = [-float(score) for score in scores[: len(hits)]]
    ranked = sorted(range(min(len(hits), len(scores))), key=order.__getitem__)[:k]
    return [
        replace(hits[i], score=float(scores[i])) if isinstance(hits[i], Hit) else hits[i]
        for i in ranked
    ]
