"""What a loaded embedding model can do, whoever computes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncodedText:
    """One text as the model sees it: ids without special tokens, and a unit vector for each.

    ids: [n]; vectors: [n, dimensions], float32. Cut at the model's `max_tokens`.
    """

    ids: NDArray[np.int64]
    vectors: Vector


NO_TOKENS: Final = EncodedText(np.zeros(0, np.int64), np.zeros((0, 0), np.float32))


class Encoder(Protocol):
    """A model on its device; only one thread calls at a time.

    tokenizer: a fast tokenizer (of `tokenizers`) that neither truncates nor pads, for others'
    threads. max_tokens: of a text, with the special ones. asymmetric: queries and documents are
    embedded differently. pooling: how a text's vector is made of its tokens', such as "mean" ("":
    unknown). Each of its iterators gives the results of one forward pass a step, with
    the places in `texts` of those that were in it; a pass takes at most `batch` texts.
    """

    tokenizer: Any
    dimensions: int
    max_tokens: int
    asymmetric: bool
    pooling: str

    def embed(
        self, texts: Sequence[str], role: str, batch: int
    ) -> Iterator[tuple[list[int], Vector]]:
        """A vector of each text, of any length, [texts of the pass, dimensions]."""

    def embed_tokens(
        self, texts: Sequence[str], batch: int
    ) -> Iterator[tuple[list[int], list[EncodedText]]]:
        """The vectors of each text's tokens."""


def unit(raw: NDArray[Any]) -> Vector:
    """Rows scaled to length 1 in float32; a row of zeros stays zero."""
    vectors = raw.astype(np.float32)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Vector = vectors / np.maximum(norms, np.float32(1e-12))
    return scaled


def without_special(
    ids: NDArray[np.int64], vectors: Vector, special: NDArray[np.int64]
) -> EncodedText:
    """Of one text: what is no special token. vectors: of any length."""
    keep = ~np.isin(ids, special)
    return EncodedText(ids[keep], unit(vectors[keep]))
