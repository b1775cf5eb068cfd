"""Texts that look like a text, against all texts compared one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from teola_engines.sql.value_index import (
    CANDIDATES,
    LEAST,
    LONGEST_TEXT,
    FoundValue,
    ValueIndex,
)
from tests.planted import catches, edited

SYLLABLES = ("ka", "lin", "Mo", "ra", "ster", "væ", "o", "Ti")


def grams(text: str) -> set[str]:
    return {text[at : at + 3] for at in range(max(0, len(text) - 2))}


def likeness(asked: str, value: str) -> float:
    """The share of trigrams that two texts have in common; 1 for equal ones."""
    one, other = asked.casefold(), value.casefold()
    if one == other:
        return 1.0
    if not grams(one) or not grams(other):
        return 0.5 if other.startswith(one) else 0.0
    return len(grams(one) & grams(other)) / len(grams(one) | grams(other))


@pytest.mark.parametrize("seed", range(4))
def test_the_most_alike_come_first_and_of_equals_the_shortest(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)

    def name(most: int) -> str:
        return "".join(chance.choices(SYLLABLES, k=chance.randint(1, most)))

    columns = [(f"t{n % 2}", f"c{n}", sorted({name(4) for _ in range(15)})) for n in range(3)]
    index = ValueIndex(tmp_path / "v.db")
    assert index.build(columns) == sum(len(values) for _, _, values in columns)
    for asked in (*SYLLABLES, *(name(5) for _ in range(25))):
        alike = [
            FoundValue(table, column, value, score)
            for table, column, values in columns
            for value in values
            if (score := likeness(asked, value)) >= LEAST
        ]
        alike.sort(key=lambda one: (-one.score, len(one.value), one))
        found = index.find(asked, 100)
        assert [one for one in alike if one in found] == found, asked
        assert found == alike or len(asked) > 7, "of a short text every trigram is looked for"
        for limit in (1, 2):
            assert index.find(asked, limit) == found[:limit]


@pytest.mark.parametrize("value", ["ÖV", "Ö", "aß", "Ss", "A  B  C", "New\tYork", "İzmir"])
def test_a_text_finds_itself_in_any_case_and_with_any_white_space(
    value: str, tmp_path: Path
) -> None:
    index = ValueIndex(tmp_path / "v.db")
    index.build([("t", "c", [value, "Herring"])])
    for asked in {value, value.lower(), value.title()}:
        assert [one.value for one in index.find(asked, 5)][:1] == [value], asked
    assert index.find(value, 5)[0].score == 1.0


def test_white_space_between_words_does_not_matter(tmp_path: Path) -> None:
    index = ValueIndex(tmp_path / "v.db")
    index.build([("t", "c", ["New\tYork", "New Haven"])])
    assert index.find("new  york", 1) == [FoundValue("t", "c", "New\tYork", 1.0)]


def test_long_texts_are_alike_by_their_beginnings(tmp_path: Path) -> None:
    index = ValueIndex(tmp_path / "v.db")
    whole = "".join(chr(97 + n % 26) + chr(97 + n // 26) for n in range(LONGEST_TEXT))
    assert index.build([("t", "c", [whole, "  ", "short"])]) == 2
    (found,) = index.find(f"  {whole}\n and more", 1)
    assert (found.value, found.score) == (whole[:LONGEST_TEXT], 1.0)
    assert index.build([]) == 0
    assert index.find(whole, 1) == []
    assert [one.name for one in tmp_path.iterdir()] == ["v.db"]


@catches(
    "all-trigrams-alike",
    "a trigram of all texts tells as much as one of a single text",
    edited(
        "teola_engines.sql.value_index:_weight",
        "max(1e-6, log((of - count + 0.5) / (count + 0.5)))",
        "1.0",
    ),
)
def test_a_rare_trigram_tells_more_than_one_of_most_texts(tmp_path: Path) -> None:
    index = ValueIndex(tmp_path / "v.db")
    many = [f"harbour {n} row" for n in range(2 * CANDIDATES)]
    index.build([("t", "c", [*many, "zyzzyva"])])
    asked = "harbour row zyzzyva"
    assert likeness(asked, "zyzzyva") > 0.25
    assert "zyzzyva" in [found.value for found in index.find(asked, 10 * CANDIDATES)]


def test_columns_come_the_fewest_first_as_long_as_all_of_one_have_room(tmp_path: Path) -> None:
    index = ValueIndex(tmp_path / "v.db")
    index.build([("t", "three", ["x", "y", "z"]), ("t", "two", ["a", "b"])])
    two, three = ("t", "two", ["a", "b"]), ("t", "three", ["x", "y", "z"])
    assert index.columns(3, 5) == [two, three]
    assert index.columns(3, 4) == index.columns(2, 5) == index.columns(2, 2) == [two]
    assert index.columns(3, 1) == index.columns(1, 5) == []
