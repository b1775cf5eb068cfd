"""Values in answers of models that say more than they were asked for, or something else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from teola.tables.extract import choice_text, enforceable, extractor, first_match, wanted_of, word
from teola.tables.llm_call import llm_call_of

PERSON = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def read(answer: str, **options: Any) -> str | None:
    return extractor(llm_call_of("q", options))(answer)


@pytest.mark.parametrize(
    ("choices", "answer", "value"),
    [
        (["Yes", "No"], "no, not yes", "No"),
        (["Yes", "No"], "**YES**.", "Yes"),
        (["Yes", "No"], "I know nothing of yesterday", None),
        (["Yes", "No"], "", None),
        (["good", "very good"], "It is very good", "very good"),
        (["very", "very good"], "very good", "very good"),
        (["very good", "very"], "Very good!", "very good"),
        (["very", "very good"], "very bad", "very"),
        (["no-one", "no"], "no-one", "no-one"),
        (["C", "C++", "C#"], "I write C++ code", "C++"),
        (["C", "C++", "C#"], "C# it is", "C#"),
        (["C", "C++", "C#"], "plain c", "C"),
        ([1, 2, 10], "10 out of 12", "10"),
        ([1, 2, 10], "level 100, or 2", "2"),
        ([-1, 1], "It is -1.", "-1"),
        ([1.5, 15], "15.", "15"),
        ([1.5, 15], "1x5", None),
        ([True, False], "False, since true is wrong", "false"),
        (["ja", "nein"], "Nein!", "nein"),
        (["é", "ж"], "Ж", "ж"),
    ],
)
def test_the_choice_that_comes_first_is_taken_as_a_whole_word(
    choices: list[Any], answer: str, value: str | None
) -> None:
    """Of two that begin together the longer one."""
    assert read(answer, choices=choices) == value


def test_of_matches_alike_the_pattern_that_was_given_first_counts() -> None:
    assert first_match("a cat", ["dog", "cat|cow", "c.t"]) == (1, "cat")
    assert first_match("a cat", ["cat", "a cat"]) == (1, "a cat")
    assert first_match("cat dog", ["dog", "CAT"]) == (1, "cat")
    assert first_match("a cat", ["dog"]) is None
    assert first_match("a cat", []) is None


def test_a_choice_without_letters_at_its_end_needs_no_end_of_a_word() -> None:
    assert (word("a+"), word("+a"), word("a.b")) == (r"\ba\+", r"\+a\b", r"\ba\.b\b")


@pytest.mark.parametrize(
    ("pattern", "answer", "value"),
    [
        (r"\b[0-5]\b", "4 of 5 stars", "4"),
        (r"[A-Z]{2}\d", "code: ab7 or cd8", "ab7"),
        (r"(\d+) km", "about 12 km or 13 km", "12 km"),
        (r"^x", "a\nx", None),
    ],
)
def test_the_first_match_of_a_pattern_is_the_value(
    pattern: str, answer: str, value: str | None
) -> None:
    assert read(answer, pattern=pattern) == value


@pytest.mark.parametrize(
    ("schema", "answer", "value"),
    [
        (PERSON, '{"n": 1}', '{"n": 1}'),
        (PERSON, 'Sure: ```json\n{"n": 1}\n``` and {"n": 2}', '{"n": 1}'),
        (PERSON, '{"n": "1"} no, {"n": 2}', '{"n": 2}'),
        (PERSON, '{"of": {"n": 3}}', '{"n": 3}'),
        (PERSON, '{"n": 1', None),
        (PERSON, "n is 1", None),
        ({"type": "integer"}, "7 boats", "7"),
        ({"type": "integer"}, "about 7", None),
        ({"type": "string"}, 'It is "é" or "b"', '"é"'),
        ({"type": "array"}, "[1] [2]", "[1]"),
        ({"type": "null"}, "null", "null"),
        (PERSON, "[" * 5000, None),
        (PERSON, "[" * 98 + '{"n": 1}', '{"n": 1}'),
        (PERSON, "[" * 99 + '{"n": 1}', None),
    ],
)
def test_the_first_json_that_fits_is_the_value(schema: Any, answer: str, value: str | None) -> None:
    """It is looked for at the first hundred places where one may begin."""
    assert read(answer, schema=schema) == value


def test_a_text_without_a_form_is_taken_without_blanks_around_it() -> None:
    assert read(" \n two lines\nhere \n") == "two lines\nhere"
    assert read("  ") == ""


@pytest.mark.parametrize(
    ("pattern", "held"),
    [
        (r"\b[0-5]\b", "[0-5]"),
        (r"^yes|no$", "yes|no"),
        (r"^\b(?:a|b)\b$", "(?:a|b)"),
        (r"a[\^$]b", r"a[\^$]b"),
        (r"a(?=b)", None),
        (r"(?i)a", None),
        (r"(?P<x>a)", None),
        (r"(a)\1", None),
        (r"a\bb", None),
        (r"\Aa", None),
        (r"a$|b", None),
        (r"^\b", None),
    ],
)
def test_an_engine_holds_answers_to_what_its_grammar_has(pattern: str, held: str | None) -> None:
    assert enforceable(pattern) == held


def test_what_was_looked_for_is_told_in_words() -> None:
    assert [choice_text(choice) for choice in (True, False, "No", 1, 1.5)] == [
        "true", "false", "No", "1", "1.5",
    ]  # fmt: skip
    for options, told in (
        ({"choices": [True, False]}, "choice of true, false"),
        ({"pattern": "a.c"}, "match of a.c"),
        ({"schema": json.dumps(PERSON)}, "JSON of the schema"),
        ({"type": "integer"}, "value of type INTEGER"),
        ({}, "value of type VARCHAR"),
    ):
        assert wanted_of(llm_call_of("q", options)) == told
