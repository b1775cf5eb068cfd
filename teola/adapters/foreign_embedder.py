"""ForeignEmbedder: an embedding engine around an embedding model of another framework.

What the model gives is looked over before anything is stored: a vector that is too short, or not
all numbers, would make every later search wrong in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from teola.adapters import foreign
from teola.engine import (
    Chunk,
    EngineKind,
    EngineResult,
    EngineSpec,
    Request,
    any_wanted,
)
from teola.errors import EngineError, EngineUnavailable, InputError, OutputError, QueryCancelled
from teola.graph.ops import EmbeddingParams, Op
from teola.runtime.engines import EngineConfig

MAX_BATCH: Final = 128
MAX_TOKENS: Final = 512
CONCURRENCY: Final = 4
_FIRST: Final = "How long are your vectors?"
_SMALLEST: Final = np.float32(1e-12)

Vectors = NDArray[np.float32]
Numbers = Sequence[Sequence[float]]


class EmbedderOptions(TypedDict, total=False):
    """What may be said of an embedding model; see ForeignEmbedder."""

    max_batch: int
    concurrency: int
    max_tokens: int
    identity: str | None


class VectorSource(Protocol):
    """An embedding model of another framework.

    label: its kind and name, for messages. model: its name, where it is known.
    """

    @property
    def label(self) -> str: ...

    @property
    def model(self) -> str | None: ...

    async def documents(self, texts: list[str]) -> Numbers:
        """A vector for each text that is searched in. Raises anything."""
        ...

    async def queries(self, texts: list[str]) -> Numbers:
        """A vector for each text that is searched for. Raises anything."""
        ...

    def close(self) -> None:
        """End threads of its own."""
        ...


class ForeignEmbedder:
    """`Embedder` of a `VectorSource`; equal texts of a batch of requests are embedded once.

    max_batch: texts that the model gets at once. concurrency: batches at once. max_tokens: of one
    text. identity: changes whenever its vectors would; by default the model's kind, name and
    dimensions. Raises InputError.
    """

    dimensions: int = 0
    estimates = True

    def __init__(
        self,
        name: str = "embedding",
        *,
        source: VectorSource,
        max_batch: int = MAX_BATCH,
        concurrency: int = CONCURRENCY,
        max_tokens: int = MAX_TOKENS,
        identity: str | None = None,
    ) -> None:
        sizes = {"max_batch": max_batch, "concurrency": concurrency, "max_tokens": max_tokens}
        for option, value in sizes.items():
            if value < 1:
                raise InputError(f"engine {name!r}: {option} must be at least 1, got {value}")
        self._source, self._max_batch, self._identity = source, max_batch, identity
        self.max_tokens = max_tokens
        self.identity = ""
        self.spec = EngineSpec(
            name=name,
            kind=EngineKind.EMBEDDING,
            ops=frozenset({Op.EMBEDDING}),
            max_batch=max_batch,
            concurrency=concurrency,
            description=source.label,
        )

    @property
    def model(self) -> str | None:
        """The model's name, where it is known."""
        return self._source.model

    async def start(self) -> None:
        """Embed a few words, to learn how long the vectors are. Raises EngineUnavailable."""
        try:
            (vector,) = await self._asked("query", [_FIRST])
        except EngineError as error:
            raise EngineUnavailable(str(error), retryable=error.retryable) from error
        self.dimensions = len(vector)
        self.identity = self._identity or f"{self._source.label}:{self.dimensions}"

    async def close(self) -> None:
        """End threads; the model stays whole, since others may use it."""
        self._source.close()

    def encode(self, text: str) -> list[int]:
        """An estimate: the tokenizer is the model's."""
        return foreign.encode(text)

    async def execute(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        """`texts`, a list of str or Chunk -> `vectors`, a list of unit vectors (float32).

        A text that the model does not take fails its own request only.
        """
        try:
            return await self._results(requests)
        except EngineError as error:
            if len(requests) == 1 or error.retryable:
                return [error] * len(requests)
        return [result for request in requests for result in await self.execute([request])]

    async def _results(self, requests: Sequence[Request]) -> list[EngineResult | Exception]:
        groups = [(_role(request), _texts(request)) for request in requests]
        vectors: dict[tuple[str, str], Vectors] = {}
        for role in sorted({role for role, _ in groups}):
            texts = list(dict.fromkeys(t for own, some in groups if own == role for t in some))
            for at in range(0, len(texts), self._max_batch):
                if not any_wanted(requests):
                    raise QueryCancelled("nobody waits for the rest of this batch")
                some = texts[at : at + self._max_batch]
                batch = await self._asked(role, some)
                vectors |= {(role, t): v for t, v in zip(some, batch, strict=True)}
        return [{"vectors": [vectors[role, text] for text in texts]} for role, texts in groups]

    async def _asked(self, role: str, texts: Sequence[str]) -> Vectors:
        """Unit vectors, in order. Raises EngineError."""
        source, clean = self._source, list(map(_clean, texts))
        with foreign.as_engine_errors(source.label):
            reply = source.queries(clean) if role == "query" else source.documents(clean)
            raw = await reply
        return _unit(_checked(raw, len(texts), self.dimensions, source.label))


def _role(request: Request) -> str:
    params = request.params
    if not isinstance(params, EmbeddingParams):
        raise EngineError(f"an embedding engine takes op embedding, got {request.op.value}")
    return params.role


def _texts(request: Request) -> list[str]:
    texts = request.inputs.get("texts")
    if not isinstance(texts, list | tuple):
        raise EngineError(f"an embedding engine takes a list of texts, not {type(texts).__name__}")
    return [_text(text) for text in texts]


def _text(value: Any) -> str:
    text = value.text if isinstance(value, Chunk) else value
    if not isinstance(text, str):
        raise EngineError(f"an embedding engine takes texts, not {type(value).__name__}")
    return text


def _clean(text: str) -> str:
    """`text` without half surrogate pairs, and never empty: models refuse both."""
    return text.encode("utf-8", "replace").decode() or " "


def _checked(raw: Numbers, count: int, dimensions: int, label: str) -> Vectors:
    """The vectors as an array. dimensions: that they must have, 0 for any. Raises OutputError."""
    try:
        with np.errstate(over="ignore"):  # what is too large is infinite then
            array = np.array(raw, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        raise OutputError(f"{label} gave what are no vectors of equal length") from None
    if array.ndim != 2 or len(array) != count or not array.shape[1]:
        raise OutputError(f"{label} gave {_shape(array)} where {count} vectors were asked for")
    if not np.isfinite(array).all():
        raise OutputError(f"{label} gave a vector with numbers that are not finite")
    if dimensions and array.shape[1] != dimensions:
        raise OutputError(
            f"{label} gave vectors of {array.shape[1]} numbers where they had {dimensions} before"
        )
    return array


def _shape(array: NDArray[Any]) -> str:
    return f"{len(array)} vectors" if array.ndim == 2 else f"an array of shape {array.shape}"


def _unit(vectors: Vectors) -> Vectors:
    """Rows scaled to length 1; a row of zeros stays zero."""
    scaled: Vectors = vectors / np.maximum(
        np.linalg.norm(vectors, axis=-1, keepdims=True), _SMALLEST
    )
    return scaled


def embedder_config(source: VectorSource, options: Mapping[str, Any]) -> EngineConfig:
    """How a runtime makes the engine. It stays in this process, where the model is, and is not
    measured when it starts: calls may cost money. Raises UnknownName, InputError."""
    config = EngineConfig(ForeignEmbedder, {"source": source, **options}, host="local", probe=False)
    config.make("embedding")
    return config
