"""SQL over HTTP: `POST /v1/sql`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from teola.errors import InputError
from teola.plain_json import SPACED
from teola.plain_json import json_of as as_json
from teola.query.event_log import Event
from teola.query.result import Result, jsonable
from teola.serve.access.auth import paid_by
from teola.serve.api import KEY_PARAMETER, Service, announced, tenant
from teola.serve.intake.bodies import parsed
from teola.serve.intake.query_request import checked
from teola.serve.intake.uploads import Upload
from teola.serve.long_json import LongJson
from teola.serve.problems import problem_of
from teola.serve.streaming import Events, EventStream, numbered_event, result_for, written_off_loop
from teola.serve.table_queries.sql_request import Mode, SqlRequest

if TYPE_CHECKING:
    from teola.serve.table_queries.table_app import TableApp

NONE_REGISTERED = (
    "no tables are registered at this server: add [tables.NAME] to the configuration of `teola "
    "serve --config`"
)


def router(service: Service, app: TableApp | None) -> APIRouter:
    """The route of this module. app: what answers (None: no tables are registered)."""
    routes = APIRouter(prefix="/v1")
    schema = {"application/json": {"schema": SqlRequest.model_json_schema()}}
    more = {
        "requestBody": {"required": True, "content": schema},
        "parameters": [{**KEY_PARAMETER, "description": "With background: a second query with it "
                        "is the first one again."}],
    }  # fmt: skip

    @routes.post("/sql", tags=["tables"], openapi_extra=more, response_model=None)
    async def sql(request: Request) -> Response:
        """Ask over registered tables, with calls of language models in SQL."""
        if app is not None:
            service.board.check(app, announced(request), tenant(request))
        body = checked(SqlRequest, await parsed(await request.body()))
        if app is None:
            raise InputError(NONE_REGISTERED)
        return await ask(service, app, request, body)

    return routes


async def ask(service: Service, app: TableApp, request: Request, body: SqlRequest) -> Response:
    """Answer a query. Raises what refuses it."""
    from teola.serve.table_queries.table_run import check_table_query

    whose = tenant(request)
    streams = body.stream or "text/event-stream" in request.headers.get("accept", "")
    if body.background and body.stream:
        raise InputError("give background or stream, not both: a query in the background is "
                         "followed at /v1/queries/{id}/events")  # fmt: skip
    mode: Mode = "background" if body.background else "stream" if streams else "sync"
    query = body.ask(mode, app.tables.limits)
    await run_in_threadpool(check_table_query, app.tables, whose, body.query)
    if body.background and service.background is not None:
        return await service.background.accept(request, app.name, app, query, Upload())
    spec = paid_by(request, query.ask(whose))
    entry = service.board.start(app, spec, mode=mode)
    headers = {"x-query-id": entry.id}
    if mode == "background":
        where = {**headers, "location": f"/v1/queries/{entry.id}"}
        return JSONResponse(entry.summary(), 202, headers=where)
    if mode == "stream":
        return EventStream(Events(entry, encoded), owned=entry, headers=headers)
    result = await result_for(entry, request.receive)
    if result is None:
        return Response(status_code=499)  # nobody reads it
    if result.state in ("ok", "partial"):
        return await written_off_loop(entry, partial(_table, result, headers))
    problem = problem_of(result)
    return JSONResponse(problem.body(), problem.status, headers={**headers, **problem.headers})


def _table(result: Result, headers: dict[str, str]) -> Response:
    return LongJson(table_of(result), headers=headers)


def table_of(result: Result) -> Any:
    """What a query gave, as `teola sql --json` prints it."""
    return jsonable(result.outputs["table"])


def encoded(n: int, event: Event) -> Iterable[str]:
    """As `numbered_event`; the last event has the table alone, as an answer without events has."""
    if event.kind == "done" and isinstance(event.told, Result):
        event = Event("done", as_json(table_of(event.told), SPACED))
    return numbered_event(n, event)
