"""Which instance keeps which blocks, against a plain model and case by case."""

import random
from collections.abc import Sequence

import pytest

from teola.schedule import coming, pages, prefix_index
from teola.schedule.coming import Chain, Coming
from teola.schedule.pages import Pages
from teola.schedule.prefix_index import FORGOTTEN_S, LOOK_S, PrefixIndex
from tests.planted import catches, edited

A, AB, ABC, X = ("a",), ("a", "ab"), ("a", "ab", "abc"), ("x", "xy")


def test_hits_count_blocks_from_the_first_on() -> None:
    index = PrefixIndex([None] * 4)
    index.computed(0, ABC, 0.0)
    index.computed(1, AB, 0.0)
    index.told(2, ["ab"], [])  # without its beginning it is worth nothing
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
    index.told(1, AB, [])
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
    index.told(0, AB, [])
    assert index.hits(X, 1.0) == {}
    index.computed(0, X, 2.0)
    index.expire(0, 9.0)
    assert index.hits(X, 2.0) == {}
    index.told(0, [], ["ab"])
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
    edited(PrefixIndex.look, "if self._coming else ()", "[:0]"),
)
def test_what_is_coming_is_expected_behind_what_is_kept() -> None:
    index = PrefixIndex([None] * 3)
    index.told(0, ["a"], [])
    index.told(1, list(AB), [])
    first, second = index.come(0, ABC, 1), index.come(2, X)
    assert index.look(ABC, 0.0) == ({0: 1, 1: 2}, {0: 3, 1: 2})
    assert index.look(X, 0.0) == ({}, {2: 2})
    index.told(0, ["ab"], [])  # it is there, and the rest is not
    assert index.look(ABC, 1.0) == ({0: 2, 1: 2}, {0: 3, 1: 2})
    index.came(first)
    index.came(second)
    assert index.look(ABC, 1.0) == ({0: 2, 1: 2}, {0: 2, 1: 2})
    assert index.look(X, 1.0) == ({}, {})
    index.validate()


def test_a_depth_is_found_again_from_where_it_was() -> None:
    index = PrefixIndex([None] * 2)
    index.told(1, list(AB), [])
    assert [index.depth(1, ABC, before) for before in range(4)] == [2] * 4
    index.told(1, ["abc"], [])
    assert index.depth(1, ABC, 2) == 3
    index.told(1, [], ["abc", "ab"])
    assert index.depth(1, ABC, 3) == 1
    assert index.depth(0, ABC, 3) == 0


def test_what_is_told_twice_counts_once() -> None:
    index = PrefixIndex([None] * 2)
    index.told(0, [*AB, *AB], [])
    index.told(1, AB, ["x"])
    index.told(0, AB, ["ab", "ab", "x"])
    index.told(1, [], ["ab", "ab"])
    assert [index.size(i) for i in range(2)] == [2, 1]
    assert index.hits(ABC, 0.0) == {0: 2, 1: 1}
    index.validate()


class PlainIndex:
    """What an index says, worked out from everything that was told."""

    def __init__(self, instances: int) -> None:
        self.kept: list[set[str]] = [set() for _ in range(instances)]
        self.coming: list[tuple[int, Sequence[str], int, Chain]] = []

    def look(self, keys: Sequence[str]) -> tuple[dict[int, int], dict[int, int]]:
        there = [set[str]() for _ in self.kept]
        for i, prompt, start, _ in self.coming:
            there[i].update(prompt[start:])
        both = [kept | more for kept, more in zip(self.kept, there, strict=True)]
        return _depths(self.kept, keys), _depths(both, keys)


def _depths(kept: Sequence[set[str]], keys: Sequence[str]) -> dict[int, int]:
    ends = (next((d for d, key in enumerate(keys) if key not in one), len(keys)) for one in kept)
    return {i: depth for i, depth in enumerate(ends) if depth}


@catches(
    "page-kept",
    "a page counts as kept when a block of it is gone",
    edited(PrefixIndex._drop, "self._pages.lost(i, in_pages)", "pass"),
)
@catches(
    "page-shared",
    "a block is in two pages, of which one is not told that it is gone",
    edited(Pages.note, "any(where[block] & paged for block in blocks)", "False"),
)
@catches(
    "page-of-all",
    "a page counts as kept by those who keep its end only",
    edited(PrefixIndex._ends, "~pages(keys[end - 1], 0)", "~self._where.get(keys[end - 1], 0)"),
)
@catches(
    "chain-ends-early",
    "what is coming behind the first of several calls is not expected",
    edited(Coming._depth, "depth = end", "return end"),
)
@catches(
    "chain-of-others",
    "a call that parts from a prompt is taken for it to its end",
    edited(Chain.end, "mine[depth:stop] == keys[depth:stop]", "True"),
)
def test_pages_and_chains_agree_with_a_plain_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts that part now and then, told, evicted in any order, and on their way."""
    for seed in range(80):
        draw = random.Random(seed)
        page = draw.choice([1, 2, 3, 5])
        for module in (pages, prefix_index):
            monkeypatch.setattr(module, "PAGE", page)
        monkeypatch.setattr(coming, "STRIDE", page)
        count = draw.choice([1, 2, 4])
        index, model = PrefixIndex([None] * count), PlainIndex(count)
        for _ in range(120):
            _happens(draw, index, model)
            asked = _prompt(draw)
            assert index.look(asked, 0.0) == model.look(asked)
            index.validate()
        for *_, chain in model.coming:
            index.came(chain)
        assert not index._coming


def _happens(draw: random.Random, index: PrefixIndex, model: PlainIndex) -> None:
    i, keys = draw.randrange(len(model.kept)), _prompt(draw)
    match draw.choice(["told", "told", "come", "came", "forget"]):
        case "told":
            gone = [key for key in sorted(model.kept[i]) if draw.random() < 0.2]
            draw.shuffle(gone)
            index.told(i, keys, gone)
            model.kept[i] = (model.kept[i] - set(gone)) | set(keys)
        case "come":
            start = draw.randint(0, len(keys))
            model.coming.append((i, keys, start, index.come(i, keys, start)))
        case "came" if model.coming:
            index.came(model.coming.pop(draw.randrange(len(model.coming)))[3])
        case "forget" if draw.random() < 0.1:
            index.forget(i)
            model.kept[i] = set()


def _prompt(draw: random.Random) -> tuple[str, ...]:
    text = "".join("a" if draw.random() < 0.8 else "b" for _ in range(draw.randint(0, 14)))
    return tuple(text[: k + 1] for k in range(len(text)))


def test_one_says_whether_it_was_told() -> None:
    index = PrefixIndex([None] * 2)
    index.computed(0, AB, 0.0)
    index.told(1, AB, [])
    assert [index.tells(i) for i in range(2)] == [False, True]
    index.forget(1)
    assert not index.tells(1)


@pytest.mark.parametrize("instance", [0, 1])
def test_a_page_that_is_noted_where_a_block_of_it_is_not_kept_is_told(
    monkeypatch: pytest.MonkeyPatch, instance: int
) -> None:
    monkeypatch.setattr(pages, "PAGE", 2)
    for left in ({}, {"b": 1 << (1 - instance)}):
        where = dict.fromkeys("ab", 1 << instance)
        noted = Pages(where, 1 << 2)
        noted.note("ab", 2, 1 << instance)
        noted.validate()
        del where["b"]
        where |= left
        with pytest.raises(AssertionError, match="page 'b' is noted where 'b' is not kept"):
            noted.validate()


def test_what_is_old_is_looked_for_once_in_a_while_and_where_the_size_is_not_known() -> None:
    """Looks at other times find what they found."""
    index = PrefixIndex([None, 9, None])
    for i, used in ((0, 0.0), (1, 0.0), (2, 0.25)):
        index.computed(i, AB, used)
    everywhere = {0: 2, 1: 2, 2: 2}
    for after in (-0.5, 0.0, 0.25, 0.49):
        assert index.hits(AB, FORGOTTEN_S + after) == everywhere
    assert index.hits(AB, FORGOTTEN_S - 0.5 + LOOK_S) == {1: 2}
    index.computed(0, AB, FORGOTTEN_S)
    assert index.hits(AB, 2 * FORGOTTEN_S) == {1: 2}, "used just so long ago"
