"""What a query asked: shown to its tenant as far as it is small, and deleted when somebody asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from teola import App, Runtime, component
from teola.engine import Source
from teola.query.spec import QuerySpec
from teola.run_secrets import Secrets
from teola.serve.api import listed
from teola.serve.board import Board, Entry
from teola.serve.question import INPUT_BYTES, SHORT, question_of
from tests.serve.conftest import Served, lent, soon

COUNT = "/v1/apps/count/queries"


def asked(client: httpx.Client, app: str = "echo", **more: Any) -> str:
    inputs = more.pop("inputs", {"question": "who?"})
    told = {"inputs": inputs, "mode": "background", **more}
    return str(client.post(f"/v1/apps/{app}/queries", json=told).json()["query_id"])


def shown(client: httpx.Client, id: str) -> Any:
    return client.get(f"/v1/queries/{id}").json()


def test_a_query_shows_what_it_asked_while_it_runs_and_afterwards(client: httpx.Client) -> None:
    inputs = {"names": ["Mara", "Ünal"], "unit": "people"}
    id = asked(client, "count", inputs=inputs, passes="none")
    wanted = {"inputs": inputs, "left_out": [], "overrides": {}, "passes": "none"}
    assert shown(client, id)["asked"] == wanted
    soon(lambda: shown(client, id)["state"] == "ok")
    assert shown(client, id)["asked"] == wanted


def test_a_large_input_is_left_out_and_named(client: httpx.Client) -> None:
    id = asked(client, "count", inputs={"names": ["x" * INPUT_BYTES], "unit": "x"})
    found = shown(client, id)["asked"]
    assert found["inputs"] == {"unit": "x"}
    assert found["left_out"] == ["names"]


def test_what_is_as_large_as_may_be_is_kept_and_counted() -> None:
    """In bytes of JSON, each input by itself; one may be called like a parameter of queries."""
    quotes = 2
    for count in (INPUT_BYTES - quotes, INPUT_BYTES - quotes + 1):
        fits = count + quotes <= INPUT_BYTES
        for text in ("x" * count, "æ" * (count // 2) + "x" * (count % 2)):
            for name in ("question", "overrides"):
                spec = QuerySpec({name: text, "b": [1, "a"]}, {"c.x": "y"})
                found = question_of(spec)
                assert found.inputs == ({name: text} if fits else {}) | {"b": [1, "a"]}
                assert found.left_out == (() if fits else (name,))
                assert found.overrides == {"c.x": "y"}
                assert found.bytes == (INPUT_BYTES if fits else 0) + len('[1, "a"]{"c.x": "y"}')
    large = question_of(QuerySpec({"overrides": "a"}, {"c.x": "y" * INPUT_BYTES}))
    assert (large.inputs, large.left_out, large.overrides) == (
        {"overrides": "a"}, ("overrides",), {},
    )  # fmt: skip


def row(client: httpx.Client, id: str) -> dict[str, Any]:
    rows = client.get("/v1/queries").json()["queries"]
    return next(one for one in rows if one["query_id"] == id)


def test_the_list_has_the_beginning_of_a_question(client: httpx.Client) -> None:
    id = asked(client, inputs={"question": "why? " * 100})
    soon(lambda: shown(client, id)["state"] == "ok")
    assert row(client, id)["question"] == ("why? " * 100)[:SHORT]
    other = asked(client, "count", inputs={"names": ["Mara"], "unit": "people"})
    assert row(client, other)["question"] == "people"  # its only text
    client.delete(f"/v1/queries/{id}/asked")
    assert "question" not in row(client, id)


def test_a_secret_in_a_question_is_hidden_before_it_is_cut() -> None:
    secret = "s3cret-" * 4
    text = "x" * (SHORT - 10) + secret

    @component(outputs="answer")
    def say(question: str) -> str:
        return question

    app = App("say", say, inputs={"question": "text"}, outputs={"answer": "answer"})
    ask = QuerySpec({"question": text}, secrets=Secrets({"CRM_KEY": secret}))
    with Runtime() as runtime, lent({"": app}, runtime):
        entry = Entry(app.job(ask), Board(1).desk.keeping(), "sync", question=question_of(ask))
    assert "s3cret" not in listed(entry)["question"]
    assert len(listed(entry)["question"]) <= SHORT


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"history": "long", "question": "who?"}, "who?"),
        ({"collection": "papers", "topic": "lamps"}, "lamps"),
        ({"collection": "papers", "names": ["Mara"]}, ""),
        ({"question": "", "topic": "lamps"}, "lamps"),
        ({"question": "x" * (INPUT_BYTES + 1)}, ""),
    ],
)
def test_the_question_is_the_input_of_that_name_or_the_first_text(
    inputs: dict[str, Any], text: str
) -> None:
    assert question_of(QuerySpec(inputs)).text == text


def test_it_can_be_deleted_before_the_query_goes(client: httpx.Client) -> None:
    id = asked(client)
    assert shown(client, id)["asked"]["inputs"] == {"question": "who?"}
    answer = client.delete(f"/v1/queries/{id}/asked")
    assert answer.status_code == 200
    assert answer.json()["query_id"] == id
    assert "asked" not in shown(client, id)
    assert "who?" not in client.get("/v1/queries").text
    assert client.delete("/v1/queries/0123456789abcdef/asked").status_code == 404


def test_only_its_tenant_sees_and_deletes_it(
    two_tenants: tuple[httpx.Client, httpx.Client],
) -> None:
    mine, other = two_tenants
    id = asked(mine)
    assert other.get(f"/v1/queries/{id}").status_code == 404
    assert other.delete(f"/v1/queries/{id}/asked").status_code == 404
    assert shown(mine, id)["asked"]["inputs"] == {"question": "who?"}


def test_what_is_kept_counts_as_kept(served: Served, client: httpx.Client) -> None:
    id = asked(client, inputs={"question": "é" * 1000})
    soon(lambda: id in served.board.past)
    entry = served.board.past[id]
    assert entry.question is not None
    assert entry.question.bytes > 2000
    assert entry.bytes > entry.question.bytes


def test_a_running_query_says_for_how_long(client: httpx.Client) -> None:
    id = asked(client, inputs={"question": "please wait"})
    first = shown(client, id)["running_s"]
    soon(lambda: shown(client, id)["running_s"] > first)
    listed = client.get("/v1/queries").json()["queries"]
    assert next(one for one in listed if one["query_id"] == id)["running_s"] >= first
    client.delete(f"/v1/queries/{id}")
    assert "running_s" not in shown(client, id)


@pytest.mark.parametrize(
    "value",
    [
        Source("notes.md", path=Path("notes.md")),
        [{"name": "a", "text": "short"}, {"name": "b", "text": "x" * (INPUT_BYTES + 1)}],
        float("nan"),
        object(),
        ["x"] * INPUT_BYTES,
    ],
)
def test_files_and_what_json_cannot_say_are_left_out(value: Any) -> None:
    found = question_of(QuerySpec({"question": "who?", "documents": value}, {"a.b": 1}))
    assert found.inputs == {"question": "who?"}
    assert found.left_out == ("documents",)
    assert found.overrides == {"a.b": 1}


def test_short_documents_are_kept() -> None:
    documents = [{"name": "a", "text": "short"}]
    assert question_of(QuerySpec({"documents": documents})).inputs == {"documents": documents}
