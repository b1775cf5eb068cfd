"""Chat completions of an application that asks people: the client is told where to answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from teola import App, Ask, Runtime, component
from tests.serve.conftest import Served, serving, soon


@component(outputs="answer")
def send(question: str, verdict: str) -> str:
    return f"{verdict}: {question}"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    ask = Ask("Send {question}?", schema={"enum": ["yes", "no"]}, gives="verdict")
    app = App("mail", ask >> send, inputs={"question": "text"}, outputs={"answer": "answer"})
    with Runtime() as runtime, serving(runtime, {"mail": app}) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=2) as client:
        yield client


MESSAGES: Any = [{"role": "user", "content": "tides"}]


def goes_on(served: Served, id: str) -> str:
    """What the query answers once somebody has answered it."""
    path = f"/v1/queries/{id}"
    with httpx.Client(base_url=served.url) as client:
        assert client.get(path).json()["state"] == "waiting"
        assert client.post(f"{path}/answers", json={"answer": "yes"}).status_code == 200
        soon(lambda: client.get(path).json()["state"] == "ok")
        return str(client.get(path).json()["result"]["outputs"]["answer"])


@pytest.mark.parametrize("schema", [False, True])
def test_the_client_is_told_where_to_answer(
    client: openai.OpenAI, served: Served, schema: bool
) -> None:
    before = len(served.board.running)
    more = {"response_format": {"type": "json_object"}} if schema else {}
    with pytest.raises(openai.ConflictError) as raised:
        client.chat.completions.create(model="mail", messages=MESSAGES, **more)  # type: ignore[call-overload]
    error, response = raised.value, raised.value.response
    id = response.headers["x-query-id"]
    assert (error.code, error.type) == ("waiting", "invalid_request_error")
    assert f"POST /v1/queries/{id}/answers" in str(error)
    assert response.headers["x-should-retry"] == "false"
    assert len(served.board.running) == before + 1, "it is asked once, and no client asks it again"
    assert goes_on(served, id) == "yes: tides"


def test_a_stream_ends_with_where_to_answer(client: openai.OpenAI, served: Served) -> None:
    stream = client.chat.completions.create(model="mail", messages=MESSAGES, stream=True)
    id = stream.response.headers["x-query-id"]
    with pytest.raises(openai.APIError, match=f"teola answer {id}"):
        list(stream)
    assert goes_on(served, id) == "yes: tides"


def test_the_servers_end_of_a_stream_comes_at_once(served: Served) -> None:
    """A client that knows no errors in streams does not hang."""
    body = {"model": "mail", "messages": MESSAGES, "stream": True}
    url = f"{served.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=10) as response:
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
        id = response.headers["x-query-id"]
    assert len(lines) == 1
    assert '"code": "waiting"' in lines[0]
    assert goes_on(served, id) == "yes: tides"
