"""Applications as JSON Schema: what they take, and what a query may set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic.errors import PydanticInvalidForJsonSchema

from teola.app import App
from teola.serve.intake.limits import OURS
from teola.workflow.inputs import Input
from teola.workflow.kinds import Kind

_TEXT: Final = {"type": "string", "minLength": 1}
_METADATA: Final = {"metadata": {"type": "object"}}
_STRING: Final = {"type": "string"}
_DOCUMENT: Final = {
    "type": "object",
    "required": ["name", "text"],
    "properties": {"name": _STRING, "text": _STRING, **_METADATA},
}
_FILE: Final = {
    "type": "object",
    "description": "data: the bytes of a file in base64.",
    "required": ["name", "data"],
    "properties": {"name": _STRING, "data": _STRING, **_METADATA},
}
_LINK: Final = {
    "type": "object",
    "description": "Fetched by the server, if its configuration says so.",
    "required": ["url"],
    "properties": {"url": _STRING, "name": _STRING, **_METADATA},
}
_FORMS: Final = [_DOCUMENT, _FILE, _LINK]
_KINDS: Final[dict[Kind, dict[str, Any]]] = {
    Kind.TEXT: _TEXT,
    Kind.TEXTS: {"type": "array", "items": {"type": "string"}},
    Kind.DOCUMENTS: {"oneOf": [*_FORMS, {"type": "array", "items": {"oneOf": _FORMS}}]},
}


def described_app(app: App, databases: Sequence[str] = ()) -> dict[str, Any]:
    """{"name", "description", "inputs", "outputs", "parameters"}; two of them JSON Schema.
    databases: that whoever asks may name."""
    return {
        "name": app.name,
        "description": app.description,
        "outputs": app.outputs,
        "inputs": _inputs(app, databases),
        "parameters": _parameters(app),
    }


def _inputs(app: App, databases: Sequence[str]) -> dict[str, Any]:
    properties = {
        name: _named(declared, databases) if declared.names else _input(declared)
        for name, declared in app.declared.items()
    }
    if Kind.DOCUMENTS in app.inputs.values():
        properties |= {"collection": _TEXT, "filters": {"type": "object"}}
    needed = [
        name
        for name, declared in app.declared.items()
        if declared.kind is not Kind.DOCUMENTS and not declared.optional
    ]
    return {
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": False,
    }


def _named(declared: Input, databases: Sequence[str]) -> dict[str, Any]:
    """An input that names a database of the configuration."""
    names: dict[str, Any] = {"type": "string"}
    if databases:
        names["enum"] = sorted(databases)
    return {"anyOf": [names, {"type": "null"}], "default": None} if declared.optional else names


def _input(declared: Input) -> dict[str, Any]:
    """An optional one may be null, and a text empty, which counts as not given."""
    of = _KINDS.get(Kind(declared.kind), {})
    if not declared.optional:
        return of
    loose = {key: value for key, value in of.items() if key != "minLength"}
    either = {"anyOf": [loose, {"type": "null"}]} if loose else {}
    return {**either, "default": declared.default}


def _parameters(app: App) -> dict[str, Any]:
    """Every parameter that a query may set, by `component.parameter`, with its default."""
    properties: dict[str, Any] = {}
    for component in app.builder.template.components:
        try:
            schema = component.config_type.model_json_schema()
        except PydanticInvalidForJsonSchema:  # a Python function, which nobody can send
            continue
        now = component.config.model_dump(mode="json")
        for name, of in schema.get("properties", {}).items():
            if name in OURS:
                continue
            properties[f"{component.name}.{name}"] = {**of, "default": now[name]}
    return {"type": "object", "properties": properties, "additionalProperties": False}
