"""Answers of people to what queries ask, over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from teola.query.journal.lost import Answered
from teola.serve.api import Service, tenant
from teola.serve.intake.bodies import parsed
from teola.serve.intake.query_request import checked
from teola.serve.problems import NotFound


class AnswerRequest(BaseModel):
    """The body of `POST /v1/queries/{id}/answers`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ask: str | None = Field(
        None, description="Id of the question; may be left out where only one is open."
    )
    answer: Any = Field(description="A JSON value that fits the question's schema.")


def answer_router(service: Service) -> APIRouter:
    """The route by which people answer."""
    routes = APIRouter(prefix="/v1")
    schema = {"application/json": {"schema": AnswerRequest.model_json_schema()}}
    more = {"requestBody": {"required": True, "content": schema}}

    @routes.post("/queries/{id}/answers", tags=["queries"], openapi_extra=more)
    async def answer(id: str, request: Request) -> dict[str, Any]:
        """Answer what the query waits for: the first answer to a question counts."""
        whose, board = tenant(request), service.board
        raw = await request.body()
        value = await parsed(raw) if raw else {}
        entry = board.find(id, whose)
        if entry is None and await service.kept(id, request) is None:
            raise NotFound(f"no query {id!r} here")
        body = checked(AnswerRequest, value)
        if entry is not None and entry.result is not None:
            raise Answered(f"query {id} waits for no answer (any more)")
        await board.desk.answer(id, whose, body.ask, body.answer)
        if entry is not None:
            return entry.summary()
        assert service.background is not None
        return await service.background.shown(await board.desk.kept(id, whose))

    return routes
