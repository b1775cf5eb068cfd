"""Text to chunks: LlamaIndex's SentenceSplitter, measured by the embedder's own tokenizer.

The splitter's default tokenizer counts other tokens than the embedder, which then cuts off what it
cannot take without a word. So sizes are in the embedder's tokens, and since the parts of a text may
have fewer tokens than the whole, every chunk is measured once more and cut if it is too long.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from itertools import pairwise

from teola.engine import Splitting
from teola.errors import InputError

_LONG_WORD = re.compile(r"\S{101}")
_CHARACTERS_PER_TOKEN = 8  # of long words; of prose it is about 4.5
_PREFIX = 20_000
_SMALLEST = 16

Encode = Callable[[str], list[int]]


class SplittingCancelled(Exception):
    """Raised in the splitting thread once nobody waits for its result."""


class TokenCounter:
    """Number of tokens of a text, as the length of what it returns; made for SentenceSplitter.

    BERT's tokenizer takes a word of more than 100 characters for a single unknown token, however
    long it is, so texts with such words are also measured in characters. Of a text that is clearly
    longer than `enough` tokens, only a prefix is counted, which keeps splitting linear. `cancelled`
    ends the work.
    """

    def __init__(self, encode: Encode, enough: int, cancelled: threading.Event) -> None:
        self._encode, self._enough, self._cancelled = encode, enough, cancelled
        self._characters: dict[str, int] = {}

    def __call__(self, text: str) -> range:
        if self._cancelled.is_set():
            raise SplittingCancelled
        if len(text) == 1:
            if text not in self._characters:
                self._characters[text] = len(self._encode(text))
            return range(self._characters[text])
        if len(text) > _PREFIX:
            prefix = self._count(text[:_PREFIX])
            if prefix > 2 * self._enough:
                return range(prefix)
        return range(self._count(text))

    def _count(self, text: str) -> int:
        tokens = len(self._encode(text))
        if not _LONG_WORD.search(text):
            return tokens
        return max(tokens, sum(map(len, text.split())) // _CHARACTERS_PER_TOKEN)


def split(
    text: str, splitting: Splitting, encode: Encode, cancelled: threading.Event | None = None
) -> list[str]:
    """Chunks of at most `splitting.chunk_size` tokens that together cover `text`.

    Raises InputError for sizes that make no sense.
    """
    from llama_index.core.node_parser import SentenceSplitter

    size, overlap = splitting.chunk_size, splitting.overlap
    if size < _SMALLEST or not 0 <= overlap < size:
        raise InputError(
            f"chunks of {size} tokens overlapping by {overlap} cannot be made; use a chunk_size of "
            f"at least {_SMALLEST} and a smaller overlap"
        )
    count = TokenCounter(encode, size, cancelled or threading.Event())
    splitter = SentenceSplitter(
        chunk_size=size,
        chunk_overlap=overlap,
        tokenizer=count,
        chunking_tokenizer_fn=sentences,
    )
    pieces = (piece for chunk in splitter.split_text(text) for piece in _fit(chunk, size, count))
    return [piece for piece in pieces if piece.strip()]


def sentences(text: str) -> list[str]:
    """Sentences, each with the white space after it.

    What SentenceSplitter does itself, without its search for (and download of) data that the
    untrained tokenizer does not need.
    """
    from nltk.tokenize import PunktSentenceTokenizer  # type: ignore[import-untyped]

    starts = [start for start, _ in PunktSentenceTokenizer().span_tokenize(text)]
    if len(starts) < 2:
        return [text]
    bounds = [0, *starts[1:], len(text)]
    return [text[lo:hi] for lo, hi in pairwise(bounds)]


def _fit(chunk: str, size: int, count: TokenCounter) -> list[str]:
    """`chunk`, in as many pieces as needed to have at most `size` tokens each."""
    if len(count(chunk)) <= size or len(chunk) < 2:
        return [chunk]
    middle = len(chunk) // 2
    space = max(chunk.rfind(" ", 1, middle + 1), chunk.rfind("\n", 1, middle + 1))
    at = space if space > middle // 2 else middle
    return _fit(chunk[:at], size, count) + _fit(chunk[at:], size, count)
