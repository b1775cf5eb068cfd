"""The official client, pointed at a server of applications without a language model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from teola import App, Runtime, component
from teola.engine import Hit
from tests.serve.conftest import Served, applications, serving, soon


@component(outputs="answer")
async def table(question: str) -> dict[str, object]:
    return {"about": question, "letters": len(question)}


@component(outputs=("answer", "found"))
async def look_up(question: str) -> dict[str, object]:
    hit = Hit("1", "lamp.md", "Mara Quist keeps it.", 0.5, {"page": 3})
    return {"answer": "Mara Quist", "found": [hit]}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    text, answer = {"question": "text"}, {"answer": "answer"}
    told = App("table", template=table, inputs=text, outputs=answer)
    found = App("found", template=look_up, inputs=text, outputs={**answer, "sources": "found"})
    apps = {**applications(), "table": told, "found": found}
    with Runtime() as runtime, serving(runtime, apps) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def user(text: Any) -> Any:
    return {"role": "user", "content": text}


def test_applications_are_models(client: openai.OpenAI) -> None:
    assert {"echo", "memory", "count"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve("echo").owned_by == "teola"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_a_completion(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(model="echo", messages=[user("hello")])
    assert found.choices[0].message.content == "you said: hello"
    assert found.choices[0].finish_reason == "stop"
    assert found.id.startswith("chatcmpl-")
    assert found.system_fingerprint
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
    assert len({piece.id for piece in pieces}) == 1


def test_passages_beside_an_answer_are_told(client: openai.OpenAI) -> None:
    asked: Any = {"model": "found", "messages": [user("Who?")]}
    page = {"page": 3}
    source = {"document": "lamp.md", "text": "Mara Quist keeps it.", "score": 0.5, "metadata": page}
    source |= {"citation": "lamp.md, p. 3"}
    whole = client.chat.completions.create(**asked)
    assert whole.choices[0].message.content == "Mara Quist"
    assert (whole.model_extra or {})["x_teola"] == {"sources": [source]}
    *pieces, last = client.chat.completions.create(**asked, stream=True)
    assert last.choices[0].finish_reason == "stop"
    assert (last.model_extra or {})["x_teola"] == {"sources": [source]}
    assert not any((piece.model_extra or {}).get("x_teola") for piece in pieces)
    plain = client.chat.completions.create(model="echo", messages=[user("Who?")])
    assert "x_teola" not in (plain.model_extra or {})


def test_any_text_is_streamed_as_it_is(client: openai.OpenAI) -> None:
    text = '"" "content": ""} \\ \n\u2028 é \U0001f4a1'
    stream = client.chat.completions.create(model="echo", messages=[user(text)], stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in stream) == f"you said: {text}"


async def test_an_asynchronous_client_gets_the_same(served: Served) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        chats = client.chat.completions
        whole, stream = await asyncio.gather(
            chats.create(model="echo", messages=[user("hello")]),
            chats.create(model="echo", messages=[user("hello")], stream=True),
        )
        said = [piece.choices[0].delta.content or "" async for piece in stream]
    assert whole.choices[0].message.content == "".join(said) == "you said: hello"


def test_what_was_said_before_becomes_history(client: openai.OpenAI) -> None:
    said: Any = [
        {"role": "system", "content": "Be brief."},
        user("hi"),
        {"role": "assistant", "content": "hello"},
        user([{"type": "text", "text": "who"}, {"type": "text", "text": "?"}]),
    ]
    found = client.chat.completions.create(model="memory", messages=said)
    expected = "System: Be brief.\nUser: hi\nAssistant: hello | who?"
    assert found.choices[0].message.content == expected
    first = client.chat.completions.create(model="memory", messages=[user("who?")])
    assert first.choices[0].message.content == "(nothing has been said yet) | who?"
    deaf = client.chat.completions.create(model="echo", messages=said)
    assert deaf.choices[0].message.content == "you said: who?"


IMAGE = {"type": "image_url", "image_url": {"url": "x"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "unknown application 'gpt-9'"),
        ({"model": "count"}, openai.BadRequestError, "/v1/apps/count/queries"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, openai.BadRequestError, "user's"),
        ({"messages": [{"role": "robot", "content": "x"}]}, openai.BadRequestError, "role"),
        ({"n": 2}, openai.BadRequestError, "n:"),
        ({"temperature": 3}, openai.BadRequestError, "temperature"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"stop": ["a"] * 5}, openai.BadRequestError, "stop"),
        ({"logprobs": True}, openai.BadRequestError, "logprobs"),
        ({"tools": [{"type": "function"}]}, openai.BadRequestError, "its own tools"),
        ({"response_format": {"type": "xml"}}, openai.BadRequestError, "response_format"),
        ({"response_format": SCHEMA}, openai.BadRequestError, "not a JSON schema"),
        ({"extra_body": {"max_token": 5}}, openai.BadRequestError, "did you mean 'max_tokens'"),
        ({"extra_body": {"overrides": {"say.x": 1}}}, openai.BadRequestError, "parameter 'x'"),
        ({"messages": [user("")]}, openai.BadRequestError, "empty"),
        ({"messages": [user([IMAGE])]}, openai.BadRequestError, "only contain text"),
        ({"messages": [user([{"type": "text"}])]}, openai.BadRequestError, "text is missing"),
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
    assert caught.value.type in ("invalid_request_error", "server_error")


def test_a_body_that_is_no_json_is_a_bad_request(served: Served) -> None:
    refused = httpx.post(f"{served.url}/v1/chat/completions", content=b"{")
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"


def test_parameters_of_openai_that_change_nothing_here_are_taken(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model="echo",
        messages=[user("hello")],
        user="u-1",
        metadata={"a": "b"},
        top_p=0.5,
        presence_penalty=0.1,
        logit_bias={"1": 2},
        parallel_tool_calls=False,
        store=False,
        seed=3,
        n=1,
        stop="never",
        tools=[],
        temperature=0.7,
    )
    assert found.choices[0].message.content == "you said: hello"


def test_a_failure_in_a_stream_is_an_error_there(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="echo", messages=[user("fail")], stream=True)
    with pytest.raises(openai.APIError, match="bad luck"):
        list(stream)


def test_the_deadline_holds(client: openai.OpenAI, served: Served) -> None:
    soon_over: Any = {"messages": [user("wait")], "extra_body": {"deadline_s": 0.2}}
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model="echo", **soon_over)
    assert caught.value.status_code == 504
    stream = client.chat.completions.create(model="echo", stream=True, **soon_over)
    with pytest.raises(openai.APIError, match="deadline"):
        list(stream)
    assert not served.board.running


def test_closing_a_stream_cancels_the_query(client: openai.OpenAI, served: Served) -> None:
    stream = client.chat.completions.create(model="echo", messages=[user("wait")], stream=True)
    assert served.board.running
    stream.close()
    soon(lambda: not served.board.running)


# --- clients that try again ------------------------------------------------------------------


class Tried:
    """A client of the official kind that counts what it is answered."""

    def __init__(self, served: Served, retries: int) -> None:
        self.answers: list[httpx.Response] = []
        self.then = lambda: None
        self._http = httpx.Client(event_hooks={"response": [self._answered]})
        self.client = openai.OpenAI(
            base_url=f"{served.url}/v1", api_key="x", max_retries=retries, http_client=self._http
        )

    def _answered(self, response: httpx.Response) -> None:
        self.answers.append(response)
        self.then()

    def ask(self, text: str = "hello", **more: Any) -> str:
        with self._http:
            found = self.client.chat.completions.create(model="echo", messages=[user(text)], **more)
        return str(found.choices[0].message.content)


def test_who_is_refused_for_load_comes_back_when_told(served: Served) -> None:
    tried, most = Tried(served, 2), served.board.most

    def let_in() -> None:
        served.board.most = most

    tried.then = let_in
    served.board.most = 0
    try:
        assert tried.ask() == "you said: hello"
    finally:
        let_in()
    assert [one.status_code for one in tried.answers] == [429, 200]
    assert int(tried.answers[0].headers["retry-after"]) >= 1


def test_who_gives_up_is_told_why(served: Served) -> None:
    most, served.board.most = served.board.most, 0
    try:
        with pytest.raises(openai.RateLimitError) as caught:
            Tried(served, 0).ask()
    finally:
        served.board.most = most
    assert caught.value.type == "rate_limit_error"


@pytest.mark.parametrize(
    ("text", "more", "status"), [("fail", {}, 502), ("wait", {"deadline_s": 0.1}, 504)]
)
def test_what_would_fail_again_is_not_tried_again(
    text: str, more: dict[str, Any], status: int, served: Served
) -> None:
    tried = Tried(served, 2)
    with pytest.raises(openai.InternalServerError):
        tried.ask(text, extra_body=more)
    assert [one.status_code for one in tried.answers] == [status]
    assert tried.answers[0].headers["x-should-retry"] == "false"


# --- JSON of an application that writes it by itself -------------------------------------------


def json_form(**properties: Any) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_no_text_is_checked_too(client: openai.OpenAI, stream: bool) -> None:
    def ask(form: Any) -> str:
        found: Any = client.chat.completions.create(
            model="table", messages=[user("lamp")], response_format=form, stream=stream
        )
        if not stream:
            return str(found.choices[0].message.content)
        return "".join(piece.choices[0].delta.content or "" for piece in found)

    expected = {"about": "lamp", "letters": 4}
    assert json.loads(ask({"type": "json_object"})) == expected
    assert json.loads(ask(json_form(letters={"type": "integer"}))) == expected
    with pytest.raises(openai.InternalServerError, match="does not fit its JSON schema"):
        ask(json_form(letters={"type": "string"}))
