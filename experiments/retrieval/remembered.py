"""The embedding model, which computes the vectors of a text and of its tokens once.

Embedding, reranking and reading share one model in a process, so all of Teola's systems get what is
remembered, and are otherwise what users run. LlamaIndex is given the same vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from teola import EngineConfig
from teola_engines.embedding.encoder import EncodedText, Encoder, Vector
from teola_engines.embedding.model import SharedModel, borrowed

DTYPE: Final = "float32"
"""On every machine, so that figures compare."""
ENGINES: Final = {
    "embedding": EngineConfig("embedding", {"dtype": DTYPE}),
    "rerank": EngineConfig("rerank", {"dtype": DTYPE}),
    "llm": EngineConfig("extractive", {"dtype": DTYPE}),
}
"""Those of a runtime that use the model."""


class Remembered:
    """An `Encoder` before another one."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.tokenizer, self.dimensions = encoder.tokenizer, encoder.dimensions
        self.max_tokens, self.asymmetric = encoder.max_tokens, encoder.asymmetric
        self._vectors: dict[tuple[str, str], Vector] = {}
        self._tokens: dict[str, EncodedText] = {}

    def embed(
        self, texts: Sequence[str], role: str, batch: int
    ) -> Iterator[tuple[list[int], Vector]]:
        """As the encoder does it, and then all that were known before."""
        new = [i for i, text in enumerate(texts) if (role, text) not in self._vectors]
        for some, vectors in self._encoder.embed([texts[i] for i in new], role, batch):
            places = [new[i] for i in some]
            for i, vector in zip(places, vectors, strict=True):
                self._vectors[role, texts[i]] = vector
            yield places, vectors
        if known := sorted(set(range(len(texts))) - set(new)):
            yield known, np.stack([self._vectors[role, texts[i]] for i in known])

    def embed_tokens(
        self, texts: Sequence[str], batch: int
    ) -> Iterator[tuple[list[int], list[EncodedText]]]:
        """As `embed`."""
        new = [i for i, text in enumerate(texts) if text not in self._tokens]
        for some, tokens in self._encoder.embed_tokens([texts[i] for i in new], batch):
            places = [new[i] for i in some]
            for i, one in zip(places, tokens, strict=True):
                self._tokens[texts[i]] = one
            yield places, tokens
        if known := sorted(set(range(len(texts))) - set(new)):
            yield known, [self._tokens[texts[i]] for i in known]


@contextmanager
def remembering() -> Iterator[SharedModel]:
    """The model that runtimes with `ENGINES` share."""
    with borrowed(dtype=DTYPE) as shared:
        assert shared.encoder is not None
        shared.encoder = Remembered(shared.encoder)
        yield shared
