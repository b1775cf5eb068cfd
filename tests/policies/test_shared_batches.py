"""critical_path: whose items share a batch."""

from __future__ import annotations

from typing import Any

from teola.graph import Op
from teola.policies.batching.critical_path import CriticalPath
from teola.policies.work import Estimate, Work
from tests.planted import catches, edited
from tests.policies.choosing import add, chosen, slots
from tests.recording import work


def embedding(seq: int, run: str, total: int, item_s: float = 0.025, **more: Any) -> Work:
    """So many items of a query, by the paper's times: 0.05 s a batch and 0.025 s an item."""
    estimate = Estimate(base_s=0.05, item_s=item_s, **more)
    return work(seq, run=run, op=Op.EMBEDDING, total=total, estimate=estimate)


def batch(*queued: Work, weight: int = 32) -> list[tuple[int, int]]:
    """Of the batch that goes: works and how many of their items."""
    policy = CriticalPath()
    add(policy, *queued)
    return [(seq, hi - lo) for seq, lo, hi in chosen(policy, slots(weight), 0.0)]


@catches(
    "anybody-joins",
    "a batch is filled with whatever waits, however long those before wait for it",
    edited(CriticalPath._longer_s, "if longer_s * before > saved_s:", "if False:"),
)
def test_others_share_a_batch_only_if_it_saves_more_than_those_before_wait_for_them() -> None:
    """With one query behind, a batch less is worth 4 x 0.05 s: eight items of 0.025 s."""
    assert batch(embedding(0, "a", 20), embedding(1, "b", 8)) == [(0, 20), (1, 8)]
    assert batch(embedding(0, "a", 20), embedding(1, "b", 9)) == [(0, 20)]
    assert batch(embedding(0, "a", 20), embedding(1, "b", 9, item_s=0.0)) == [(0, 20), (1, 9)]


@catches(
    "none-behind",
    "what a batch less is worth does not grow with those that wait for it",
    edited(CriticalPath._longer_s, "(len(self._runs) - before)", "1"),
)
def test_the_more_wait_the_fuller_batches_are() -> None:
    queued = [embedding(k, f"q{k}", 12) for k in range(4)]
    assert batch(*queued[:2]) == [(0, 12)]
    assert batch(*queued[:3]) == [(0, 12), (1, 12)], "two would wait 0.2 s each for the third"
    assert batch(*queued) == [(0, 12), (1, 12), (2, 8)]


@catches(
    "once-in-always-in",
    "of a query that has something in a batch all the rest goes along",
    edited(CriticalPath._longer_s, "joined.get(work.run, 0.0)", "0.0"),
)
def test_all_that_a_query_has_in_a_batch_counts() -> None:
    stages = embedding(1, "b", 5), embedding(2, "b", 5)
    assert batch(embedding(0, "a", 20), *stages) == [(0, 20), (1, 5)]


@catches(
    "own-items-too",
    "a query's own items make it wait as if they were somebody else's",
    edited(CriticalPath._longer_s, "before and work.run != next(iter(joined))", "joined"),
)
def test_the_first_query_takes_all_the_room_that_it_can_use() -> None:
    first, last = embedding(0, "a", 2, rest_s=9.0), embedding(2, "a", 29, rest_s=1.0)
    assert batch(first, embedding(1, "b", 1, rest_s=5.0), last) == [(0, 2), (1, 1), (2, 29)]


def test_where_a_batch_costs_nothing_besides_its_items_each_query_has_its_own() -> None:
    estimate = Estimate(item_s=0.01)
    queued = [work(k, run=f"q{k}", total=2, estimate=estimate) for k in range(9)]
    assert batch(*queued) == [(0, 2)]


def test_where_times_are_not_known_batches_are_full() -> None:
    queued = [work(k, run=f"q{k}", total=12) for k in range(4)]
    assert batch(*queued) == [(0, 12), (1, 12), (2, 8)]
