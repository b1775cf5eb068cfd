"""The embedding engine: MiniLM by default, any sentence-transformers model by path or name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from teola.engine import Chunk, EngineKind, EngineSpec, Request, Result, any_wanted
from teola.errors import EngineError
from teola.graph.ops import EmbeddingParams, Op

from .model import Dtype, SharedModel, acquire, encode, loaded, release


class MiniLM:
    """Embeds texts; those of a batch of requests are one call of the model, equal ones once.

    model: None for the packaged MiniLM, else a folder or a name on the Hugging Face hub. dtype:
    `auto` is bfloat16 where the processor computes it natively (about three times faster). device:
    None for a GPU if there is one. threads: cores that torch may use, for the whole process.
    max_batch: texts in one forward pass, at most.

    A vector of the packaged model does not depend on what else is in the batch: on a processor, in
    float32 to 1e-6, in bfloat16 to the last bit for texts of 128 tokens or more (chunks), and to
    the rounding of that type for shorter ones.
    """

    identity: str = ""
    dimensions: int = 0
    max_tokens: int = 0
    tokenizer: Any = None
    travels = ("identity", "dimensions", "max_tokens", "tokenizer")
    """What those who split documents need of an engine that runs elsewhere."""

    def __init__(
        self,
        name: str = "embedding",
        model: str | None = None,
        dtype: Dtype = "auto",
        threads: int | None = None,
        max_batch: int = 32,
        device: str | None = None,
    ) -> None:
        if max_batch < 1:
            raise ValueError(f"max_batch must be at least 1, not {max_batch}")
        self._spec = EngineSpec(
            name=name,
            kind=EngineKind.EMBEDDING,
            ops=frozenset({Op.EMBEDDING}),
            max_batch=max_batch,
            description=f"{model or 'MiniLM'}",
        )
        self._model, self._dtype = model, dtype
        self._threads, self._device = threads, device
        self._shared: SharedModel | None = None

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def start(self) -> None:
        """Load the model, or share it with whoever has it already. Raises EngineUnavailable."""
        if self._shared is not None:
            return
        shared = acquire(self._model, self._dtype, self._device, self._threads)
        self._shared = shared
        self.identity = shared.identity
        self.dimensions, self.max_tokens = shared.dimensions, shared.max_tokens
        self.tokenizer = shared.tokenizer

    def close(self) -> None:
        """Give the model back."""
        shared, self._shared = self._shared, None
        if shared is not None:
            release(shared)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without special tokens and without truncation."""
        if self.tokenizer is None:
            raise EngineError(f"engine {self._spec.name!r} is not started; call start() first")
        return encode(self.tokenizer, text)

    def execute(self, requests: Sequence[Request]) -> list[Result | Exception]:
        """`texts`, a list of str or Chunk -> `vectors`, a list of unit vectors (float32).

        All texts are embedded in one call; in two, queries and documents, if the model needs it.
        Raises QueryCancelled when the queries of all of them have ended in the meantime.
        """
        shared = loaded(self._shared, self._spec.name)
        results: list[Result | Exception] = [_malformed(request) for request in requests]
        runnable = [i for i, request in enumerate(requests) if _runnable(request)]
        for role in ("document", "query"):
            chosen = [i for i in runnable if _role(requests[i], shared.asymmetric) == role]
            texts = [_texts(requests[i]) for i in chosen]
            flat = [text for group in texts for text in group]
            vectors = shared.embed(flat, role, self._spec.max_batch, partial(any_wanted, requests))
            at = 0
            for i, group in zip(chosen, texts, strict=True):
                results[i] = {"vectors": list(vectors[at : at + len(group)])}
                at += len(group)
        return results


def _runnable(request: Request) -> bool:
    texts = request.inputs.get("texts")
    return (
        isinstance(request.params, EmbeddingParams)
        and isinstance(texts, list | tuple)
        and all(isinstance(text, str | Chunk) for text in texts)
    )


def _role(request: Request, asymmetric: bool) -> str:
    is_query = isinstance(request.params, EmbeddingParams) and request.params.role == "query"
    return "query" if asymmetric and is_query else "document"


def _malformed(request: Request) -> EngineError:
    return EngineError(
        f"the embedding engine takes op embedding with `texts`, a list of strings or chunks; got "
        f"op {request.op.value} with inputs {sorted(request.inputs)}"
    )


def _texts(request: Request) -> list[str]:
    texts = cast("Sequence[str | Chunk]", request.inputs["texts"])
    return [text.text if isinstance(text, Chunk) else text for text in texts]
