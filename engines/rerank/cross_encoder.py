"""A reranker for users who have a cross-encoder model: it reads question and text together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from teola.engine import EngineKind, EngineResult, EngineSpec, Request
from teola.errors import EngineError, EngineUnavailable
from teola.extras import needs
from teola.graph.ops import Op

from ..embedding.packing import PADDED_ON_CPU
from ..embedding.weights import locate, quiet
from ..importing import importing
from .pairs import Ranking, score_all


class CrossEncoder:
    """Scores hits with a sentence-transformers cross-encoder, given as a folder or a hub name.

    Scores are the model's own (through its activation function). max_batch: pairs in one forward
    pass, at most; a processor takes four. device: None for a GPU if there is one.
    """

    def __init__(
        self,
        name: str = "cross-encoder",
        model: str | None = None,
        threads: int | None = None,
        max_batch: int = 32,
        device: str | None = None,
    ) -> None:
        self._spec = EngineSpec(
            name=name,
            kind=EngineKind.RERANK,
            ops=frozenset({Op.RERANKING}),
            max_batch=max_batch,
            description=f"cross-encoder {model or '(no model given)'}",
        )
        self._name, self._threads, self._device = model, threads, device
        self._model: Any = None

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def start(self) -> None:
        """Load the model. Raises MissingExtra, EngineUnavailable (none, or not to be loaded)."""
        if self._model is not None:
            return
        if self._name is None:
            raise EngineUnavailable(
                f"engine {self._spec.name!r} needs a model; give model=<folder or name of a "
                "cross-encoder>, or use the engine `rerank`, which needs none",
                retryable=False,
            )
        with needs("local", f"engine {self._spec.name!r}"):
            self._model = _load(self._name, self._device, self._threads)

    def close(self) -> None:
        """Free the model."""
        self._model = None

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        """`hits` and `question` -> `scores`; all pairs of the batch in one model call, equal
        pairs once."""
        return score_all(requests, self._score)

    def _score(self, rankings: Sequence[Ranking]) -> list[list[float]]:
        if self._model is None:
            raise EngineError(f"engine {self._spec.name!r} is not started; call start() first")
        pairs = [(ranking.question, text) for ranking in rankings for text in ranking.texts]
        distinct = list(dict.fromkeys(pairs))
        scores: dict[tuple[str, str], float] = {}
        if distinct:
            raw = self._model.predict(distinct, batch_size=self._pass, show_progress_bar=False)
            scores = dict(zip(distinct, map(float, raw), strict=True))
        return [[scores[ranking.question, text] for text in ranking.texts] for ranking in rankings]

    @property
    def _pass(self) -> int:
        """Pairs of one forward pass; the model takes them by their length and pads them."""
        most = self._spec.max_batch
        return min(most, PADDED_ON_CPU) if self._model.device.type == "cpu" else most


def _load(name: str, device: str | None, threads: int | None) -> Any:
    with importing:
        import torch
        from safetensors import SafetensorError
        from sentence_transformers import CrossEncoder as Model

    if threads is not None:
        torch.set_num_threads(threads)
    folder = locate(name, organisation="cross-encoder")
    try:
        with quiet():
            model = Model(str(folder), device=device, local_files_only=True)
    except (OSError, ValueError, LookupError, RuntimeError, ImportError, SafetensorError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise EngineUnavailable(
            f"cannot load the cross-encoder in {folder}: {reason}; give a folder with a "
            "sentence-transformers cross-encoder",
            retryable=False,
        ) from error
    if model.num_labels != 1:
        raise EngineUnavailable(
            f"the model in {folder} gives {model.num_labels} scores a pair; a reranker needs one "
            "with a single label",
            retryable=False,
        )
    return model
