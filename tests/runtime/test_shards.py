"""Where a table is cut into shards."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.runtime.shards import LEAST_ROWS, MOST_TOKENS, NEAR, cut_shards, shard_count
from tests.planted import catches, edited


@catches(
    "cut-anywhere",
    "shards end where they are as long as they should be",
    edited(cut_shards, "if near else row", "if False else row"),
)
def test_a_shard_ends_where_the_first_column_changes() -> None:
    groups = [at // 37 for at in range(1000)]
    opens = [row == 0 or groups[row] != groups[row - 1] for row in range(1000)]
    shards = cut_shards([10] * 1000, opens, 8)
    assert len(shards) == 8
    assert all(opens[low] for low, _ in shards)
    assert all(abs(high - low - 125) <= 2 * NEAR * 125 for low, high in shards)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.booleans()), min_size=1, max_size=300),
    st.integers(1, 40),
)
def test_shards_are_all_rows_in_order_and_balanced(
    rows: list[tuple[int, bool]], count: int
) -> None:
    tokens, opens = [one for one, _ in rows], [one for _, one in rows]
    shards = cut_shards(tokens, opens, count)
    assert [row for low, high in shards for row in range(low, high)] == list(range(len(rows)))
    assert len(shards) <= count
    ideal, longest = sum(tokens) / count, max(tokens)
    for low, high in shards:
        assert low < high
        assert sum(tokens[low:high]) <= (1 + 2 * NEAR) * ideal + 2 * longest


@pytest.mark.parametrize(
    ("rows", "tokens", "workers", "count"),
    [
        (1, 10, 2, 1),
        (640, 6400, 2, 10),
        (100_000, 10**7, 2, 16),
        (100_000, 100 * MOST_TOKENS, 2, 100),
    ],
)
def test_how_many(rows: int, tokens: int, workers: int, count: int) -> None:
    assert shard_count(rows, tokens, workers) == count


def test_shared_beginnings_are_lost_at_cuts_alone() -> None:
    """Of the characters that begin the prompt before, three points at most."""
    texts = sorted(f"movie {at % 50}: {'x' * 60} review {at}" for at in range(5000))
    opens = [
        at == 0
        for _, group in groupby(texts, lambda text: text.split(":")[0])
        for at, _ in enumerate(group)
    ]

    def share(ranges: list[tuple[int, int]]) -> float:
        saved = sum(
            _shared(texts[row - 1], texts[row])
            for low, high in ranges
            for row in range(low + 1, high)
        )
        return saved / sum(map(len, texts))

    shards = cut_shards(list(map(len, texts)), opens, 16)
    assert 0 < share([(0, 5000)]) - share(shards) < 0.03


def _shared(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)


@pytest.mark.parametrize(("at", "cut"), [(37, 50), (38, 38), (50, 50), (63, 63), (64, 50)])
def test_a_shard_ends_at_most_a_quarter_from_its_ideal_place(at: int, cut: int) -> None:
    assert cut_shards([1] * 100, [row == at for row in range(100)], 2) == [(0, cut), (cut, 100)]


def test_a_row_that_opens_at_the_beginning_cuts_nothing() -> None:
    assert cut_shards([1] * 10, [True] + [False] * 9, 2) == [(0, 5), (5, 10)]
    assert cut_shards([], [], 3) == []


@pytest.mark.parametrize(("more", "count"), [(-1, 2), (0, 3), (1, 3)])
def test_a_shard_has_as_many_rows_as_fill_an_engine(more: int, count: int) -> None:
    assert shard_count(3 * LEAST_ROWS + more, MOST_TOKENS * 9, 1) == count


@pytest.mark.parametrize(("more", "count"), [(-1, 9), (0, 9), (1, 10)])
def test_a_shard_has_no_more_tokens_than_it_may(more: int, count: int) -> None:
    assert shard_count(10**6, 9 * MOST_TOKENS + more, 1) == count
