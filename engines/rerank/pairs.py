"""What rerankers have in common: requests become (question, texts) pairs, scores go back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from teola.engine import EngineResult, Hit, Request
from teola.errors import EngineError
from teola.graph.ops import Op


@dataclass(frozen=True, slots=True)
class Ranking:
    """The texts of one request that are to be scored against its question."""

    question: str
    texts: tuple[str, ...]


def score_all(
    requests: Sequence[Request], score: Callable[[Sequence[Ranking]], Sequence[Sequence[float]]]
) -> list[EngineResult | Exception]:
    """`hits` and `question` -> `scores`, aligned with the hits, for each request.

    `score` sees the well-formed requests of the batch at once; the others get an EngineError.
    """
    parsed = [_ranking(request) for request in requests]
    scores = iter(score([entry for entry in parsed if isinstance(entry, Ranking)]))
    return [
        {"scores": [float(value) for value in next(scores)]}
        if isinstance(entry, Ranking)
        else entry
        for entry in parsed
    ]


def _ranking(request: Request) -> Ranking | EngineError:
    hits, question = request.inputs.get("hits"), request.inputs.get("question")
    if (
        request.op is Op.RERANKING
        and isinstance(question, str)
        and isinstance(hits, list | tuple)
        and all(isinstance(hit, Hit) for hit in hits)
    ):
        return Ranking(question, tuple(hit.text for hit in hits))
    return EngineError(
        f"a reranker takes op reranking with `hits`, a list of hits, and `question`, a string; got "
        f"op {request.op.value} with inputs {sorted(request.inputs)}"
    )
