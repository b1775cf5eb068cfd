"""OpenAI's routes: applications as models, so that any of its clients can ask them.

The last message is the question. What was said before it becomes the input `history` of an
application that has one; others answer every question by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from teola.app import DEADLINE_S, App
from teola.errors import InputError
from teola.result import Result
from teola.serve.api import Service, tenant
from teola.serve.asking import MOST_DEADLINE_S, as_json, checked, inline_documents
from teola.serve.board import Entry, Event
from teola.serve.problems import problem_of
from teola.serve.streaming import EventStream, result_for
from teola.workflow.component import Kind

QUESTION: Final = "question"
HISTORY: Final = "history"
NO_HISTORY: Final = "(nothing has been said yet)"
_SPEAKERS: Final = {"user": "User", "assistant": "Assistant"}


class Message(BaseModel):
    """One message; `content` is a text or a list of text parts."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]] | None = None

    def text(self) -> str:
        """Raises InputError for anything but text."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        for part in self.content:
            if part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise InputError("messages may only contain text")
        return "".join(part["text"] for part in self.content)


class StreamOptions(BaseModel):
    """include_usage: a last piece tells how many tokens it took."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """The body of `POST /v1/chat/completions`; what is ours in it: documents, collection, filters,
    overrides, deadline_s. Unknown fields are passed over, as OpenAI's servers do."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[Message] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    response_format: dict[str, Any] | None = None
    n: Literal[1] = 1
    tools: None = Field(None, description="Not taken: an application brings its own.")
    documents: Any = None
    collection: str | None = None
    filters: dict[str, Any] | None = None
    overrides: dict[str, Any] = Field(default_factory=dict)
    deadline_s: float = Field(DEADLINE_S, gt=0, le=MOST_DEADLINE_S)


def router(service: Service) -> APIRouter:
    """All routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["OpenAI"])

    @routes.get("/models")
    async def models() -> dict[str, Any]:
        """The applications, as models."""
        return {"object": "list", "data": [_model(name) for name in service.apps]}

    @routes.get("/models/{model}")
    async def model(model: str) -> dict[str, Any]:
        """One of them."""
        service.app(model)
        return _model(model)

    schema = {"content": {"application/json": {"schema": ChatRequest.model_json_schema()}}}
    body = {"requestBody": {"required": True, **schema}}

    @routes.post("/chat/completions", openapi_extra=body, response_model=None)
    async def chat(request: Request) -> Response | EventStream:
        """Answer the last message with the application that `model` names."""
        wanted = checked(ChatRequest, as_json(await request.body()))
        app = service.app(wanted.model)
        entry = service.board.start(
            app,
            _inputs(app, wanted),
            mode="stream" if wanted.stream else "sync",
            overrides={**_decoding(app, wanted), **wanted.overrides},
            passes=None,
            deadline_s=wanted.deadline_s,
            tenant=tenant(request),
        )
        headers = {"x-query-id": entry.id}
        if wanted.stream:
            usage = bool(wanted.stream_options and wanted.stream_options.include_usage)
            chunks = _Chunks(entry, wanted.model, usage)
            return EventStream(entry, chunks.encode, headers=headers)
        result = await result_for(entry, request.receive)
        if result is None:
            return Response(status_code=499)  # nobody reads it
        if result.state in ("ok", "partial"):
            return JSONResponse(_completion(entry, wanted.model, result), headers=headers)
        problem = problem_of(result)
        told = {**headers, **problem.headers}
        return JSONResponse(problem.openai_body(), problem.status, headers=told)

    return routes


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "teola"}


# --- from messages to inputs ----------------------------------------------------------------


def _inputs(app: App, wanted: ChatRequest) -> dict[str, Any]:
    """Raises InputError if the application cannot be asked by chatting."""
    others = [
        name
        for name, kind in app.inputs.items()
        if name not in (QUESTION, HISTORY) and kind is not Kind.DOCUMENTS
    ]
    if app.inputs.get(QUESTION) is not Kind.TEXT or others:
        raise InputError(
            f"application {app.name!r} takes more than a question; ask it at "
            f"/v1/apps/{wanted.model}/queries"
        )
    *before, last = wanted.messages
    if last.role != "user":
        raise InputError("the last message must be the user's: it is the question")
    found: dict[str, Any] = {QUESTION: last.text()}
    if HISTORY in app.inputs:
        found[HISTORY] = _history(before)
    for name, kind in app.inputs.items():
        if kind is Kind.DOCUMENTS and wanted.documents is not None:
            found |= inline_documents(app, {name: wanted.documents})
    for name, value in (("collection", wanted.collection), ("filters", wanted.filters)):
        if value is not None:
            found[name] = value
    return found


def _history(messages: list[Message]) -> str:
    told = [(_SPEAKERS.get(m.role, "System"), m.text().strip()) for m in messages]
    return "\n".join(f"{who}: {text}" for who, text in told if text) or NO_HISTORY


def _decoding(app: App, wanted: ChatRequest) -> dict[str, dict[str, Any]]:
    """Overrides of the components that write the answer."""
    most = wanted.max_completion_tokens or wanted.max_tokens
    given = {
        "max_tokens": most,
        "temperature": wanted.temperature,
        "json_schema": _schema(wanted.response_format),
    }
    values = {key: value for key, value in given.items() if value is not None}
    writers = {source.component for sources in app.builder.finals.values() for source in sources}
    found = {}
    for component in app.builder.template.components:
        known = component.config_type.model_fields
        if component.name in writers and values.keys() <= known.keys():
            found[component.name] = values
    return found if values else {}


def _schema(form: Mapping[str, Any] | None) -> Any:
    """Of a response_format. Raises InputError."""
    kind = (form or {}).get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    wrapped = (form or {}).get("json_schema")
    if kind == "json_schema" and isinstance(wrapped, dict):
        schema = wrapped.get("schema")
        if isinstance(schema, dict):
            return schema
    raise InputError("response_format: text, json_object, or json_schema with a schema")


# --- from results to completions ------------------------------------------------------------


def _completion(entry: Entry, model: str, result: Result) -> dict[str, Any]:
    message = {"role": "assistant", "content": _said(result), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {
        "id": f"chatcmpl-{entry.id}",
        "object": "chat.completion",
        "created": int(entry.created),
        "model": model,
        "choices": [choice],
        "usage": _usage(entry),
    }


def _said(result: Result) -> str:
    answer = result.answer
    if answer is None or isinstance(answer, str):
        return answer or ""
    return json.dumps(result.to_json()["outputs"].get("answer", answer), ensure_ascii=False)


def _usage(entry: Entry) -> dict[str, int]:
    """Tokens of all LLM calls of the query, as their engines counted them."""
    trace = entry.job.trace
    prompt = trace.prompt_tokens if trace else 0
    written = trace.completion_tokens if trace else 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
    }


class _Chunks:
    """The events of a query as pieces of a chat completion."""

    def __init__(self, entry: Entry, model: str, usage: bool) -> None:
        self._entry, self._usage = entry, usage
        self._head = {
            "id": f"chatcmpl-{entry.id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        self._begun = False

    def encode(self, n: int, event: Event) -> Iterable[str]:
        """Text for the client."""
        if event.kind == "token":
            yield from self._delta(json.loads(event.data)["text"])
        elif event.kind == "done":
            if not self._begun:  # an answer that is no text comes whole
                assert self._entry.result is not None
                yield from self._delta(_said(self._entry.result))
            yield self._chunk({}, "stop")
            if self._usage:
                yield _line({**self._head, "choices": [], "usage": _usage(self._entry)})
            yield "data: [DONE]\n\n"
        elif event.kind == "error":
            assert self._entry.result is not None
            yield _line(problem_of(self._entry.result).openai_body())

    def _delta(self, text: str) -> Iterable[str]:
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""}, None)
        yield self._chunk({"content": text}, None)

    def _chunk(self, delta: Mapping[str, str], reason: str | None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _line({**self._head, "choices": [choice]})


def _line(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
