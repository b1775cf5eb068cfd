"""What may go into the database, and what a search asks of it; without a database."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from teola.engine import NAME_CHARACTERS, QueryContext, Request, Scope
from teola.errors import InputError
from teola.graph.ops import Op, SearchParams
from teola_engines.vectorstore.searching import QUESTION_CHARS, WORD_CHARS, read
from teola_engines.vectorstore.values import (
    check_key,
    check_name,
    check_place,
    clean,
    clean_place,
    json_text,
    vector,
)

HALVES = ("\ud800", "\ud8ff", "\ud900", "\udbff", "\udc00", "\udfff")


def test_what_postgresql_cannot_hold_is_refused_before_it_is_sent() -> None:
    check_name("document", "a\U0001f600 \U0010ffff\ud7ff")
    for wrong in ("", "a\0", *(f"a{half}b" for half in HALVES), None, 3):
        with pytest.raises(InputError, match=r"the document .* is not a name"):
            check_name("document", wrong)  # type: ignore[arg-type]
    check_key("tenant", "x" * NAME_CHARACTERS)
    with pytest.raises(InputError, match="more than the"):
        check_key("tenant", "x" * (NAME_CHARACTERS + 1))
    for half in HALVES:
        assert clean(f"a{half}\0b") == "a?b"
        for wrong_values in ({"k": half}, {half: 1}, {"k": [{"l": half}]}, {"k": [0, "\0"]}):
            with pytest.raises(InputError, match="a character that cannot be stored"):
                json_text(wrong_values)
    whole = {"k": "\U0001f600", "l": ["\U0010ffff", "\\ud800", "\\u0000", "가"]}
    assert json_text(whole)
    for wrong_value in (float("nan"), object(), {1}):
        with pytest.raises(InputError, match="metadata is not plain JSON"):
            json_text({"k": wrong_value})


def test_places_are_texts_and_whole_numbers_by_name() -> None:
    for place in (None, {"page": 1}, {"section": "a\0", "page": 2}):
        check_place(place)
    assert clean_place({"section": "a\0\ud800", "page": 2}) == {"section": "a?", "page": 2}
    assert clean_place(None) is None
    wrong_places: list[Any] = [
        {},
        {"page": 1.0},
        {"page": True},
        {1: "a"},
        {"page": None},
        "a",
        [1],
    ]
    for wrong in wrong_places:
        with pytest.raises(InputError, match="the place of a chunk is"):
            check_place(wrong)


def test_vectors_have_a_size_and_a_direction() -> None:
    assert vector([0, 0, 1e-3], 3).dtype == np.float32
    wrong_vectors: list[Any] = [[1, 2], [1, 2, 3, 4], [[1, 2, 3]], []]
    for wrong in wrong_vectors:
        with pytest.raises(InputError, match="does not fit the store, which holds 3"):
            vector(wrong, 3)
    for wrong in ([0, 0, 0], [float("nan"), 0, 1], [1, float("inf"), 0]):
        with pytest.raises(InputError, match="zero or not finite"):
            vector(wrong, 3)


def asked(question: Any = None, language: str | None = None, **scope: Any) -> Any:
    params = SearchParams(top_k=2, language=language)
    inputs = {"scope": Scope("default", "c", **scope), "vectors": [[1.0, 0.0]]}
    inputs |= {} if question is None else {"question": question}
    return read(0, Request(Op.SEARCHING, params, inputs, QueryContext("q"), "k"), 2)


def test_long_words_and_what_comes_late_are_left_out_of_a_question() -> None:
    for length in (WORD_CHARS - 1, WORD_CHARS, WORD_CHARS + 1):
        kept = ["x" * length] if length <= WORD_CHARS else []
        assert asked(f"a {'x' * length}\0b", "english").question == " ".join(["a", *kept, "b"])
    filling = "w " * (QUESTION_CHARS // 2 - 1)
    assert asked(filling + "ab cd", "english").question.endswith("w ab")
    assert asked("any").question == ""
    for wrong in (None, 5):
        with pytest.raises(InputError, match="needs the text `question`"):
            asked(wrong, "english")


def test_one_name_is_searched_for_by_itself_and_the_rest_are_conditions() -> None:
    one = asked(filters={"name": "a.txt", "year": 3})
    assert (one.name, [comparison.path for comparison in one.comparisons]) == ("a.txt", [("year",)])
    two = asked(filters={"name": {"$eq": "a", "$ne": "b"}})
    assert (two.name, [comparison.value for comparison in two.comparisons]) == ("a", ["b"])
    none = asked(filters={"name": {"$ne": "a"}})
    assert (none.name, len(none.comparisons)) == (None, 1)
