"""chat-rag over HTTP: its first turn, its schema, and what an answer tells of how it was made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from teola import Runtime
from teola.serve.openapi.answers import SCHEMAS
from teola_apps.chat_rag import app as chat
from tests.serve.conftest import serving

LAMP = {"name": "lamp.md", "text": "Mara Quist keeps the lamp of the first turn."}
QUESTION = {"question": "Who keeps the lamp?", "documents": LAMP}


@pytest.fixture(scope="module")
def client(runtime: Runtime) -> Iterator[httpx.Client]:
    with (
        serving(runtime, {"chat-rag": chat}) as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize(
    "turn", [{}, {"history": ""}, {"history": None}, {"history": "User: hello"}]
)
def test_a_conversation_has_a_first_turn(client: httpx.Client, turn: dict[str, Any]) -> None:
    inputs = {**QUESTION, **turn}
    answer = client.post("/v1/apps/chat-rag/queries", json={"inputs": inputs})
    assert answer.status_code == 200, answer.text
    assert "Mara Quist" in answer.json()["outputs"]["answer"]
    schema = client.get("/v1/apps/chat-rag").json()["inputs"]
    Draft202012Validator(schema).validate(inputs)


def test_the_schema_requires_the_question_alone(client: httpx.Client) -> None:
    assert client.get("/v1/apps/chat-rag").json()["inputs"]["required"] == ["question"]
    refused = client.post("/v1/apps/chat-rag/queries", json={"inputs": {"documents": LAMP}})
    assert refused.status_code == 422
    assert "needs the input 'question'" in refused.text


def test_a_chat_has_a_first_turn(client: httpx.Client) -> None:
    said = [{"role": "user", "content": QUESTION["question"]}]
    body = {"model": "chat-rag", "messages": said, "documents": LAMP}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert "Mara Quist" in answer.json()["choices"][0]["message"]["content"]


def test_a_quoted_answer_says_so_beside_it(client: httpx.Client) -> None:
    found = client.post("/v1/apps/chat-rag/queries", json={"inputs": QUESTION}).json()
    assert found["notices"] == [
        "quoted, not generated: the extractive reader answers, because no language model is "
        "configured (--llm, or the engine llm)"
    ]
    assert "quoted" not in found["outputs"]["answer"]
    told = SCHEMAS["Result"]["properties"]["notices"]
    Draft202012Validator(told).validate(found["notices"])
