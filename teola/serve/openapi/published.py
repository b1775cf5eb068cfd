"""/openapi.json: what FastAPI tells of the routes, completed.

Routes read and write their bodies by themselves, so FastAPI knows neither what they answer nor how
they refuse. Answers are listed in answers.py; refusals follow from what a route takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI

from teola.serve.access.auth import OPEN
from teola.serve.openapi.answers import ANSWERS, SCHEMAS, Content, json_answer
from teola.serve.problems import OPENAI

METHODS: Final = ("get", "post", "put", "patch", "delete")
OF_BODIES: Final = (408, 413, 422)
OF_OPENAIS_BODIES: Final = (400, 408, 413)
OF_QUERIES: Final = (404, 409, 429, 502, 503, 504)
JOURNALED: Final = ("/v1/queries", "/v1/queries/{id}", "/v1/queries/{id}/events")
"""Paths that also the journal is asked about, which may be away."""
STORED: Final = "/v1/collections"
"""What paths begin with that need the store, which may be away."""
_LAST_EVENT: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "Number of the last event that the client has; anything else is passed over.",
    "schema": {"type": "string"},
}
_SECURITY: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def publish_description(app: FastAPI, locked: bool) -> None:
    """Serve the completed document. locked: API keys are needed."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = completed(deepcopy(FastAPI.openapi(app)), locked)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def completed(document: dict[str, Any], locked: bool) -> dict[str, Any]:
    """`document`, changed: every answer of every operation, with its schema."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which nobody sends
        schemas.pop(name, None)
    schemas.update(deepcopy(dict(SCHEMAS)))
    if locked:
        components["securitySchemes"] = _SECURITY
    for path, method, operation in _operations(document):
        answers = dict(ANSWERS.get(f"{method.upper()} {path}", {}))
        form = json_answer("OpenAIError" if path.startswith(OPENAI) else "Error")
        for status in _refusals(path, method, operation, locked):
            openai = path.startswith(OPENAI)
            answers.setdefault(400 if status == 422 and openai else status, form)
        responses = operation.get("responses", {})
        operation["responses"] = {
            **{code: response for code, response in responses.items() if code != "422"},
            **{str(status): _response(status, answers[status]) for status in sorted(answers)},
        }
        if path.endswith("/events"):
            operation.setdefault("parameters", []).append(_LAST_EVENT)
        if locked and path not in OPEN:
            operation["security"] = [{name: []} for name in _SECURITY]
    _gather(document, schemas)
    return document


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield path, method, methods[method]


def _refusals(path: str, method: str, operation: Mapping[str, Any], locked: bool) -> Iterator[int]:
    """Statuses with which it may be refused."""
    if path not in OPEN:
        yield from (401, 403) if locked else (403,)
    if "{" in path:
        yield 404
    if any(parameter["in"] == "query" for parameter in operation.get("parameters", ())):
        yield 422
    if "requestBody" in operation:
        yield from OF_OPENAIS_BODIES if path.startswith(OPENAI) else OF_BODIES
    if method == "post":
        yield from OF_QUERIES
    if path in JOURNALED or path.startswith(STORED):
        yield 503


def _response(status: int, content: Content) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {kind: {"schema": schema} for kind, schema in content.items()},
    }
    if status == 429:
        about = "Seconds until it makes sense to ask again."
        response["headers"] = {"Retry-After": {"description": about, "schema": {"type": "integer"}}}
    return response


def _gather(value: Any, schemas: dict[str, Any]) -> None:
    """Put definitions inside schemas among the document's own, where references to them lead."""
    if isinstance(value, list):
        for item in value:
            _gather(item, schemas)
    if not isinstance(value, dict):
        return
    for name, schema in value.pop("$defs", {}).items():
        schemas[name] = schema
        _gather(schema, schemas)
    reference = value.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        value["$ref"] = reference.replace("#/$defs/", "#/components/schemas/", 1)
    for item in list(value.values()):
        _gather(item, schemas)
