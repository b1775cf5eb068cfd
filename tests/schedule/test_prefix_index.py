"""Which instance keeps which blocks, against a plain model and case by case."""

import random
from collections.abc import Sequence

import pytest

from teola.schedule.prefix_index import FORGOTTEN_S, PrefixIndex
from tests.planted import catches, edited

A, AB, ABC, X = ("a",), ("a", "ab"), ("a", "ab", "abc"), ("x", "xy")


def test_hits_count_blocks_from_the_first_on() -> None:
    index = PrefixIndex([None] * 4)
    index.computed(0, ABC, 0.0)
    index.computed(1, AB, 0.0)
    index.told(2, ["ab"], [], 0.0)  # without its beginning it is worth nothing
    assert index.hits(("a", "ab", "abc", "abcd"), 1.0) == {0: 3, 1: 2}
    assert index.hits(("a", "az"), 1.0) == {0: 1, 1: 1}
    assert index.hits(X, 1.0) == {}
    assert index.hits((), 1.0) == {}


@catches(
    "never-forgotten",
    "what is assumed counts for ever",
    edited(PrefixIndex._forget_old, "self.expire(i, now - FORGOTTEN_S)", "pass"),
)
def test_what_is_assumed_is_forgotten_after_a_while() -> None:
    index = PrefixIndex([None] * 2)
    index.computed(0, AB, 0.0)
    index.told(1, AB, [], 0.0)
    assert index.hits(AB, FORGOTTEN_S - 1) == {0: 2, 1: 2}
    assert index.hits(AB, FORGOTTEN_S + 1) == {1: 2}  # what is told counts until it is taken back
    index.validate()


def test_a_cache_of_known_size_forgets_what_was_used_least_recently_and_ends_first() -> None:
    index = PrefixIndex([4])
    index.computed(0, ABC, 0.0)
    index.computed(0, X, 1.0)
    assert index.size(0) == 4
    assert index.hits(ABC, 2.0) == {0: 2}
    index.computed(0, ABC, 2.0)
    assert index.hits(X, 2.0) == {0: 1}
    assert index.hits(ABC, FORGOTTEN_S * 9) == {0: 3}  # whose size is known, forgets by size alone
    index.validate()


def test_an_instance_that_tells_is_not_assumed_anything_of() -> None:
    index = PrefixIndex([None])
    index.computed(0, X, 0.0)
    index.told(0, AB, [], 1.0)
    assert index.hits(X, 1.0) == {}
    index.computed(0, X, 2.0)
    index.expire(0, 9.0)
    assert index.hits(X, 2.0) == {}
    index.told(0, [], ["ab"], 3.0)
    assert index.hits(AB, 3.0) == {0: 1}
    index.forget(0)
    assert index.size(0) == 0
    index.computed(0, X, 4.0)
    assert index.hits(X, 4.0) == {0: 2}


@catches(
    "expires-nothing",
    "a miss teaches nothing",
    edited(PrefixIndex.expire, "<= used", "< -1"),
)
def test_what_was_used_no_later_than_what_is_missing_is_gone() -> None:
    index = PrefixIndex([None] * 2)
    index.computed(0, X, 1.0)
    index.computed(0, AB, 2.0)
    index.computed(0, ("new",), 3.0)
    assert index.last_used(0, ABC) == (2, 2.0)
    assert index.last_used(1, ABC) == (0, 0.0)
    index.expire(0, 2.0)
    assert (index.hits(X, 3.0), index.hits(AB, 3.0)) == ({}, {})
    assert index.hits(("new",), 3.0) == {0: 1}


@pytest.mark.parametrize("blocks", [None, 12])
def test_the_index_agrees_with_a_plain_model(blocks: int | None) -> None:
    """Chained keys of random prompts; the model keeps a list of keys for each instance."""
    draw = random.Random(7)
    index = PrefixIndex([blocks] * 3)
    model: list[list[str]] = [[], [], []]

    def prompt() -> Sequence[str]:
        text = "".join(draw.choice("ab") for _ in range(draw.randint(0, 6)))
        return [text[: k + 1] for k in range(len(text))]

    for step in range(2000):
        i, keys = draw.randrange(3), prompt()
        match draw.choice(["computed", "computed", "forget", "hits"]):
            case "computed":
                index.computed(i, keys, float(step) / 1000)
                for key in reversed(keys):
                    if key in model[i]:
                        model[i].remove(key)
                    model[i].append(key)
                if blocks is not None:
                    model[i] = model[i][-blocks:]
            case "forget" if draw.random() < 0.05:
                index.forget(i)
                model[i] = []
        expected = {}
        for k in range(3):
            found = next((d for d, key in enumerate(keys) if key not in model[k]), len(keys))
            if found:
                expected[k] = found
        assert index.hits(keys, float(step) / 1000) == expected
    index.validate()


@catches(
    "coming-not-expected",
    "what a call on its way will compute is not expected",
    edited(PrefixIndex.look, "bits | bits >> self._coming", "bits"),
)
def test_what_is_coming_is_expected_behind_what_is_kept() -> None:
    index = PrefixIndex([None] * 3)
    index.told(0, ["a"], [], 0.0)
    index.told(1, list(AB), [], 0.0)
    index.come(0, ("ab", "abc"))
    index.come(2, X)
    assert index.look(ABC, 0.0) == ({0: 1, 1: 2}, {0: 3, 1: 2})
    assert index.look(X, 0.0) == ({}, {2: 2})
    index.told(0, ["ab"], [], 1.0)  # it is there, and the rest is not
    assert index.look(ABC, 1.0) == ({0: 2, 1: 2}, {0: 3, 1: 2})
    index.came(0, ("ab", "abc"))
    index.came(2, X)
    assert index.look(ABC, 1.0) == ({0: 2, 1: 2}, {0: 2, 1: 2})
    assert index.look(X, 1.0) == ({}, {})
    index.validate()


def test_a_depth_is_found_again_from_where_it_was() -> None:
    index = PrefixIndex([None] * 2)
    index.told(1, list(AB), [], 0.0)
    assert [index.depth(1, ABC, before) for before in range(4)] == [2] * 4
    index.told(1, ["abc"], [], 0.0)
    assert index.depth(1, ABC, 2) == 3
    index.told(1, [], ["abc", "ab"], 0.0)
    assert index.depth(1, ABC, 3) == 1
    assert index.depth(0, ABC, 3) == 0


def test_one_says_whether_it_was_told() -> None:
    index = PrefixIndex([None] * 2)
    index.computed(0, AB, 0.0)
    index.told(1, AB, [], 0.0)
    assert [index.tells(i) for i in range(2)] == [False, True]
    index.forget(1)
    assert not index.tells(1)
