"""Keys of KV blocks: equal keys mean equal KV.

KV depends on all that stands before it, so a block's key is chained to the one before. Real tokens
are digested. Simulated ones are ranges of texts that are known by a number: hashing 1,024 of them
takes 7 us instead of 35.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

_DIGEST_BYTES = 16
BYTES_OF_A_TOKEN: Final = 4


class Excerpt(NamedTuple):
    """Tokens `start` to `start + length` of the text number `text`."""

    text: int
    start: int
    length: int


def token_keys(ids: Sequence[int], block_tokens: int, salt: str = "") -> tuple[bytes, ...]:
    """The key of each full block of `ids`. salt: the tenant, whose prompts no other's timing may
    tell of."""
    return follow(root(salt), ids, block_tokens)


def text_keys(text: str, block_tokens: int, salt: str = "") -> tuple[bytes, ...]:
    """The same of a text whose tokens nobody knows: a block is as many bytes as its tokens have on
    average."""
    data = memoryview(text.encode("utf-8", "surrogatepass"))
    return tuple(chained(root(salt), data, BYTES_OF_A_TOKEN * block_tokens))


def root(salt: str) -> bytes:
    """What the first block's key follows."""
    return blake2b(salt.encode(), digest_size=_DIGEST_BYTES).digest()


def follow(key: bytes, ids: Sequence[int], block_tokens: int) -> tuple[bytes, ...]:
    """The keys of the full blocks of `ids` that come after the block with this key."""
    words = array("q", ids)
    return tuple(chained(key, memoryview(words).cast("B"), block_tokens * words.itemsize))


def chained(key: bytes, data: memoryview, size: int) -> Iterator[bytes]:
    """The keys of the full blocks of `size` bytes each that come after the block with this key."""
    for end in range(size, len(data) + 1, size):
        digest = blake2b(key, digest_size=_DIGEST_BYTES)
        digest.update(data[end - size : end])
        key = digest.digest()
        yield key


def excerpt_keys(
    excerpts: Sequence[Excerpt], block_tokens: int, salt: int = 0, known: Sequence[int] = ()
) -> tuple[int, ...]:
    """The key of each full block of the texts, however they are cut. salt: as in `token_keys`.
    known: the first ones, which need not be worked out again.

    The same in every process: numbers hash alike.
    """
    if not known and excerpts:
        known = _beginning(excerpts[0], block_tokens, salt)
    key = known[-1] if known else hash((salt, block_tokens))
    found, skip = [*known], len(known) * block_tokens
    begun: list[int] = []  # of the block that is not full: text, start, length, text, ...
    filled = 0
    for text, start, length in excerpts:
        end = start + length
        if skip:
            skipped = min(skip, length)
            skip, start, length = skip - skipped, start + skipped, length - skipped
        if filled:
            taken = min(block_tokens - filled, length)
            _append(begun, text, start, taken)
            filled, start = filled + taken, start + taken
            if filled < block_tokens:
                continue
            key = hash((key, *begun))
            found.append(key)
            begun, filled = [], 0
        for at in range(start, end - block_tokens + 1, block_tokens):
            key = hash((key, text, at, block_tokens))
            found.append(key)
        filled = (end - start) % block_tokens
        if filled:
            begun = [text, end - filled, filled]
    return tuple(found)


@lru_cache(256)
def _beginning(excerpt: Excerpt, block_tokens: int, salt: int) -> tuple[int, ...]:
    """The keys of a text that a prompt begins with: most prompts begin as others do."""
    text, start, length = excerpt
    key, found = hash((salt, block_tokens)), []
    for at in range(start, start + length - block_tokens + 1, block_tokens):
        key = hash((key, text, at, block_tokens))
        found.append(key)
    return tuple(found)


def _append(begun: list[int], text: int, start: int, length: int) -> None:
    if begun[-3] == text and begun[-2] + begun[-1] == start:
        begun[-1] += length
    elif length:
        begun += (text, start, length)
