"""Where a table is cut into shards."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.runtime.shards import MOST_TOKENS, NEAR, cut_shards, shard_count
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
