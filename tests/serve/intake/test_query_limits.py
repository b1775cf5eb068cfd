"""What one query may ask for, at the edge of each bound; and names as clients may write them."""

from __future__ import annotations

from typing import Any

import pytest

from teola import App, Generate, component
from teola.engine import NAME_CHARACTERS, UNNAMED, Source
from teola.errors import InputError
from teola.runtime.values import tokens_of
from teola.serve.intake.index_request import _with
from teola.serve.intake.limits import LISTED, QueryLimits, asks_a_model
from teola.serve.intake.listed_documents import _label, check_label
from teola.serve.intake.query_request import as_list
from teola.serve.intake.schemas import MOST_VALUES, check_form, parameters, schemas
from teola.serve.intake.uploads import Allowance, file_label

MORE: dict[str, Any] = {"inputs": {"question": "text", "list": "texts", "other": "any"}}
PROMPTS = App("prompts", Generate(context_required=False), outputs={"answer": "answer"}, **MORE)


@component(outputs="answer")
def echo(question: str) -> str:
    return question


PLAIN = App("plain", echo, outputs={"answer": "answer"}, **MORE)


def refusal(
    app: App = PROMPTS, given: Any = None, overrides: Any = None, **limits: int
) -> str | None:
    """Why a query is refused; None: it is taken."""
    try:
        QueryLimits(**limits).check(app, given or {}, overrides or {})
    except InputError as error:
        return str(error)
    return None


def test_texts_are_counted_together_where_a_model_reads_them() -> None:
    assert (asks_a_model(PROMPTS), asks_a_model(PLAIN)) == (True, False)
    just = {"question": "x" * 20, "list": ["x" * 8, "x" * 12]}
    most = tokens_of(just["question"]) + tokens_of(just["list"])
    assert refusal(given=just, prompt_tokens=most) is None
    assert refusal(given={**just, "other": "x" * 99}, prompt_tokens=most) is None
    told = refusal(given={**just, "question": "x" * 24}, prompt_tokens=most)
    assert f"have about {most + 1} tokens, more than the {most} that are taken" in (told or "")
    assert refusal(PLAIN, {**just, "question": "x" * 24}, prompt_tokens=most) is None


def test_a_list_has_a_length() -> None:
    assert refusal(PLAIN, {"list": ["x"] * LISTED}) is None
    assert "input 'list' has 10001 items" in (refusal(PLAIN, {"list": ["x"] * 10_001}) or "")
    assert refusal(PLAIN, {"question": "x" * 10_001}) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"collection": "papers"}, None),
        ({"collection": None}, None),
        ({"collection": "x" * NAME_CHARACTERS}, None),
        ({"collection": "x" * (NAME_CHARACTERS + 1)}, "shorten it"),
        ({"collection": " "}, "must be a name, not ' '"),
        ({"collection": ""}, "must be a name, not ''"),
        ({"collection": 7}, "must be a name, not '7'"),
        ({"collection": UNNAMED}, "name another"),
        ({"filters": {"year": 2024}}, None),
        ({"filters": {"year": {"$near": 1}}}, "near"),
        ({"filters": [1]}, "filters"),
    ],
)
def test_which_documents_are_searched_is_said_by_name(given: Any, told: str | None) -> None:
    found = refusal(given=given)
    assert (found is None) if told is None else told in (found or "")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"generate.max_tokens": 9}, None),
        ({"generate.max_tokens": 10}, "max_tokens is 10, more than the 9 that are taken"),
        ({"generate": {"max_tokens": 10}}, "max_tokens is 10"),
        ({"a.max_tokens": 1, "b.max_tokens": 10}, "max_tokens is 10"),
        ({"generate.max_tokens": "many"}, None),
        ({"generate.max_tokens": " 10 "}, "max_tokens is 10, more than the 9"),
        ({"generate.max_tokens": 10.0}, "max_tokens is 10, more than the 9"),
        ({"generate.max_tokens": "1_0"}, "max_tokens is 10, more than the 9"),
        ({"generate.max_tokens": "9"}, None),
        ({"generate.ignore_eos": False}, "ignore_eos cannot be set for a query"),
        ({"generate": {"ignore_eos": True}}, "ignore_eos cannot be set for a query"),
        ({"generate.json_schema": {"pattern": "a+"}}, "no pattern"),
        ({"generate.json_schema": '{"items": {"pattern": "a+"}}'}, "no pattern"),
        ({"generate.json_schema": {"properties": {"pattern": {"type": "string"}}}}, None),
        ({"generate.json_schema": {"patternProperties": {}}}, "no pattern"),
        ({"a": "x" * 91}, None),
        ({"a": "x" * 92}, "overrides have more than the 100 characters"),
    ],
)
def test_parameters_are_bounded_wherever_they_stand(overrides: Any, told: str | None) -> None:
    found = refusal(overrides=overrides, output_tokens=9, override_characters=100)
    assert (found is None) if told is None else told in (found or "")


def test_what_is_looked_at_among_overrides() -> None:
    nested = {"a.n": 1, "b": {"n": 2, "c": {"n": 3}}, "n": 4, "a.nn": 5, "d": [{"n": 6}]}
    assert list(parameters(nested, "n")) == [1, 2, 3, 4]
    assert list(schemas({"a.json_schema": '{"b": 1}', "json_schema": None})) == [{"b": 1}, None]
    with pytest.raises(InputError, match="json_schema is not JSON"):
        list(schemas({"a.json_schema": "{"}))
    check_form({"enum": [0] * (MOST_VALUES - 2)})
    with pytest.raises(InputError, match="may hold 2000 values"):
        check_form({"enum": [0] * (MOST_VALUES - 1)})


# --- documents and their names --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("notes.md", "notes.md"),
        ("C:\\docs\\notes.md", "notes.md"),
        ("../../etc/notes.md", "notes.md"),
        (" ..notes\x00\u202e.md. ", "notes.md"),
        ("folder/", "document"),
        ("...", "document"),
        ("", "document"),
        ("x" * 117 + ".md", "x" * 117 + ".md"),
        ("x" * 118 + ".md", "…" + "x" * 116 + ".md"),
    ],
)
def test_a_file_is_called_by_the_end_of_its_name(name: str, label: str) -> None:
    assert file_label(name) == label


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("https://a.example/b/offer%20one.pdf?x=1", "offer one.pdf"),
        ("https://a.example/b/", "b"),
        ("https://a.example", "a.example"),
        ("https://a.example:8000/", "a.example"),
    ],
)
def test_what_lies_at_a_url_is_called_by_its_path_or_host(url: str, label: str) -> None:
    assert _label(url) == label


@pytest.mark.parametrize(
    "label", ["", " ", "a\nb", "a\u2028b", "a\u202eb", "x" * (NAME_CHARACTERS + 1)]
)
def test_a_name_that_nobody_could_show_is_refused(label: str) -> None:
    check_label("the name", "x" * NAME_CHARACTERS)
    check_label("the name", "港 \u00e9")
    with pytest.raises(InputError, match="the name has 1 to"):
        check_label("the name", label)


def test_documents_share_their_allowance() -> None:
    allowance = Allowance(10)
    allowance.take(4)
    allowance.take(6)
    allowance.take(0)
    with pytest.raises(InputError, match="too large together"):
        allowance.take(1)


def test_a_documents_own_metadata_goes_before_that_of_all() -> None:
    all_metadata = {"year": 2024, "lang": "en"}
    both = {"year": 2026, "lang": "en"}
    text = {"name": "a", "text": "b"}
    assert _with(text, all_metadata) == {**text, "metadata": all_metadata}
    assert _with({**text, "metadata": None}, all_metadata)["metadata"] == all_metadata
    assert _with({**text, "metadata": {"year": 2026}}, all_metadata)["metadata"] == both
    assert _with({**text, "metadata": "odd"}, all_metadata) == {**text, "metadata": "odd"}
    assert _with("odd", all_metadata) == "odd"
    source = Source("a", text="b", metadata={"year": 2026})
    assert _with(source, all_metadata) == Source("a", text="b", metadata=both)
    with pytest.raises(InputError, match="metadata"):
        _with(source, {"a": "x" * 20_000})


def test_one_value_is_a_list_of_one() -> None:
    assert (as_list(None), as_list("a"), as_list([1]), as_list({})) == ([], ["a"], [1], [{}])
