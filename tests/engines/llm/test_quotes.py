"""How much the extractive reader quotes, and what it takes for sentences; without a model."""

from __future__ import annotations

from random import Random

import pytest

from teola.engine import TextPart
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola_engines.llm import ExtractiveReader
from teola_engines.llm.extractive import (
    NOTHING,
    _context,
    _cut,
    _formatted,
    _previous,
    _until,
    _word_groups,
)
from teola_engines.llm.sentences import Sentence
from tests.planted import catches, edited


@catches(
    "quotes-too-long",
    "quotes are longer together than an answer may be",
    edited(ExtractiveReader._quote, "room -= len(quote) + 1", "room -= len(quote) - 1"),
)
def test_as_many_quotes_as_fit_are_given_and_no_more() -> None:
    reader = ExtractiveReader()
    for seed in range(50):
        chance = Random(seed)
        texts = ["word " * chance.randint(1, 9) + "x" * chance.randint(1, 9) for _ in range(4)]
        for count in range(1, 5):
            quotes = [f"“{text}”" for text in texts[:count]]
            for most in range(3, 80):
                fit = max(k for k in range(count + 1) if len(" ".join(quotes[:k])) <= 4 * most)
                found = reader._quote(
                    [Sentence(text) for text in texts[:count]], DecodeParams(most)
                )
                if fit:
                    assert found == (" ".join(quotes[:fit]), fit == count)
                else:
                    assert len(found[0]) <= 4 * most
                    assert (found[0][:2], found[0][-3:], found[1]) == ("“w", " …”", False)
    assert reader._quote([], DecodeParams(1)) == (NOTHING, True)


def test_a_text_is_cut_between_words() -> None:
    found = {room: _cut("one two three four", room) for room in (4, 11, 12, 17, 18, 19)}
    assert found == {room: "one two" if room < 18 else "one two three" for room in found}
    for room in (4, 12, 30):
        assert _cut("x" * 50, room) == "x" * max(8, room - 4)


def parts(*texts: str, role: Role = Role.CONTEXT) -> list[TextPart]:
    return [TextPart(role, text) for text in texts]


def test_lines_of_quotations_are_answers_of_its_own() -> None:
    context = parts(
        f"“One.” “Two.”\nIt is made of wrought iron from the north.\n{NOTHING}", "Five is far."
    )
    ignored = [TextPart(Role.INSTRUCTION, "Six is none.")]
    assert [one.text for one in _context([*ignored, *context])] == [
        "One.", "Two.", "It is made of wrought iron from the north.", "Five is far.",
    ]  # fmt: skip
    answers = parts("It says “One.” and", "“Two.” too", role=Role.ANSWER)
    assert [one.text for one in _previous([*answers, *context])] == ["One.", "Two."]
    plain = parts("It is made of wrought iron.", NOTHING, role=Role.ANSWER)
    assert [one.text for one in _previous(plain)] == ["It is made of wrought iron."]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_items_are_written_as_parsers_read_them(count: int) -> None:
    items = ['say "a"', "b", "é"][:count]
    lines = [f"{item}\n" for item in items[:-1]] + items[-1:]
    assert _formatted(items, "lines") == lines
    assert _formatted(items, "numbered") == [f"{k}. {line}" for k, line in enumerate(lines, 1)]
    listed = _formatted(items, "json_list")
    assert len(listed) == count
    assert "".join(listed) == "[" + ", ".join(['"say \\"a\\""', '"b"', '"é"'][:count]) + "]"


def test_pieces_end_before_the_first_stop() -> None:
    text = "one two three four"
    for size in range(1, 19):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        for stop in ("three", "one", "four", "e", "o t"):
            found, stopped = _until((stop,), pieces)
            assert ("".join(found), stopped) == (text.partition(stop)[0], True)
        assert _until(("five",), pieces) == (pieces, False)
    groups = list(_word_groups("one two  three\nfour five six seven eight nine ten"))
    assert "".join(groups) == "one two  three\nfour five six seven eight nine ten"
    assert len({len(group.split()) for group in groups[:-1]}) == 1
