"""OpenAI's routes: applications as models, so that any of its clients can ask them.

The last message is the question, what was said before it a conversation (`conversation`). An answer
that is wanted as JSON is sent only once it is known to fit, so a stream of it comes in one piece.
If it does not fit, the query is asked once more, told what was wrong.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from teola.errors import DeadlineExceeded, InputError, OutputError
from teola.query.result import Result
from teola.query.spec import QuerySpec
from teola.runtime.hosts.structured import Misfit, validate_schema
from teola.runtime.objectives import checked_objective
from teola.serve.access.auth import paid_by
from teola.serve.api import Service, announced, tenant
from teola.serve.board import Entry
from teola.serve.chat.chat_request import ChatRequest, check_chats, decoding, read_chat_request
from teola.serve.chat.completions import Chunks, answer_text, calls_of, completion
from teola.serve.chat.conversation import (
    CLIENT_TOOLS,
    HISTORY,
    INSTRUCTIONS,
    QUESTION,
    Conversation,
    Exchange,
    Forms,
    writes_by_agent,
)
from teola.serve.chat.own_calls import OwnCalls
from teola.serve.intake.bodies import parsed
from teola.serve.intake.schemas import SCHEMA_KIND, check_schemas
from teola.serve.intake.uploads import Upload
from teola.serve.problems import answer, problem, problem_of, waits_for_people
from teola.serve.streaming import Events, EventStream, json_off_loop, result_for, written_off_loop
from teola.workflow.kinds import Kind

AGAIN: Final = """\
The answer must be JSON, with nothing before or after it, that fits this JSON schema:
{schema}
An earlier answer did not fit: {told}"""


def router(service: Service, own_calls: OwnCalls) -> APIRouter:
    """All routes of this module. own_calls: where those are kept of which clients do not know."""
    routes, forms = APIRouter(prefix="/v1", tags=["OpenAI"]), Forms()

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
    async def chat(request: Request) -> Response:
        """Answer the last message with the application that `model` names."""
        upload = Upload()
        try:
            chat_request = read_chat_request(await parsed(await request.body()))
            asking = _Asking(service, forms, own_calls, request, chat_request)
            await asking.hear()
            await check_schemas({**asking.wanted.overrides, SCHEMA_KIND: asking.schema or {}})
            await asking.get_documents(upload)
            if asking.wanted.stream and asking.schema is None:
                return asking.streamed(upload)
        except BaseException:
            upload.remove()
            raise
        try:
            return await asking.answered()
        finally:
            upload.remove()

    return routes


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "teola"}


class _Answer(NamedTuple):
    """result: None if the client has left. text: what is sent of it. misfit: why it is not what was
    wanted."""

    entry: Entry
    result: Result | None
    text: str = ""
    misfit: OutputError | None = None


class _Asking:
    """One request: what it asks of which form of its application. Raises what refuses it."""

    def __init__(
        self,
        service: Service,
        forms: Forms,
        own_calls: OwnCalls,
        request: Request,
        chat_request: ChatRequest,
    ) -> None:
        self.service, self.forms, self.own_calls = service, forms, own_calls
        self.request, self.wanted = request, chat_request
        self.app = service.app(chat_request.model)
        check_chats(self.app, chat_request.model)
        service.board.check(self.app, announced(request), tenant(request))
        self.schema = chat_request.wanted_schema()
        if self.schema is not None:  # also one that no component knows
            service.board.limits.check(self.app, {}, {"response_format.json_schema": self.schema})
        self.said = chat_request.conversation(partial(own_calls.placed, tenant(request)))
        self.overrides = {**decoding(self.app, chat_request, self.schema), **chat_request.overrides}
        self.documents: dict[str, Any] = {}
        self.cleanup: Callable[[], None] = lambda: None
        checked_objective(chat_request.finish_by_s, chat_request.deadline_s)
        self.until = _now() + chat_request.deadline_s

    async def hear(self) -> None:
        """Set what was said, with the tools that the client brings along."""
        chat_request, conversation = self.wanted, self.said
        if chat_request.tools and not writes_by_agent(self.app):
            raise InputError(
                f"application {self.app.name!r} brings its own tools; send none (an application "
                "takes a client's tools where an agent writes its answer)"
            )
        texts = [
            conversation.question,
            *(call.result for call in conversation.exchange if isinstance(call, Exchange)),
        ]
        limits = self.service.board.limits
        limits.check(self.app, {QUESTION: "\n".join(texts)}, {})
        await chat_request.check_tools(limits)
        if chat_request.tools:
            names = ("tools", "tool_choice", "parallel_tool_calls")
            conversation = replace(
                conversation, tools={name: getattr(chat_request, name) for name in names}
            )
        self.said = conversation

    async def get_documents(self, upload: Upload) -> None:
        """Set the documents that are searched, files stored by `upload`."""
        chat_request, kinds = self.wanted, self.app.inputs.items()
        named = [name for name, kind in kinds if kind is Kind.DOCUMENTS] or ["documents"]
        if chat_request.documents is not None:
            inputs = dict.fromkeys(named, chat_request.documents)
            self.documents = await self.service.intake.documents(
                self.app, inputs, upload, self.request.receive, chat_request.deadline_s
            )
        for name in ("collection", "filters", "database", "hints"):
            if (value := getattr(chat_request, name)) is not None:
                self.documents[name] = value

    def _start(self, conversation: Conversation) -> Entry:
        """Ask, by itself as far as the board knows; its inputs are those of a form."""
        most = self.service.intake.history_characters
        form, inputs = conversation.inputs(self.app, self.forms, most)
        left_s = self.until - _now()
        if left_s <= 0:
            raise DeadlineExceeded("the deadline passed before the query was asked")
        finish_by_s = self.wanted.finish_by_s
        return self.service.board.start(
            form,
            paid_by(
                self.request,
                QuerySpec(
                    {**inputs, **self.documents},
                    self.overrides,
                    deadline_s=left_s,
                    tenant=tenant(self.request),
                    session=self.wanted.turn_of,
                    most_tokens=self.wanted.most_tokens,
                    most_cost=self.wanted.most_cost,
                    finish_by_s=None if finish_by_s is None else min(finish_by_s, left_s),
                ),
            ),
            mode="stream" if self.wanted.stream else "sync",
            cleanup=self.cleanup,
            keeps="never",
            settle=self.own_calls.settled if CLIENT_TOOLS in inputs else None,
        )

    def streamed(self, upload: Upload) -> EventStream:
        """Pieces of the answer as they come; `upload` is removed when the query has ended."""
        self.cleanup = upload.remove
        entry = self._start(self.said)
        chunks = Chunks(entry, self.wanted.model, self.wanted.wants_usage, self.wanted.steps)
        events = Events(entry, chunks.encode, last="waiting")
        return EventStream(events, owned=entry, headers={"x-query-id": entry.id})

    async def answered(self) -> Response:
        """The whole answer."""
        entry, result, text, misfit = await self._asked(self.said)
        if misfit is not None and (again := self._again(misfit)) is not None:
            entry, result, text, misfit = await self._asked(again)
        headers, path = {"x-query-id": entry.id}, self.request.scope["path"]
        if result is None and entry.waiting:
            return answer(path, waits_for_people(entry.id), headers)
        if result is None:
            return Response(status_code=499)  # nobody reads it
        if result.state not in ("ok", "partial"):
            return answer(path, problem_of(result), headers)
        if misfit is not None:
            return answer(path, problem(misfit, entry.id), headers)
        model = self.wanted.model
        if not self.wanted.stream:
            steps = self.wanted.steps
            made = partial(completion, entry, model, text, steps)
            return await json_off_loop(entry, made, headers)
        chunks = Chunks(entry, model, self.wanted.wants_usage)
        whole = await written_off_loop(entry, lambda: "".join(chunks.rest(text)))
        return Response(whole, media_type="text/event-stream", headers=headers)

    async def _asked(self, conversation: Conversation) -> _Answer:
        """Ask `conversation` and wait for the answer."""
        entry = self._start(conversation)
        result = await result_for(entry, self.request.receive)
        if result is None:
            return _Answer(entry, result)
        if result.state not in ("ok", "partial"):
            cause = result.error.__cause__ if result.error else None
            misfit = cause if isinstance(cause, Misfit) and self.schema is not None else None
            return _Answer(entry, result, misfit=misfit)
        if self.schema is None or calls_of(result):
            return _Answer(
                entry, result, await written_off_loop(entry, partial(answer_text, result))
            )
        try:
            return _Answer(entry, result, await run_in_threadpool(_fitting, result, self.schema))
        except OutputError as error:
            return _Answer(entry, result, misfit=error)

    def _again(self, misfit: OutputError) -> Conversation | None:
        """The same, told what was wrong; None if there is no time left, or nobody to be told."""
        message = AGAIN.format(schema=json.dumps(self.schema), told=misfit)
        again = replace(self.said, instructions=(*self.said.instructions, message))
        form, _ = again.inputs(self.app, self.forms, self.service.intake.history_characters)
        hears = {INSTRUCTIONS, HISTORY} & form.inputs.keys()
        return again if hears and _now() < self.until else None


def _fitting(result: Result, schema: dict[str, Any]) -> str:
    """The answer as JSON. Raises OutputError if it does not fit."""
    value = validate_schema(answer_text(result), json.dumps(schema))
    return json.dumps(value, ensure_ascii=False)


def _now() -> float:
    return asyncio.get_running_loop().time()
