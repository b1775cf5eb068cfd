"""How a query was asked and ended is the same, told out of its row of the journal."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from teola import App, component
from teola.engine import Source
from teola.errors import (
    DeadlineExceeded,
    InputError,
    QueryCancelled,
    QueryFailed,
    TeolaError,
    UnknownName,
)
from teola.query.journal import query_rows
from teola.query.journal.lost import UNREADABLE, UNREADABLE_CODE, JournalUnreadable
from teola.query.journal.query_rows import FAILURE, Body, Kept, digest_of, ended
from teola.query.result import Failure, Result
from tests.query.test_failures import kept

FIELDS: dict[str, Any] = {
    "outputs": {"answer": "yes", "hits": [1, 2], "none": None},
    "missing": ("rerank", "search"),
    "reasons": {"rerank": "it is away"},
    "notices": ("an answer was cut", "a part was refused"),
}
SOME = [some for count in (0, 1, 4) for some in combinations(FIELDS, count)]


@pytest.mark.parametrize("some", SOME)
@pytest.mark.parametrize("state", ["ok", "partial"])
def test_what_ended_well_is_told_whole(state: str, some: tuple[str, ...]) -> None:
    given = {"outputs": {}, **{name: FIELDS[name] for name in some}}
    result = Result("app", "id", state, latency_s=1.5, **given)
    row = ended(result, "t")
    assert (row.id, row.state, row.latency_s, row.tenant) == ("id", state, 1.5, "t")
    told = replace(kept(result, row.result), latency_s=row.latency_s)
    assert told.ending() == result
    assert told.shown()["result"] == result.to_json()
    assert told.summary()["latency_s"] == 1.5


# --- what clients are shown of a row --------------------------------------------------------

ROW = Kept("id", "alice", "mail", "running", 99.99951, 2, None, "d", None, None)
LINE = {"query_id": "id", "app": "mail", "mode": "background", "created": 100.0}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, {"state": "running", "running_s": 12.346}),
        ({"state": "waiting"}, {"state": "waiting", "running_s": 12.346}),
        ({"state": "ok", "latency_s": 0.0}, {"state": "ok", "latency_s": 0.0}),
        ({"state": "failed"}, {"state": "failed"}),
        ({"unreadable": True}, {"state": "running", "running_s": 12.346, "code": UNREADABLE_CODE}),
        (
            {"state": "ok", "latency_s": 7.1, "unreadable": True},
            {"state": "ok", "latency_s": 7.1, "code": UNREADABLE_CODE},
        ),
    ],
)
def test_a_line_says_how_long_a_query_took_or_takes_so_far(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], line: dict[str, Any]
) -> None:
    monkeypatch.setattr(query_rows.time, "time", lambda: ROW.created + 12.34567)
    row = replace(ROW, **more)
    assert row.summary() == {**LINE, **line}
    assert row.ended == (row.state not in ("running", "waiting"))
    if not row.unreadable:
        assert row.shown() == row.summary(), "it has no result"
        internal = {FAILURE: {"kind": "QueryFailed"}}
        assert replace(row, result=json.dumps(internal)).shown() == row.summary()
        told = replace(row, result=json.dumps({"outputs": {"a": 1}, **internal})).shown()
        assert told == {**row.summary(), "result": {"outputs": {"a": 1}}}


@pytest.mark.parametrize("more", [{"unreadable": True}, {"result": "{"}, {"result": "[" * 10**5}])
def test_a_row_that_cannot_be_read_says_so_by_its_query(more: dict[str, Any]) -> None:
    row = replace(ROW, state="ok", **more)
    for read in (row.shown, row.ending):
        with pytest.raises(JournalUnreadable) as raised:
            read()
        assert str(raised.value) == UNREADABLE.format(id="id")


@pytest.mark.parametrize("state", ["running", "waiting", "cancelled", "failed"])
def test_of_a_row_without_a_result_an_ending_says_what_is_known(state: str) -> None:
    end = replace(ROW, state=state).ending()
    assert (end.app, end.query_id, end.state, end.latency_s) == ("mail", "id", state, 0.0)
    assert (end.outputs, end.missing, end.reasons, end.notices) == ({}, (), {}, ())
    assert str(end.error) == f"query id ended {state}"


def test_seconds_are_written_to_the_microsecond_and_an_error_with_its_kind() -> None:
    error = UnknownName("engine", "llm", ["llms"])
    row = ended(Result("app", "id", "failed", {}, 0.12345678, error=error), "t")
    assert row.latency_s == 0.123457
    written = json.loads(row.result)
    assert written.pop(FAILURE) == Failure.of(error).to_json()
    assert written == Result("app", "id", "failed", {}, 0.12345678, error=error).to_json()
    assert FAILURE not in json.loads(ended(Result("app", "id", "ok", {}, 1.0), "t").result)


@pytest.mark.parametrize("said", ["it says why", "", "query id ended failed"])
@pytest.mark.parametrize(
    ("state", "kind"),
    [("failed", QueryFailed), ("cancelled", QueryCancelled), ("deadline", DeadlineExceeded)],
)
def test_a_query_that_failed_says_what_its_own_error_said(
    state: str, kind: type[TeolaError], said: str
) -> None:
    """Also in a row that does not say which error it was."""
    result = Result("app", "id", state, {}, 1.0, error=kind(said))
    end = kept(result, ended(result, "t").result).ending()
    assert (type(end.error), str(end.error)) == (kind, said)
    bare = {name: value for name, value in result.to_json().items() if name != FAILURE}
    end = kept(result, json.dumps(bare)).ending()
    assert (type(end.error), str(end.error)) == (kind, said)


# --- requests -------------------------------------------------------------------------------


def test_a_request_is_written_alike_however_it_was_given_and_without_what_it_does_not_say() -> None:
    """Servers before there was any of these have written nothing in its place."""
    text, files = Body(inputs={"b": [1, "ü"], "a": {"z": None, "c": 0.5}}).packed()
    plain = '"inputs": {"a": {"c": 0.5, "z": null}, "b": [1, "\\u00fc"]}, '
    assert text == "{" + plain + '"overrides": {}, "passes": null}'
    assert files == []
    more: dict[str, Any] = {"session": "", "most_tokens": 0, "most_cost": 0.0, "finish_by_s": 0.0}
    for name, value in {**more, "key": ""}.items():
        body = Body(inputs={}, overrides={"x.y": 1}, passes="none", **{name: value})
        whole = {"inputs": {}, "overrides": {"x.y": 1}, "passes": "none", name: value}
        assert json.loads(body.packed()[0]) == whole
        assert Body.read(body.packed()[0]) == body
    assert Body(inputs={}, most_tokens=3, most_cost=0.5).bounds == {
        "most_tokens": 3,
        "most_cost": 0.5,
    }
    assert Body(inputs={"a": 1}).paid_by("k") == Body(inputs={"a": 1}, key="k")
    assert Body(inputs={"a": 1}, key="k").paid_by(None) == Body(inputs={"a": 1})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            b"x",
            "an input is bytes, which the journal cannot keep: give texts, numbers, lists or "
            "mappings",
        ),
        (
            [[{"a": {1}}]],
            "an input is set, which the journal cannot keep: give texts, numbers, lists or "
            "mappings",
        ),
        ({("a",): 1}, "an input cannot be kept in the journal: keys must be str, int, float, "),
        ({1: 1, "a": 1}, "an input cannot be kept in the journal: '<' not supported "),
    ],
)
def test_an_input_that_json_has_not_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InputError) as raised:
        Body(inputs={"a": value}).packed()
    assert str(raised.value).startswith(message)
    assert len(str(raised.value)) == len(message) or message.endswith((", ", "supported "))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the request in the journal is not JSON: Expecting property name"),
        ("[" * 10**5, "the request in the journal is not JSON: maximum recursion depth"),
        ("[]", "Input should be a valid dictionary or instance of Body"),
        ("{}", "inputs: Field required"),
        ('{"inputs": {}, "what": 1, "who": 2}', "what: Extra inputs are not permitted"),
        ('{"inputs": {}, "most_tokens": "x"}', "most_tokens: Input should be a valid integer"),
    ],
)
def test_a_request_that_is_none_says_what_is_wrong_first(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        Body.read(text)
    assert str(raised.value).startswith(message)
    assert "url" not in str(raised.value)


def documents(tmp_path: Path) -> list[Source]:
    """Two that lie in files, and one that is a text between them."""
    for name in ("one.md", "two"):
        (tmp_path / name).write_text(f"text of {name}")
    return [
        Source("one", path=tmp_path / "one.md", metadata={"page": 1}),
        Source("note", text="as it is", metadata={"by": "me"}),
        Source("two", path=tmp_path / "two", origin="/where/two", replace=True),
    ]


READ = App(
    "read",
    component(lambda chunks, other: other, outputs="read", name="read", effect=True),
    inputs={"docs": "documents", "other": "any"},
    outputs={"read": "read"},
)


def test_documents_are_kept_by_number_and_come_back_where_they_are_put(tmp_path: Path) -> None:
    sources = documents(tmp_path)
    text, files = Body(inputs={"docs": sources, "other": {"file": 0, "name": "mine"}}).packed()
    assert files == [tmp_path / "one.md", tmp_path / "two"]
    note = {"name": "note", "metadata": {"by": "me"}, "text": "as it is"}
    written = [
        {"name": "one", "metadata": {"page": 1}, "file": 0, "suffix": ".md"},
        note,
        {
            "name": "two",
            "metadata": {},
            "file": 1,
            "suffix": "",
            "origin": "/where/two",
            "replace": True,
        },
    ]
    body = Body.read(text)
    assert body.inputs == {"docs": written, "other": {"file": 0, "name": "mine"}}
    made: list[str] = []

    def place(suffix: str) -> Path:
        made.append(suffix)
        return tmp_path / f"new{len(made)}{suffix}"

    inputs, paths = body.unpacked(READ, place)
    assert (made, paths) == ([".md", ""], [tmp_path / "new1.md", tmp_path / "new2"])
    assert inputs["docs"] == [
        Source("one", path=paths[0], metadata={"page": 1}),
        note,
        Source("two", path=paths[1], origin="/where/two", replace=True),
    ]
    assert inputs["other"] == {"file": 0, "name": "mine"}, "it is no input of documents"


@pytest.mark.parametrize("alone", [True, False])
def test_one_document_need_not_be_a_list_and_none_is_none(tmp_path: Path, alone: bool) -> None:
    source = documents(tmp_path)[0]
    text, files = Body(inputs={"docs": source if alone else [source]}).packed()
    assert files == [source.path]
    inputs, paths = Body.read(text).unpacked(READ, lambda suffix: tmp_path / f"new{suffix}")
    assert inputs == {"docs": [Source("one", path=tmp_path / "new.md", metadata={"page": 1})]}
    assert paths == [tmp_path / "new.md"]
    for nothing in ({"docs": None}, {}):
        assert Body(inputs=nothing).unpacked(READ, raises) == (nothing, [])


def raises(suffix: str) -> Path:
    raise AssertionError("no document is put anywhere")


@pytest.mark.parametrize(("numbers", "right"), [([1, 0], True), ([1], False), ([0, 2], False)])
def test_numbers_of_documents_are_those_from_0_on_in_any_order(
    tmp_path: Path, numbers: list[int], right: bool
) -> None:
    given = [{"name": str(n), "file": n} for n in numbers]
    body = Body(inputs={"docs": given})
    places = iter(tmp_path / f"put{n}" for n in numbers)
    if not right:
        with pytest.raises(InputError, match=r"^its documents are not numbered from 0$"):
            body.unpacked(READ, lambda suffix: next(places))
        return
    inputs, paths = body.unpacked(READ, lambda suffix: next(places))
    assert paths == [tmp_path / "put0", tmp_path / "put1"]
    assert [source.name for source in inputs["docs"]] == ["1", "0"]


def test_a_digest_is_of_the_request_and_of_its_files_in_their_order(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"first")
    two.write_bytes(b"")
    parts = [hashlib.sha256(body).digest() for body in (b"first", b"")]
    for files, digests in (([], []), ([one], parts[:1]), ([two, one], parts[::-1])):
        whole = hashlib.sha256("räq".encode() + b"".join(digests)).hexdigest()
        assert digest_of("räq", files) == whole


def test_what_stands_for_no_file_stays_as_it_is() -> None:
    given = ["a file", 7, None, {"name": "n", "text": "t"}, {"text": "t", "file": 0}, {"name": "n"}]
    assert Body(inputs={"docs": given}).unpacked(READ, raises) == ({"docs": given}, [])
