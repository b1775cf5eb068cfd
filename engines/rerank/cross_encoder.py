"""A reranker for users who have a cross-encoder model: it reads question and text together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from teola.engine import EngineKind, EngineSpec, Request, Result
from teola.errors import EngineError, EngineUnavailable
from teola.graph.ops import Op

from ..embedding.weights import locate, quiet
from ..importing import importing
from .pairs import Ranking, score_all


class CrossEncoder:
    """Scores hits with a sentence-transformers cross-encoder, given as a folder or a hub name.

    Scores are the model's own (through its activation function). max_batch: pairs in one forward
    pass. device: None for a GPU if there is one.
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
        """Load the model. Raises EngineUnavailable if there is none or it cannot be loaded."""
        if self._model is not None:
            return
        if self._name is None:
            raise EngineUnavailable(
                f"engine {self._spec.name!r} needs a model; give model=<folder or name of a "
                "cross-encoder>, or use the engine `rerank`, which needs none",
                retryable=False,
            )
        self._model = _load(self._name, self._device, self._threads)

    def close(self) -> None:
        """Free the model."""
        self._model = None

    def execute(self, requests: Sequence[Request]) -> list[Result | Exception]:
        """`hits` and `question` -> `scores`; all pairs of the batch in one model call."""
        return score_all(requests, self._score)

    def _score(self, rankings: Sequence[Ranking]) -> list[list[float]]:
        if self._model is None:
            raise EngineError(f"engine {self._spec.name!r} is not started; call start() first")
        pairs = [(one.question, text) for one in rankings for text in one.texts]
        flat: list[float] = []
        if pairs:
            size = self._spec.max_batch
            raw = self._model.predict(pairs, batch_size=size, show_progress_bar=False)
            flat = [float(score) for score in raw]
        scores = iter(flat)
        return [[next(scores) for _ in one.texts] for one in rankings]


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
