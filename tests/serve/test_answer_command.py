"""`teola waiting` and `teola answer` against a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from teola import App, Ask, Each, Runtime, component
from teola.cli.replies import Extras, reply
from teola.errors import InputError
from teola.graph.inquiry import APPROVE, ASK, UNKNOWN
from teola.serve.access.auth import KeyFile
from tests.command_line import CommandLine
from tests.serve.conftest import Served, serving, soon


@component(outputs="answer")
def send(question: str, verdict: str) -> str:
    return f"{verdict}: {question}"


YES_OR_NO = {"enum": ["yes", "no"]}
TEXT: dict[str, Any] = {"inputs": {"question": "text"}, "outputs": {"answer": "answer"}}


def apps() -> dict[str, App]:
    verdict = Ask("Send {question}?", schema=YES_OR_NO, gives="verdict")
    number = Ask("How many?", schema={"type": "integer", "minimum": 1}, gives="answer")
    many = Each(Ask("{one}?", gives="answer"), over="list", item="one", gives={"answer": "answer"})
    found = [
        App("mail", verdict >> send, **TEXT),
        App("count", number, **TEXT),
        App("each", many, inputs={"list": "texts"}, outputs={"answer": "answer"}),
    ]
    return {app.name: app for app in found}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Runtime() as runtime, serving(runtime, apps()) as found:
        yield found


def asked(served: Served, app: str = "mail", **inputs: Any) -> str:
    """The id of a query that waits."""
    body = {"inputs": inputs or {"question": "tides"}}
    response = httpx.post(f"{served.url}/v1/apps/{app}/queries", json=body)
    assert response.json()["state"] == "waiting"
    found: str = response.json()["query_id"]
    return found


def outputs(served: Served, id: str) -> Any:
    """What a query answers in the end."""

    def state() -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{served.url}/v1/queries/{id}").json()
        return found

    soon(lambda: state()["state"] not in ("waiting", "running"))
    return state()["result"]["outputs"]["answer"]


def test_what_waits_is_listed_and_answered(teola: CommandLine, served: Served) -> None:
    where = ("--url", served.url)
    assert teola("waiting", *where).out == "no query waits for people\n"
    id = asked(served)
    ended = teola("waiting", *where)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0].split() == ["query", "app", "since", "asks"]
    assert id in ended.out
    assert "Send tides?" in ended.out
    assert "(yes, no)" in ended.out
    (one,) = teola("waiting", *where, "--app", "mail", "--json").json["queries"]
    assert (one["query_id"], one["asks"][0]["schema"]) == (id, YES_OR_NO)
    assert teola("waiting", *where, "--app", "count", "--json").json == {"queries": []}
    ended = teola("answer", id[:8], "yes", *where)
    assert (ended.code, ended.out) == (0, f"answered ask.ask of mail {id}\n")
    assert outputs(served, id) == "yes: tides"


def test_a_table_fits_into_80_columns(
    teola: CommandLine, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = "a question that is longer than one line of a terminal has room for, by far"
    id = asked(served, question=word)
    with monkeypatch.context() as patch:
        for name, value in {"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "dumb"}.items():
            patch.setenv(name, value)
        lines = teola("waiting", "--url", served.url).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert id[:12] in lines[1]
    assert all(part in " ".join(" ".join(lines).split()) for part in ("Send a question", "by far?"))
    teola("answer", id, "no", "--url", served.url)


def test_one_of_several_questions_is_named(teola: CommandLine, served: Served) -> None:
    where = ("--url", served.url)
    id = asked(served, "each", list=["a", "b"])
    assert "--ask each/item/1/ask.ask" in teola("waiting", *where).out
    assert "say which with --ask" in teola("answer", id, "x", *where).refused(2)
    assert "unknown question 'each/item/2" in teola(
        "answer", id, "x", "--ask", "each/item/2/ask.ask", *where
    ).refused(2)
    ended = teola("answer", id, "two words", "--ask", "each/item/1/ask.ask", *where)
    assert ended.out == f"answered each/item/1/ask.ask of each {id}, which asks 1 more\n"
    assert teola("answer", id, "7", *where).code == 0
    assert outputs(served, id) == ["7", "two words"], "a text that looks like JSON stays a text"


def test_what_is_wrong_is_said_in_one_line(teola: CommandLine, served: Served) -> None:
    where = ("--url", served.url)
    one, other = asked(served, "count"), asked(served, "count")
    told = teola("answer", one, "0", *where).refused(2)
    assert "does not fit the question: 0 is less than the minimum of 1" in told
    assert "does not fit" in teola("answer", one, "many", *where).refused(2)
    assert "--reason does not go" in teola("answer", one, "1", "--reason", "x", *where).refused(2)
    assert "say what to answer" in teola("answer", one, *where).refused(2)
    assert "beginning of several" in teola("answer", "", "1", *where).refused(2)
    assert "no query that waits begins with" in teola("answer", "xyz", "1", *where).refused(2)
    assert "teola serve" in teola("waiting", "--url", "http://127.0.0.1:9").refused(1)
    for id in (one, other):
        assert teola("answer", id, "3", *where).code == 0
        assert outputs(served, id) == 3
    assert "it is ok" in teola("answer", one, "1", *where).refused(2)


def test_a_key_is_sent(teola: CommandLine, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    key = keys.create("alice", "shop")
    with Runtime() as runtime, serving(runtime, apps(), keys) as served:
        where = ("--url", served.url)
        assert "TEOLA_API_KEY" in teola("waiting", *where).refused(2)
        assert "TEOLA_API_KEY" in teola("answer", "x", "yes", *where).refused(2)
        assert teola("waiting", *where, "--key", key).code == 0


# --- what is typed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "typed", "answer"),
    [
        ({"type": "string"}, "yes", "yes"),
        ({"type": "string"}, '"quoted"', '"quoted"'),
        ({"type": "string"}, "42", "42"),
        ({"type": "integer"}, "42", 42),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"type": "boolean"}, "true", True),
        ({"type": ["string", "null"]}, "null", None),
        ({}, '{"a": [1]}', {"a": [1]}),
        ({}, "{a", "{a"),
        ({"type": "object"}, "nothing", "nothing"),
    ],
)
def test_a_text_or_json_whichever_fits(schema: dict[str, Any], typed: str, answer: Any) -> None:
    assert reply(ASK, schema, typed) == answer


@pytest.mark.parametrize(
    ("kind", "typed", "extras", "answer"),
    [
        (APPROVE, "approve", Extras(), {"do": "approve"}),
        (
            APPROVE,
            "approve",
            Extras(arguments='{"to": "Mara"}'),
            {"do": "approve", "arguments": {"to": "Mara"}},
        ),
        (APPROVE, "reject", Extras(reason="1"), {"do": "reject", "reason": "1"}),
        (APPROVE, '{"do": "reject"}', Extras(), {"do": "reject"}),
        (UNKNOWN, "repeat", Extras(), {"do": "repeat"}),
        (UNKNOWN, "take", Extras(result="seen it"), {"do": "take", "result": "seen it"}),
        (UNKNOWN, "take", Extras(result="[1]"), {"do": "take", "result": [1]}),
        (UNKNOWN, "take", Extras(result="null"), {"do": "take", "result": None}),
    ],
)
def test_decisions_are_words(kind: str, typed: str, extras: Extras, answer: Any) -> None:
    assert reply(kind, {"properties": {"result": {}}}, typed, extras) == answer


def test_a_result_is_a_text_or_json_whichever_fits() -> None:
    of_text = {"properties": {"result": {"type": "string"}}}
    assert reply(UNKNOWN, of_text, "take", Extras(result="42")) == {"do": "take", "result": "42"}


@pytest.mark.parametrize(
    ("kind", "typed", "extras", "told"),
    [
        (APPROVE, "yes", Extras(), "approve or reject"),
        (APPROVE, "approve", Extras(reason="x"), "--reason goes with reject"),
        (APPROVE, "reject", Extras(arguments="{}"), "--arguments goes with approve"),
        (APPROVE, "approve", Extras(arguments="[1]"), "must be a JSON object"),
        (APPROVE, "approve", Extras(arguments="{"), "must be a JSON object"),
        (UNKNOWN, "take", Extras(), "--result what it gave"),
        (UNKNOWN, "approve", Extras(), "repeat or take or fail"),
        (APPROVE, json.dumps({"do": "approve"}), Extras(reason="x"), "does not go with"),
    ],
)
def test_what_does_not_go_together_is_refused(
    kind: str, typed: str, extras: Extras, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        reply(kind, {}, typed, extras)
