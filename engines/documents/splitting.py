"""Text to chunks: LlamaIndex's SentenceSplitter, measured by the embedder's own tokenizer.

The splitter's default tokenizer counts other tokens than the embedder, which then cuts off what it
cannot take without a word. So sizes are in the embedder's tokens, and since the parts of a text may
have fewer tokens than the whole, every chunk is measured once more and cut if it is too long.

It works in a thread of the process that serves, on texts that strangers wrote. Each of its steps is
for other threads one that cannot be interrupted, so a very long text is split part by part, and its
sentences are looked for window by window.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from teola.engine import Splitting
from teola.errors import DocumentError, InputError

if TYPE_CHECKING:
    from llama_index.core.node_parser import SentenceSplitter

_LONG_WORD = 100
_CHARACTERS_PER_TOKEN = 8
"""Of long words. Of prose it is about 4.5."""
_MOST_CHARACTERS_PER_TOKEN = 64
"""Of any text: accents and invisible characters alone are no tokens at all."""
_PREFIX = 20_000
_SMALLEST = 16
_PART = 1 << 18
_WINDOWS = (1 << 12, 1 << 15)

Tokenize = Callable[[str], list[int]]


class LocatedText(NamedTuple):
    """A chunk's text, and from which character to which it stands in the whole text; it may begin
    and end with white space, which is not counted at its beginning."""

    text: str
    start: int
    end: int


class SplittingCancelled(Exception):
    """Raised in the splitting thread once nobody waits for its result."""


class TokenCounter:
    """Number of tokens of a text, as the length of what it returns; made for SentenceSplitter.

    BERT's tokenizer takes a word of more than 100 characters for a single unknown token, however
    long it is, so texts with such words are also measured in characters. Of a text that is clearly
    longer than `enough` tokens, only a prefix is counted, which keeps splitting linear. `cancelled`
    ends the work.
    """

    def __init__(self, encode: Tokenize, enough: int, cancelled: threading.Event) -> None:
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
        tokens = max(len(self._encode(text)), len(text) // _MOST_CHARACTERS_PER_TOKEN)
        words = [len(word) for word in text.split()]
        if max(words, default=0) <= _LONG_WORD:
            return tokens
        return max(tokens, sum(words) // _CHARACTERS_PER_TOKEN)


def split(
    text: str, splitting: Splitting, encode: Tokenize, cancelled: threading.Event | None = None
) -> list[str]:
    """The texts of `pieces`."""
    return [piece.text for piece in pieces(text, splitting, encode, cancelled)]


def pieces(
    text: str, splitting: Splitting, encode: Tokenize, cancelled: threading.Event | None = None
) -> list[LocatedText]:
    """Chunks of at most `splitting.chunk_size` tokens that together cover `text`.

    Raises InputError for sizes that make no sense, DocumentError for a text without end.
    """
    from llama_index.core.node_parser import SentenceSplitter

    check_splitting(splitting)
    size = splitting.chunk_size
    count = TokenCounter(encode, size, cancelled or threading.Event())
    splitter = SentenceSplitter(
        chunk_size=size,
        chunk_overlap=splitting.overlap,
        tokenizer=count,
        chunking_tokenizer_fn=sentences,
    )
    try:
        chunks = [
            (chunk, at + start)
            for at, part in _parts(text)
            for chunk, start in _chunks(splitter, part)
        ]
    except TimeoutError as error:  # NLTK's own, of each of its regular expressions
        raise DocumentError(
            "finding the sentences of a document takes too long; send it in smaller parts"
        ) from error
    return [piece for chunk, start in chunks for piece in fitting(chunk, start, size, count)]


def _chunks(splitter: SentenceSplitter, text: str) -> Iterator[tuple[str, int]]:
    """The chunks of `splitter.split_text(text)`, and where they begin.

    Its two steps are taken one by one, and the second one, which looks only at sizes, gets numbers
    for texts: a text that repeats itself does not tell where a chunk of it came from.
    """
    size, at = splitter.chunk_size, 0
    splits = splitter._split(text, size)
    texts = [split.text for split in splits]
    starts = []
    for number, split in enumerate(splits):
        starts.append(text.index(split.text, at))
        at = starts[-1] + len(split.text)
        split.text = f"{number} "
    for numbers in splitter._merge(splits, size):
        first, last = (int(numbers.split()[i]) for i in (0, -1))
        chunk = "".join(texts[first : last + 1])
        if chunk.strip():
            yield chunk.strip(), starts[first] + len(chunk) - len(chunk.lstrip())


def check_splitting(splitting: Splitting) -> None:
    """Raises InputError for sizes that make no sense."""
    size, overlap = splitting.chunk_size, splitting.overlap
    if size < _SMALLEST or not 0 <= overlap < size:
        raise InputError(
            f"chunks of {size} tokens overlapping by {overlap} cannot be made; use a chunk_size of "
            f"at least {_SMALLEST} and a smaller overlap"
        )


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """`text` in parts of at most `_PART` characters, and where they begin."""
    start = 0
    while len(text) - start > _PART:
        end = gap(text, start + _PART // 2, start + _PART)
        yield start, text[start:end]
        start = end
    yield start, text[start:]


def gap(text: str, lo: int, hi: int) -> int:
    """Where to cut `text` from lo to hi: between paragraphs, lines or words, else at hi."""
    positions = (text.rfind(gap, lo, hi) for gap in ("\n\n", "\n", " "))
    return next((at for at in positions if at >= 0), hi)


def sentences(text: str) -> list[str]:
    """Sentences, each with the white space after it; one without end is cut.

    What SentenceSplitter does itself, without its search for (and download of) data that the
    untrained tokenizer does not need, and in windows: each goes on where the last sentence that is
    surely whole ended in the one before.
    """
    from nltk.tokenize import PunktSentenceTokenizer  # type: ignore[import-untyped]

    tokenizer = PunktSentenceTokenizer()
    bounds, start, size = [0], 0, _WINDOWS[0]
    while start < len(text):
        end = start + size
        ends = [start + at for at, _ in tokenizer.span_tokenize(text[start:end])][1:]
        if end < len(text):  # what stands near the end of a window may go on behind it
            sure = [at for at in ends if at < end - size // 4 and text[at - 1].isspace()]
            if not sure and size < _WINDOWS[1]:
                size *= 2
                continue
            end = sure[-1] if sure else gap(text, start + size // 2, end)
            ends = [*(at for at in ends if at < end), end]
        bounds += ends
        start, size = end, _WINDOWS[0]
    return [text[lo:hi] for lo, hi in pairwise([*bounds, len(text)])]


def fit(chunk: str, size: int, count: TokenCounter) -> list[str]:
    """`chunk`, in as many pieces as needed to have at most `size` tokens each."""
    if len(count(chunk)) <= size or len(chunk) < 2:
        return [chunk]
    middle = len(chunk) // 2
    space = max(chunk.rfind(" ", 1, middle + 1), chunk.rfind("\n", 1, middle + 1))
    at = space if space > middle // 2 else middle
    return fit(chunk[:at], size, count) + fit(chunk[at:], size, count)


def fitting(chunk: str, start: int, size: int, count: TokenCounter) -> Iterator[LocatedText]:
    """`fit` of a chunk that begins at character `start`, without pieces of white space."""
    for text in fit(chunk, size, count):
        blank, end = len(text) - len(text.lstrip()), start + len(text)
        if blank < len(text):
            yield LocatedText(text, start + blank, end)
        start = end
