"""The embedding engine: MiniLM by default, any sentence-transformers model by path or name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from teola.engine import EngineKind, EngineResult, EngineSpec, Request, any_wanted
from teola.errors import EngineError
from teola.graph.ops import EmbeddingParams, Op

from .model import Dtype, SharedModel, acquire, encode, loaded, release
from .texts import malformed, runnable, texts_of


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
    digests = True
    pooling: str = ""
    travels = ("identity", "dimensions", "max_tokens", "tokenizer", "pooling")
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
        self._wanted = (model, dtype, device, threads)
        self._shared: SharedModel | None = None

    @property
    def spec(self) -> EngineSpec:
        return self._spec

    def start(self) -> None:
        """Load the model, or share it with whoever has it already.

        Raises MissingExtra, EngineUnavailable.
        """
        if self._shared is not None:
            return
        shared = acquire(*self._wanted, who=f"engine {self._spec.name!r}")
        self._shared = shared
        self.identity = shared.identity
        self.dimensions, self.max_tokens = shared.dimensions, shared.max_tokens
        self.tokenizer, self.pooling = shared.tokenizer, shared.pooling

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

    def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        """`texts`, a list of str or Chunk -> `vectors`, a list of unit vectors (float32).

        All texts are embedded in one call; in two, queries and documents, if the model needs it.
        Raises QueryCancelled when the queries of all of them have ended in the meantime.
        """
        shared = loaded(self._shared, self._spec.name)
        results: list[EngineResult | Exception] = [malformed(request) for request in requests]
        able = [i for i, request in enumerate(requests) if runnable(request)]
        for role in ("document", "query"):
            chosen = [i for i in able if _role(requests[i], shared.asymmetric) == role]
            texts = [texts_of(requests[i]) for i in chosen]
            flat = [text for group in texts for text in group]
            vectors = shared.embed(flat, role, self._spec.max_batch, partial(any_wanted, requests))
            at = 0
            for i, group in zip(chosen, texts, strict=True):
                results[i] = {"vectors": list(vectors[at : at + len(group)])}
                at += len(group)
        return results


def _role(request: Request, asymmetric: bool) -> str:
    is_query = isinstance(request.params, EmbeddingParams) and request.params.role == "query"
    return "query" if asymmetric and is_query else "document"
