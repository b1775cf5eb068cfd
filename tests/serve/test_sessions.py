"""Sessions over HTTP: whose program a query is, by all of its ways in."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from teola.engine import NAME_CHARACTERS
from teola.query.journal.query_rows import Body
from teola.query.spec import program_of
from teola.serve.chat.chat_request import ChatRequest
from teola.serve.intake.query_request import QueryRequest
from tests.planted import catches, edited
from tests.serve.conftest import Served
from tests.serve.test_queries import ECHO, ask

CHAT = "/v1/chat/completions"
OURS = program_of("default", "s")


def chat(client: httpx.Client, **more: Any) -> httpx.Response:
    messages = [{"role": "user", "content": "hello"}]
    return client.post(CHAT, json={"model": "echo", "messages": messages, **more})


def part_of(served: Served, answer: httpx.Response) -> str:
    """The program that the query which was answered so was a part of."""
    assert answer.status_code in (200, 202), answer.text
    entry = served.board.past.get(answer.headers["x-query-id"])
    assert entry is not None
    return entry.job.part_of


@catches(
    "session-not-taken",
    "the session of a query is not taken from its request",
    edited(QueryRequest.ask, "session=self.session", "session=None"),
)
def test_a_query_names_its_session(client: httpx.Client, served: Served) -> None:
    assert part_of(served, ask(client, "hello", session="s")) == OURS
    assert part_of(served, ask(client, "hello", session="s", mode="stream")) == OURS
    assert part_of(served, ask(client, "hello")) == ""
    form = {"request": json.dumps({"session": "s"}), "question": "hello"}
    assert part_of(served, client.post(ECHO, files={k: (None, v) for k, v in form.items()})) == OURS


@pytest.mark.parametrize("session", ["", " ", "x" * (NAME_CHARACTERS + 1), 7, ["s"], {"id": "s"}])
def test_a_session_that_is_no_name_is_refused(client: httpx.Client, session: Any) -> None:
    answer = ask(client, "hello", session=session)
    assert answer.status_code == 422
    assert "session" in answer.json()["error"]["message"]
    answer = chat(client, session=session)
    assert answer.status_code == 400
    assert "session" in answer.json()["error"]["message"]


@catches(
    "chat-without-session",
    "the session of a conversation is passed over",
    edited(ChatRequest.turn_of.fget, "self.session or", ""),
)
@catches(
    "cache-key-passed-over",
    "OpenAI's name for a session is passed over",
    edited(ChatRequest.turn_of.fget, '(self.prompt_cache_key or "").strip() or', ""),
)
def test_a_conversation_names_its_session(client: httpx.Client, served: Served) -> None:
    named: list[dict[str, Any]] = [
        {"session": "s"},
        {"prompt_cache_key": "s"},
        {"prompt_cache_key": "t", "session": "s"},
        {"prompt_cache_key": "s", "stream": True},
    ]
    assert {part_of(served, chat(client, **more)) for more in named} == {OURS}
    unnamed: list[dict[str, Any]] = [
        {"prompt_cache_key": "", "user": "s", "metadata": {"session": "s"}},
        {"prompt_cache_key": " "},
        {"prompt_cache_key": None, "session": None},
    ]
    assert {part_of(served, chat(client, **more)) for more in unnamed} == {""}


def test_the_document_describes_it(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    for path, type in (("/v1/apps/{app}/queries", QueryRequest), (CHAT, ChatRequest)):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        told = (
            body["schema"].get("properties", {})
            or document["components"]["schemas"][type.__name__]["properties"]
        )
        either = told["session"]["anyOf"]
        assert {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS} in either
        assert told["session"]["description"]


@catches(
    "journal-without-session",
    "who takes a query over does not know its session",
    edited(Body.packed, '("session", ', "("),
)
def test_the_journal_keeps_it_and_a_query_without_one_as_it_was() -> None:
    packed, _ = Body(inputs={"question": "why"}, session="s").packed()
    assert Body.model_validate_json(packed).session == "s"
    packed, _ = Body(inputs={"question": "why"}).packed()
    assert "session" not in packed, "its digest would be another one"
