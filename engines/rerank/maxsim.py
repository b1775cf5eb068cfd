"""The offline reranker: token-level MaxSim (late interaction, as in ColBERT) on MiniLM.

Every token of the question looks for the most similar token of the text, in context, and the score
is the mean of what they find (Khattab and Zaharia, SIGIR 2020, section 3.2, divided by the number
of question tokens so that scores of different questions compare). MiniLM was not trained for this,
but its contextual token vectors serve well enough, and no other weights are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from teola.engine import EngineKind, EngineResult, EngineSpec, Request, any_wanted
from teola.graph.ops import Op

from ..embedding.encoder import EncodedText
from ..embedding.model import Dtype, SharedModel, acquire, loaded, release
from .pairs import Ranking, score_all


class MaxSim:
    """Scores hits in [-1, 1] by late interaction; shares its weights with the embedding engine.

    The parameters are those of `MiniLM`; only the first `max_tokens` tokens of a hit count (256 for
    MiniLM; chunks are no longer than that). A hit or a question without a word scores 0.
    """

    def __init__(
        self,
        name: str = "rerank",
        model: str | None = None,
        dtype: Dtype = "auto",
        threads: int | None = None,
        max_batch: int = 32,
        device: str | None = None,
    ) -> None:
        self._spec = EngineSpec(
            name=name,
            kind=EngineKind.RERANK,
            ops=frozenset({Op.RERANKING}),
            max_batch=max_batch,
            description=f"token-level MaxSim on {model or 'MiniLM'}",
        )
        self._wanted = (model, dtype, device, threads)
        self._shared: SharedModel | None = None

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def start(self) -> None:
        """Load the model, or share it with whoever has it already.

        Raises MissingExtra, EngineUnavailable.
        """
        if self._shared is None:
            self._shared = acquire(*self._wanted, who=f"engine {self._spec.name!r}")

    def close(self) -> None:
        """Give the model back."""
        shared, self._shared = self._shared, None
        if shared is not None:
            release(shared)

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        """`hits` and `question` -> `scores`; the batch is one call of the model, which computes a
        hit that several requests share once."""
        still_wanted = partial(any_wanted, requests)
        return score_all(requests, lambda rankings: self._score(rankings, still_wanted))

    def _score(
        self, rankings: Sequence[Ranking], still_wanted: Callable[[], bool]
    ) -> list[list[float]]:
        shared = loaded(self._shared, self._spec.name)
        texts = [text for ranking in rankings for text in (ranking.question, *ranking.texts)]
        tokens = shared.embed_tokens(texts, self._spec.max_batch, still_wanted)
        encoded = dict(zip(texts, tokens, strict=True))
        return [
            [maxsim(encoded[ranking.question], encoded[text]) for text in ranking.texts]
            for ranking in rankings
        ]


def maxsim(question: EncodedText, text: EncodedText) -> float:
    """Mean over the question's tokens of the best cosine similarity among the text's tokens."""
    if not len(question.vectors) or not len(text.vectors):
        return 0.0
    import torch

    # Not NumPy's product: its threads go on spinning for tens of milliseconds after each one, on
    # cores that the model needs, however few threads it was given.
    similar = torch.from_numpy(question.vectors) @ torch.from_numpy(text.vectors).T
    return float(similar.amax(1).mean())
