"""Values that are too long for a window, against every way to cut them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from teola.tables.value_cutting import STEP, shortened


def lines(names: list[str], values: list[str], order: list[int]) -> str:
    return "".join(f"\n{names[at]}: {values[at]}" for at in order)


def cut(
    names: list[str], values: list[str], order: list[int], room: int, count: Callable[[str], int]
) -> list[list[str]]:
    """All cuts in order: more and more of the last ordered value, then all of it and more and more
    of the one before."""
    found, made = list(values), [list(values)]
    for at in reversed(order):
        for length in reversed(range(len(values[at]))):
            found[at] = values[at][:length]
            made.append(list(found))
        found[at] = ""
    return [one for one in made if count(lines(names, one, order)) <= room]


@pytest.mark.parametrize("seed", range(30))
def test_the_last_ordered_values_are_cut_first_and_no_more_than_needed(seed: int) -> None:
    chance = Random(seed)
    count = chance.randint(1, 4)
    names = ["name"[: chance.randint(1, 4)] for _ in range(count)]
    values = ["abcdef " * chance.randint(0, 6) for _ in range(count)]
    order = chance.sample(range(count), count)
    for room in range(len(lines(names, [""] * count, order)), 60):
        least = cut(names, values, order, room, len)[0]
        assert shortened(names, values, order, room, len) == least


def test_where_tokens_are_no_characters_little_more_is_cut() -> None:
    def words(text: str) -> int:
        return len(text.split()) + text.count("\n")

    values, names = ["one two three", "a " * 40 + "end", ""], ["x", "y", "z"]
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        for room in range(6, 55):
            best = cut(names, values, order, room, words)[0]
            found = shortened(names, values, order, room, words)
            assert words(lines(names, found, order)) <= room
            for mine, longest in zip(found, best, strict=True):
                assert longest.startswith(mine)
            if found != best and best[1]:
                assert len(found[1]) >= STEP * STEP * len(best[1]) - 3
