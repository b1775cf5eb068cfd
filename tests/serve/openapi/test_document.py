"""/openapi.json by itself: complete, and true about keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from teola import Runtime
from teola.query.event_log import LEFT_OUT, Event, EventLog
from teola.serve import server
from teola.serve.access.auth import OPEN, KeyFile
from teola.serve.board import Board
from teola.serve.problems import OPENAI
from tests.serve.conftest import Served, applications
from tests.serve.routes import fastapi_of


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return of(None)


def of(keys: KeyFile | None) -> dict[str, Any]:
    with Runtime() as runtime:
        asgi = server.make_app(runtime, applications(), Board(1), server.Readiness(), keys)
        return fastapi_of(asgi).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_answer_has_a_schema(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        assert any(int(code) < 300 for code in operation["responses"]), path
        for code, response in operation["responses"].items():
            for kind, content in response["content"].items():
                told = f"{method} {path} {code} {kind}: list it in teola/serve/openapi/answers.py"
                assert content["schema"], told


def test_every_refusal_is_told(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        told = {int(code) for code in operation["responses"]}
        if "requestBody" in operation:
            wrong = 400 if path.startswith(OPENAI) else 422
            assert {408, 413, wrong} <= told, path
            assert {404, 409, 429, 502, 503, 504} <= told, path
        if "{" in path:
            assert 404 in told, path
        assert 401 not in told, path
        assert (403 in told) == (path not in OPEN), path
    chat = document["paths"]["/v1/chat/completions"]["post"]["responses"]["400"]
    ours = document["paths"]["/v1/apps/{app}/queries"]["post"]["responses"]["422"]
    assert "OpenAIError" in str(chat)
    assert "OpenAIError" not in str(ours)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/queries", ["get"]),
        ("/v1/queries/{id}", ["get", "delete"]),
        ("/v1/queries/{id}/events", ["get"]),
    ],
)
def test_the_journal_may_be_away(document: dict[str, Any], path: str, methods: list[str]) -> None:
    for method in methods:
        assert "503" in document["paths"][path][method]["responses"]


def test_every_kind_of_event_is_told(document: dict[str, Any]) -> None:
    """Also that of events which stand for others."""
    log = EventLog(8)
    for kind in ("primitive", "step", "token", "restarted", "waiting", "done", "error"):
        for _ in range(8):
            log.add(Event(kind, "{}"))
    sent = {event.kind for _, event in log.after(0)}
    answer = document["paths"]["/v1/queries/{id}/events"]["get"]["responses"]["200"]
    told = answer["content"]["text/event-stream"]["schema"]["properties"]["event"]["enum"]
    assert LEFT_OUT in sent
    assert sent <= {*told}


def test_references_lead_somewhere(document: dict[str, Any]) -> None:
    def check(value: Any) -> None:
        for item in value if isinstance(value, list) else []:
            check(item)
        if isinstance(value, dict):
            assert "$defs" not in value
            if isinstance(reference := value.get("$ref"), str):
                kind = reference.removeprefix("#/components/schemas/")
                assert kind in document["components"]["schemas"], reference
            for item in value.values():
                check(item)

    check(document)
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_with_keys_every_operation_asks_for_one() -> None:
    found = of(KeyFile(__file__))  # type: ignore[arg-type]
    for path, _, operation in operations(found):
        told = {int(code) for code in operation["responses"]}
        assert ({401, 403} <= told) == (path not in OPEN), path
        assert ("security" in operation) == (path not in OPEN), path
    assert {"bearer", "key"} == set(found["components"]["securitySchemes"])


def test_the_server_sends_this_document(served: Served, document: dict[str, Any]) -> None:
    sent = httpx.get(f"{served.url}/openapi.json").json()
    assert sent["paths"] == document["paths"]
    assert of(None)["paths"] == document["paths"]  # making it changes nothing for the next
