"""The official client, pointed at a server of applications."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.serve.conftest import Served, soon


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def test_applications_are_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["echo", "memory", "count"]
    assert client.models.retrieve("echo").owned_by == "teola"


def test_a_completion(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(model="echo", messages=[user("hello")])
    assert found.choices[0].message.content == "you said: hello"
    assert found.choices[0].finish_reason == "stop"
    assert found.usage is not None
    assert found.usage.total_tokens == 0  # no LLM was asked


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="echo",
        messages=[user("hello")],
        stream=True,
        stream_options={"include_usage": True},
    )
    pieces = list(stream)
    said = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert said == "you said: hello"
    assert pieces[0].choices[0].delta.role == "assistant"
    assert pieces[-2].choices[0].finish_reason == "stop"
    assert pieces[-1].usage is not None


def test_what_was_said_before_becomes_history(client: openai.OpenAI) -> None:
    said: Any = [
        {"role": "system", "content": "Be brief."},
        user("hi"),
        {"role": "assistant", "content": "hello"},
        user([{"type": "text", "text": "who?"}]),
    ]
    found = client.chat.completions.create(model="memory", messages=said)
    expected = "System: Be brief.\nUser: hi\nAssistant: hello | who?"
    assert found.choices[0].message.content == expected
    first = client.chat.completions.create(model="memory", messages=[user("who?")])
    assert first.choices[0].message.content == "(nothing has been said yet) | who?"


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "unknown application 'gpt-9'"),
        ({"model": "count"}, openai.UnprocessableEntityError, "/v1/apps/count/queries"),
        ({"messages": []}, openai.UnprocessableEntityError, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, openai.APIError, "the user's"),
        ({"n": 2}, openai.UnprocessableEntityError, "n:"),
        ({"messages": [user("")]}, openai.UnprocessableEntityError, "empty"),
        (
            {"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]},
            openai.UnprocessableEntityError,
            "only contain text",
        ),
        ({"messages": [user("fail")]}, openai.InternalServerError, "bad luck"),
    ],
)
def test_errors_are_in_openais_form(
    client: openai.OpenAI, asked: dict[str, Any], error: type[openai.APIError], told: str
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(**{"model": "echo", "messages": [user("hi")], **asked})
    assert isinstance(caught.value.body, dict)
    assert told in str(caught.value.body["message"])
    assert caught.value.code


def test_a_failure_in_a_stream_is_an_error_there(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="echo", messages=[user("fail")], stream=True)
    with pytest.raises(openai.APIError, match="bad luck"):
        list(stream)


def test_closing_a_stream_cancels_the_query(client: openai.OpenAI, served: Served) -> None:
    stream = client.chat.completions.create(model="echo", messages=[user("wait")], stream=True)
    assert served.board.running
    stream.close()
    soon(lambda: not served.board.running)
