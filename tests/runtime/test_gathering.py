"""What an Aggregate makes of hits: duplicates, missing scores, and lists in lists."""

from __future__ import annotations

from typing import Any

from teola.engine import Hit
from teola.graph import AggregateParams, Aggregation
from teola.runtime.gathering import gather


def hit(id: str, score: float = 0.5, **more: Any) -> Hit:
    return Hit(id, "d", f"text {id}", score, **more)


def gathered(mode: Aggregation, *values: Any, k: int | None = None, weight: float = 0.0) -> Any:
    return gather(AggregateParams(mode, k, weight), values)


def test_of_equal_scores_the_hit_that_came_first_stays() -> None:
    first, same, better = hit("a", metadata={"n": 1}), hit("a"), hit("a", 0.6)
    assert gathered(Aggregation.UNION, [first], [same]) == [first]
    assert gathered(Aggregation.UNION, [first], [same], [better]) == [better]
    assert gathered(Aggregation.UNION, [hit("b"), "x"], None, [[hit("c", 0.7)], hit("a")]) == [
        hit("c", 0.7), hit("b"), hit("a"), "x",
    ]  # fmt: skip


def test_what_has_no_score_is_not_among_the_best() -> None:
    hits = [hit("a"), hit("b"), hit("c")]
    assert gathered(Aggregation.TOP_K, hits, [0.1, 0.2]) == [hit("b", 0.2), hit("a", 0.1)]
    assert gathered(Aggregation.TOP_K, hits[:1], [0.1, 0.9]) == [hit("a", 0.1)]
    assert gathered(Aggregation.TOP_K, None, [0.1]) == []
    assert gathered(Aggregation.TOP_K, hits, None) == []
    assert gathered(Aggregation.TOP_K, hits, [0.1, 0.2, 0.3], k=1) == [hit("c", 0.3)]


def test_words_count_by_their_share_of_the_highest() -> None:
    hits = [hit("a", lexical=2.0), hit("b", lexical=None), hit("c", lexical=1.0), "x"]
    found = gathered(Aggregation.TOP_K, hits, [0.1, 0.5, 0.2, 0.05], weight=0.4)
    assert [(one if one == "x" else one.id) for one in found] == ["a", "b", "c", "x"]
    assert [round(one.score, 9) for one in found[:3]] == [0.5, 0.5, 0.4]
    without = [hit("a", lexical=0.0), hit("b")]
    assert [one.score for one in gathered(Aggregation.TOP_K, without, [0.1, 0.2], weight=0.4)] == [
        0.2, 0.1,
    ]  # fmt: skip


def test_new_are_hits_that_none_of_the_others_has_each_once() -> None:
    """The last list is looked through; what is no hit is always new."""
    known = [[hit("a")], None, hit("b")]
    found = [hit("b"), [hit("c"), hit("c", 0.9)], "x", "x", None, hit("a")]
    assert gathered(Aggregation.NEW, *known, found) == [hit("c"), "x", "x"]
    assert gathered(Aggregation.NEW, None) == []


def test_of_what_is_there_the_first_or_the_last_is_taken_or_all() -> None:
    parts = (None, [1], "two", None, [3])
    assert gathered(Aggregation.FIRST, *parts) == [1]
    assert gathered(Aggregation.LAST, *parts) == gathered(Aggregation.MERGED, *parts) == [3]
    assert gathered(Aggregation.CONCAT, *parts) == [1, "two", 3]
