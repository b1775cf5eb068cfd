"""Keys of blocks: equal exactly where all that stands before is equal."""

from __future__ import annotations

import struct
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.kv import Excerpt, excerpt_keys, follow, root, text_keys, token_keys

TEXTS = st.lists(
    st.builds(Excerpt, st.integers(0, 2), st.integers(0, 6), st.integers(0, 9)), max_size=6
)


def tokens(excerpts: list[Excerpt]) -> list[tuple[int, int]]:
    return [(text, at) for text, lo, n in excerpts for at in range(lo, lo + n)]


@given(TEXTS, TEXTS, st.integers(1, 5))
def test_keys_are_equal_as_far_as_the_tokens_are(
    a: list[Excerpt], b: list[Excerpt], size: int
) -> None:
    first, second = excerpt_keys(a, size), excerpt_keys(b, size)
    assert len(first) == len(tokens(a)) // size
    for k, (one, other) in enumerate(zip(first, second, strict=False), 1):
        assert (one == other) == (tokens(a)[: k * size] == tokens(b)[: k * size])


@given(TEXTS, st.integers(1, 5))
def test_how_a_text_is_cut_does_not_matter(excerpts: list[Excerpt], size: int) -> None:
    single = [Excerpt(text, at, 1) for text, at in tokens(excerpts)]
    assert excerpt_keys(excerpts, size) == excerpt_keys(single, size)


@given(TEXTS, st.integers(1, 5), st.integers(0, 20))
def test_what_is_known_is_gone_on_from(excerpts: list[Excerpt], size: int, known: int) -> None:
    keys = excerpt_keys(excerpts, size)
    assert excerpt_keys(excerpts, size, known=keys[:known]) == keys


def test_tenants_do_not_share() -> None:
    assert not {*excerpt_keys([Excerpt(1, 0, 8)], 4, 1)} & {*excerpt_keys([Excerpt(1, 0, 8)], 4, 2)}


def test_keys_are_the_same_in_every_process() -> None:
    assert excerpt_keys([Excerpt(7, 0, 4)], 4) == (hash((hash((0, 4)), 7, 0, 4)),)


def chain(salt: str, blocks: list[bytes]) -> tuple[bytes, ...]:
    """Each a digest of the one before it and of what the block holds; the first follows the
    salt."""
    key, keys = blake2b(salt.encode(), digest_size=16).digest(), []
    for block in blocks:
        key = blake2b(key + block, digest_size=16).digest()
        keys.append(key)
    return tuple(keys)


@pytest.mark.parametrize("salt", ["", "tenant"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 7])
def test_keys_of_tokens_are_chained_digests_of_full_blocks(count: int, salt: str) -> None:
    ids = [2**40, 0, 7, 7, 1, 2, 3][:count]
    words = [struct.pack("=qqq", *ids[at : at + 3]) for at in range(0, count // 3 * 3, 3)]
    assert token_keys(ids, 3, salt) == chain(salt, words)
    assert follow(root(salt), ids, 3) == token_keys(ids, 3, salt)
    if count > 3:
        assert follow(token_keys(ids[:3], 3, salt)[0], ids[3:], 3) == token_keys(ids, 3, salt)[1:]


@pytest.mark.parametrize("count", [0, 7, 8, 9, 15, 16, 17])
def test_a_text_has_a_block_for_as_many_bytes_as_its_tokens_have_on_average(count: int) -> None:
    """Text that is no Unicode has one, too."""
    text = ("\ud83d" + "é" * 20)[: count // 2] + "x" * (count % 2)
    data = text.encode("utf-8", "surrogatepass")
    blocks = [data[at : at + 8] for at in range(0, len(data) // 8 * 8, 8)]
    assert text_keys(text, 2, "s") == chain("s", blocks)
    assert text_keys(text, 2) == chain("", blocks)
