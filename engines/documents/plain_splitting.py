"""Text to chunks without LlamaIndex: whole sentences, and whole paragraphs where that costs little.

    sentences   [ 40 ][ 60 ]¶[ 80 ][ 50 ][ 90 ] ...     tokens of each; ¶: a paragraph ends
    chunk 1     [ 40 ][ 60 ]¶[ 80 ][ 50 ]               254 have no room for the 90 tokens
    chunk 2                        [ 50 ][ 90 ] ...     begins with sentences of the one before

A chunk that is full ends with its last sentence, or with a paragraph if one ends in its second
half. It takes time in proportion to the text, whatever that holds: sentences end at marks that one
expression finds without going back, and what has no end is cut after so many characters. The marks
are looked for a window at a time, since other threads stand still while one is looked through.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from teola.engine import Splitting

from .splitting import LocatedText, TokenCounter, Tokenize, check_splitting, fit, fitting, gap

_END: Final = re.compile(r"""\n[ \t]*+\n\s*+|[.!?…]["'”’»)\]]*+\s++|[。！？]\s*+|\n""")
"""After a paragraph, a sentence, a line (which may be a heading, a row, or a list's item)."""
_CHARACTERS_PER_TOKEN: Final = 16
"""What has more of them for each token of a chunk is cut, wherever its sentences end."""
_WINDOW: Final = 1 << 18
"""Characters in which marks are looked for at once."""
_LONGEST_END: Final = 1 << 9
"""Characters of the longest mark that is found whole wherever a window ends: white space is made
shorter than this before."""


class TextSpan(NamedTuple):
    """A sentence. start, end: its characters in the text. tokens: its size, 1 at least. last: a
    paragraph ends with it."""

    start: int
    end: int
    tokens: int
    last: bool


def split(
    text: str, splitting: Splitting, encode: Tokenize, cancelled: threading.Event | None = None
) -> list[str]:
    """The texts of `pieces`."""
    return [piece.text for piece in pieces(text, splitting, encode, cancelled)]


def pieces(
    text: str, splitting: Splitting, encode: Tokenize, cancelled: threading.Event | None = None
) -> list[LocatedText]:
    """Chunks of at most `splitting.chunk_size` tokens that together cover `text`.

    Raises InputError for sizes that make no sense.
    """
    check_splitting(splitting)
    size = splitting.chunk_size
    count = TokenCounter(encode, size, cancelled or threading.Event())
    chunks: list[LocatedText] = []
    for start, end in _chunks(_sentences(text, size, count), splitting):
        chunk = text[start:end].lstrip()
        chunks += fitting(chunk.rstrip(), end - len(chunk), size, count)
    return chunks


def _sentences(text: str, size: int, count: TokenCounter) -> Iterator[TextSpan]:
    for start, end, last in _spans(text, size * _CHARACTERS_PER_TOKEN):
        at = start
        for piece in fit(text[start:end], size, count):
            begun, at = at, at + len(piece)
            yield TextSpan(begun, at, max(1, len(count(piece))), last and at == end)


def _spans(text: str, most: int) -> Iterator[tuple[int, int, bool]]:
    """Sentences of at most `most` characters."""
    start = 0
    for end, last in chain(_ends(text), [(len(text), True)]):
        while end - start > most:
            cut = gap(text, start + most // 2, start + most)
            yield start, cut, False
            start = cut
        if end > start:
            yield start, end, last
        start = end


def _ends(text: str) -> Iterator[tuple[int, bool]]:
    """Where sentences end, and whether a paragraph does."""
    start = 0
    while start < len(text):
        end = start + _WINDOW
        for match in _END.finditer(text, start, end + _LONGEST_END):
            if match.start() >= end:
                break
            start = match.end()
            yield start, match[0].count("\n") > 1
        start = max(start, end)


def _chunks(sentences: Iterator[TextSpan], splitting: Splitting) -> Iterator[tuple[int, int]]:
    """Where chunks begin and end."""
    pending: list[TextSpan] = []
    tokens = new = 0  # of `pending`; its sentences that no chunk has had yet
    for sentence in sentences:
        while pending and tokens + sentence.tokens > splitting.chunk_size:
            if new:
                cut = _cut(pending, new, tokens)
                yield pending[0].start, pending[cut - 1].end
                new = len(pending) - cut
                pending = pending[_shared(pending[:cut], splitting.overlap) :]
                tokens = sum(kept.tokens for kept in pending)
            else:  # what the chunks would share has no room beside this sentence
                tokens -= pending.pop(0).tokens
        pending.append(sentence)
        tokens, new = tokens + sentence.tokens, new + 1
    if new:
        yield pending[0].start, pending[-1].end


def _cut(pending: Sequence[TextSpan], new: int, tokens: int) -> int:
    """How many sentences the chunk takes: at least one new one. The chunk ends with a paragraph if
    one ends in its second half."""
    left = tokens
    for taken in range(len(pending), len(pending) - new, -1):
        if 2 * left < tokens:
            break
        if pending[taken - 1].last:
            return taken
        left -= pending[taken - 1].tokens
    return len(pending)


def _shared(chunk: Sequence[TextSpan], overlap: int) -> int:
    """Index of the sentence that the next chunk begins with: the sentences from there on have at
    most `overlap` tokens."""
    first, tokens = len(chunk), 0
    while first > 1 and tokens + chunk[first - 1].tokens <= overlap:
        first -= 1
        tokens += chunk[first].tokens
    return first
