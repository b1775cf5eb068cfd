"""Keys of blocks: equal exactly where all that stands before is equal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from teola.kv import Excerpt, excerpt_keys

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
