"""What the routes answer, as JSON Schema: the part of /openapi.json that no signature tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from teola.query.event_log import LEFT_OUT
from teola.tools.json_schema import JsonSchema

Content = Mapping[str, JsonSchema]
"""Media type -> schema."""


def _object(required: Mapping[str, JsonSchema], **optional: JsonSchema) -> JsonSchema:
    """An object; further keys may come with later versions."""
    properties = {**required, **optional}
    return {"type": "object", "required": list(required), "properties": properties}


def _list(items: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": items}


def _ref(name: str) -> JsonSchema:
    return {"$ref": f"#/components/schemas/{name}"}


def json_answer(schema: JsonSchema | str) -> Content:
    """An answer in JSON: a schema, or the name of one in `SCHEMAS`."""
    return {"application/json": _ref(schema) if isinstance(schema, str) else schema}


_TEXT: Final[JsonSchema] = {"type": "string"}
_NUMBER: Final[JsonSchema] = {"type": "number"}
_COUNT: Final[JsonSchema] = {"type": "integer", "minimum": 0}
_MAYBE: Final[JsonSchema] = {"type": ["string", "null"]}
_ANY_OBJECT: Final[JsonSchema] = {"type": "object"}
_STATE: Final[JsonSchema] = {
    "type": "string",
    "enum": ["queued", "running", "waiting", "ok", "partial", "failed", "cancelled", "deadline"],
}

SCHEMAS: Final[Mapping[str, JsonSchema]] = {
    "Error": _object(
        {
            "error": _object(
                {
                    "code": _TEXT,
                    "message": _TEXT,
                    "retryable": {"type": "boolean"},
                    "query_id": _MAYBE,
                }
            )
        }
    ),
    "OpenAIError": _object(
        {"error": _object({"message": _TEXT, "type": _TEXT, "param": _MAYBE, "code": _MAYBE})}
    ),
    "Status": _object({"status": _TEXT}, error=_TEXT),
    "AppList": _object({"apps": _list(_object({"name": _TEXT, "description": _TEXT}))}),
    "App": _object(
        {
            "name": _TEXT,
            "description": _TEXT,
            "inputs": _ANY_OBJECT,
            "outputs": _list(_TEXT),
            "parameters": _ANY_OBJECT,
        }
    ),
    "Result": _object(
        {
            "app": _TEXT,
            "query_id": _TEXT,
            "state": _STATE,
            "outputs": _ANY_OBJECT,
            "latency_s": _NUMBER,
            "primitives": _COUNT,
            "usage": _ref("QueryUsage"),
        },
        missing=_list(_TEXT),
        reasons={"type": "object", "additionalProperties": _TEXT},
        notices=_list(_TEXT),
        error=_TEXT,
    ),
    "QueryUsage": _object(
        {
            "prompt_tokens": _COUNT,
            "cached_tokens": _COUNT,
            "completion_tokens": _COUNT,
            "calls": _COUNT,
            "shared": _COUNT,
            "seconds": {"type": "object", "additionalProperties": _NUMBER},
            "cost": {"type": ["number", "null"]},
        }
    ),
    "Query": _object(
        {"query_id": _TEXT, "app": _TEXT, "mode": _TEXT, "state": _STATE, "created": _NUMBER},
        latency_s=_NUMBER,
        running_s=_NUMBER,
        asked=_object(
            {
                "inputs": _ANY_OBJECT,
                "left_out": _list(_TEXT),
                "overrides": _ANY_OBJECT,
                "passes": _MAYBE,
            }
        ),
        result=_ref("Result"),
        asks=_list(_ref("Ask")),
    ),
    "Ask": _object(
        {
            "ask": _TEXT,
            "kind": {"type": "string", "enum": ["ask", "approve", "unknown"]},
            "component": _TEXT,
            "question": _TEXT,
            "schema": _ANY_OBJECT,
        },
        about={},
    ),
    "QueryList": _object(
        {"queries": _list({"allOf": [_ref("Query"), _object({}, question=_TEXT)]})}
    ),
    "Trace": _object(
        {
            "query_id": _TEXT,
            "app": _TEXT,
            "state": _STATE,
            "latency_s": _NUMBER,
            "spans": _list(
                _object(
                    {
                        "primitive": _TEXT,
                        "op": _TEXT,
                        "component": _TEXT,
                        "engine": _TEXT,
                        "queued": _NUMBER,
                        "start": _NUMBER,
                        "end": _NUMBER,
                        "state": _TEXT,
                    },
                    error=_TEXT,
                )
            ),
        },
        parent=_object({"query_id": _TEXT, "primitive": _TEXT}),
        inner=_list(_ref("Trace")),
    ),
    "Graph": _object(
        {
            "primitives": _list(
                _object({"id": _TEXT, "op": _TEXT, "engine": _TEXT, "component": _TEXT})
            ),
            "edges": _list(_object({"from": _TEXT, "to": _TEXT, "kind": _TEXT})),
        }
    ),
    "CollectionList": _object(
        {"collections": _list(_object({"name": _TEXT, "documents": _COUNT, "chunks": _COUNT}))}
    ),
    "DocumentList": _object(
        {
            "collection": _TEXT,
            "total": _COUNT,
            "documents": _list(
                _object(
                    {
                        "id": _TEXT,
                        "name": _TEXT,
                        "chunks": _COUNT,
                        "created": _NUMBER,
                        "metadata": _ANY_OBJECT,
                    }
                )
            ),
        }
    ),
    "TableResult": _object(
        {
            "columns": _list(_object({"name": _TEXT, "type": _TEXT})),
            "rows": _list(_list({})),
            "row_count": _COUNT,
            "state": _STATE,
            **dict.fromkeys(
                (
                    "asked",
                    "answered_before",
                    "failed",
                    "unmatched",
                    "truncated",
                    "prompt_tokens",
                    "cached_tokens",
                    "completion_tokens",
                ),
                _COUNT,
            ),
            "seconds": _NUMBER,
            "errors": _list(
                _object({"operator": _TEXT, "error": _TEXT, "rows": _COUNT, "example": _TEXT})
            ),
            "stages": _list(
                _object(
                    {
                        "operator": _TEXT,
                        "instruction": _TEXT,
                        "rows": _COUNT,
                        "distinct": _COUNT,
                        "asked": _COUNT,
                        "order": _list(_TEXT),
                        "reason": _TEXT,
                    }
                )
            ),
        },
        reason=_TEXT,
    ),
    "Model": _object({"id": _TEXT, "object": _TEXT, "created": _COUNT, "owned_by": _TEXT}),
    "Usage": _object({"prompt_tokens": _COUNT, "total_tokens": _COUNT}, completion_tokens=_COUNT),
    "Completion": _object(
        {
            "id": _TEXT,
            "object": {"const": "chat.completion"},
            "created": _COUNT,
            "model": _TEXT,
            "choices": _list(
                _object({"index": _COUNT, "message": _ANY_OBJECT, "finish_reason": _TEXT})
            ),
            "usage": _ref("Usage"),
        },
        x_teola=_object({}, sources=_list(_ANY_OBJECT), steps=_list(_ANY_OBJECT)),
    ),
    "Embeddings": _object(
        {
            "object": {"const": "list"},
            "model": _TEXT,
            "data": _list(_object({"index": _COUNT, "embedding": {"type": ["array", "string"]}})),
            "usage": _ref("Usage"),
        }
    ),
    "Ranking": _object(
        {
            "id": _TEXT,
            "model": _TEXT,
            "results": _list(
                _object({"index": _COUNT, "relevance_score": _NUMBER}, document=_ANY_OBJECT)
            ),
        }
    ),
}


def _stream(**fields: JsonSchema) -> Content:
    """Server-sent events; the schema is that of each."""
    return {"text/event-stream": _object({"data": _TEXT}, **fields)}


_KINDS: Final[JsonSchema] = {
    "type": "string",
    "enum": [
        "primitive",
        "token",
        "step",
        "waiting",
        "restarted",
        "plan",
        "progress",
        "rows",
        LEFT_OUT,
        "done",
        "error",
    ],
}
_EVENTS: Final = _stream(id=_TEXT, event=_KINDS)
_CHUNKS: Final = _stream()
_QUERY: Final = json_answer("Query")
_PLAIN: Final[Content] = {"text/plain": _TEXT}

ANSWERS: Final[Mapping[str, Mapping[int, Content]]] = {
    "GET /v1/apps": {200: json_answer("AppList")},
    "GET /v1/apps/{app}": {200: json_answer("App")},
    "POST /v1/apps/{app}/queries": {200: {**json_answer("Result"), **_EVENTS}, 202: _QUERY},
    "GET /v1/queries": {200: json_answer("QueryList")},
    "GET /v1/queries/{id}": {200: _QUERY},
    "DELETE /v1/queries/{id}": {200: _QUERY},
    "DELETE /v1/queries/{id}/asked": {200: _QUERY},
    "POST /v1/queries/{id}/answers": {200: _QUERY},
    "GET /v1/queries/{id}/events": {200: _EVENTS, 204: {}},
    "GET /v1/queries/{id}/trace": {200: json_answer("Trace")},
    "GET /v1/queries/{id}/graph": {200: {**json_answer("Graph"), **_PLAIN}},
    "GET /v1/queries/{id}/explanation": {200: json_answer(_ANY_OBJECT)},
    "GET /v1/queries/{id}/timeline": {200: json_answer(_ANY_OBJECT)},
    "GET /v1/queries/{id}/primitives/{primitive}": {200: json_answer(_ANY_OBJECT)},
    "GET /v1/collections": {200: json_answer("CollectionList")},
    "GET /v1/collections/{name}/documents": {200: json_answer("DocumentList")},
    "POST /v1/collections/{name}/documents": {202: _QUERY},
    "DELETE /v1/collections/{name}/documents": {
        200: json_answer(_object({"collection": _TEXT, "deleted": _COUNT}))
    },
    "POST /v1/sql": {200: {**json_answer("TableResult"), **_EVENTS}, 202: _QUERY},
    "GET /v1/engines": {200: json_answer(_object({"engines": _list(_object({"name": _TEXT}))}))},
    "GET /v1/models": {200: json_answer(_object({"object": _TEXT, "data": _list(_ref("Model"))}))},
    "GET /v1/models/{model}": {200: json_answer("Model")},
    "POST /v1/chat/completions": {200: {**json_answer("Completion"), **_CHUNKS}},
    "POST /v1/embeddings": {200: json_answer("Embeddings")},
    "POST /v1/rerank": {200: json_answer("Ranking")},
    "GET /healthz": {200: json_answer("Status")},
    "GET /readyz": {200: json_answer("Status"), 503: json_answer("Status")},
    "GET /metrics": {200: _PLAIN},
}
"""Method and path -> status -> what it answers if all is well. A route that is not here is
described by FastAPI alone, which tests/serve/fuzz takes for an omission."""
