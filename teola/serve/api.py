"""Our own routes: applications, and the life of a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from teola.app import App
from teola.errors import UnknownName
from teola.graph import Graph, render
from teola.runtime.observe.trace import Trace
from teola.serve.access.auth import paid_by
from teola.serve.board import Board, Entry
from teola.serve.intake.listed_documents import Intake
from teola.serve.intake.query_request import QueryRequest, asked
from teola.serve.intake.schemas import check_schemas
from teola.serve.intake.uploads import Upload
from teola.serve.long_json import LongJson
from teola.serve.openapi.describing import described_app
from teola.serve.problems import NotFound, problem_of
from teola.serve.question import SHORT
from teola.serve.streaming import (
    Events,
    EventStream,
    json_off_loop,
    numbered_event,
    result_for,
    written_off_loop,
)

if TYPE_CHECKING:
    from teola.query.journal.query_rows import Kept
    from teola.serve.journal.background import Background

KEY_PARAMETER: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "With mode background: a second query with it is the first one again.",
    "schema": {"type": "string"},
}


def body_of(model: type[BaseModel], **form: Any) -> dict[str, Any]:
    """What /openapi.json says of a body that is JSON, or a form with that and with documents. form:
    what else the form's schema says."""
    fields = {
        "request": {"type": "string", "description": "The JSON body."},
        "documents": {"type": "array", "items": {"type": "string", "format": "binary"}},
    }
    content = {
        "application/json": {"schema": model.model_json_schema()},
        "multipart/form-data": {"schema": {"type": "object", "properties": fields, **form}},
    }
    return {
        "requestBody": {"required": True, "content": content},
        "parameters": [KEY_PARAMETER],
    }


_BODY: Final = body_of(QueryRequest, additionalProperties={"type": "string"})


@dataclass(frozen=True, slots=True)
class Service:
    """What routes need. apps: by the names that clients use. background: if there is a journal.
    intake: what clients may send."""

    apps: Mapping[str, App]
    board: Board
    background: Background | None = None
    intake: Intake = field(default_factory=Intake)

    def app(self, name: str) -> App:
        """The application of this name. Raises NotFound."""
        if name not in self.apps:
            raise NotFound(str(UnknownName("application", name, self.apps)))
        return self.apps[name]

    def entry(self, id: str, request: Request) -> Entry:
        """The query of this id, if it is the asking tenant's. Raises NotFound."""
        entry = self.board.find(id, tenant(request))
        if entry is None:
            raise NotFound(
                f"no query {id!r} here (the last that ended are kept; of those in the background "
                "longer, but neither trace nor graph)"
            )
        return entry

    async def kept(self, id: str, request: Request) -> Kept | None:
        """A query that only the journal knows. Raises JournalLost."""
        if self.background is None:
            return None
        return await self.background.find(id, tenant(request))


def tenant(request: Request) -> str:
    """The tenant with whose key the request came."""
    name: str = request.scope["tenant"]
    return name


def router(service: Service) -> APIRouter:
    """All routes of this module."""
    routes = APIRouter(prefix="/v1")
    _app_routes(routes, service)
    _query_routes(routes, service)
    _view_routes(routes, service)
    return routes


def _app_routes(routes: APIRouter, service: Service) -> None:
    @routes.get("/apps", tags=["applications"])
    async def list_apps() -> dict[str, Any]:
        """All applications that are served."""
        listed = [
            {"name": name, "description": app.description} for name, app in service.apps.items()
        ]
        return {"apps": listed}

    @routes.get("/apps/{app}", tags=["applications"])
    async def show_app(app: str, request: Request) -> dict[str, Any]:
        """Inputs and parameters of an application, as JSON Schema."""
        return described_app(service.app(app), service.board.databases.open_to(tenant(request)))


async def ask(service: Service, app: str, request: Request) -> Response:
    """Answer `POST /v1/apps/{app}/queries`. Raises what refuses it, the body unread if it can."""
    chosen, upload = service.app(app), Upload()
    service.board.check(chosen, announced(request), tenant(request))
    try:
        query = await asked(request, chosen, upload, service.intake)
        await check_schemas(query.overrides)
        if query.mode == "background" and service.background is not None:
            return await service.background.accept(request, app, chosen, query, upload)
        spec, how = paid_by(request, query.ask(tenant(request))), query.mode
        entry = service.board.start(chosen, spec, mode=how, cleanup=upload.remove)
    except BaseException:
        upload.remove()
        raise
    headers = {"x-query-id": entry.id}
    if query.mode == "stream":
        return EventStream(Events(entry, numbered_event), owned=entry, headers=headers)
    if query.mode == "background":
        where = {**headers, "location": f"/v1/queries/{entry.id}"}
        return JSONResponse(entry.summary(), 202, headers=where)
    result = await result_for(entry, request.receive)
    if result is None and entry.waiting:
        where = {**headers, "location": f"/v1/queries/{entry.id}"}
        return JSONResponse(entry.summary(), 202, headers=where)
    if result is None:
        return Response(status_code=499)  # nobody reads it
    if result.state in ("ok", "partial"):
        return await json_off_loop(entry, result.to_json, headers)
    problem = problem_of(result)
    return JSONResponse(problem.body(), problem.status, headers={**headers, **problem.headers})


def announced(request: Request) -> int:
    """Bytes of the body, as its head says (0 if it does not)."""
    length = request.headers.get("content-length", "0")
    return int(length) if length.isdecimal() and len(length) < 16 else 0


def _query_routes(routes: APIRouter, service: Service) -> None:
    @routes.post("/apps/{app}/queries", tags=["queries"], openapi_extra=_BODY, response_model=None)
    async def query(app: str, request: Request) -> Response:
        """Ask a query: JSON, or a form whose files are documents."""
        return await ask(service, app, request)

    @routes.get("/queries", tags=["queries"])
    async def list_queries(
        request: Request,
        app: str | None = None,
        state: str | None = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> dict[str, Any]:
        """Queries that run and the last that ended, the newest first."""
        entries = [listed(entry) for entry in service.board.all(tenant(request))]
        if service.background is not None:
            ids = [entry["query_id"] for entry in entries]
            entries += await service.background.all(tenant(request), app, state, limit, ids)
            entries.sort(key=lambda entry: entry["created"], reverse=True)
        matching = [
            entry
            for entry in entries
            if (app is None or entry["app"] == app) and (state is None or entry["state"] == state)
        ]
        return {"queries": matching[:limit]}

    @routes.get("/queries/{id}", tags=["queries"], response_model=None)
    async def show_query(id: str, request: Request) -> Response:
        """What it asked, its state, and its result once there is one."""
        if service.background is not None and (kept := await service.kept(id, request)):
            return await run_in_threadpool(LongJson, await service.background.shown(kept))
        entry = service.entry(id, request)
        return await written_off_loop(entry, lambda: _shown(entry))

    @routes.delete("/queries/{id}/asked", tags=["queries"])
    async def forget_question(id: str, request: Request) -> dict[str, Any]:
        """Delete what it asked, which is then shown no more."""
        entry = service.entry(id, request)
        entry.forget()
        return entry.summary()

    @routes.delete("/queries/{id}", tags=["queries"])
    async def cancel_query(id: str, request: Request) -> dict[str, Any]:
        """Cancel it; one that has ended stays as it is."""
        if service.background is not None and (kept := await service.kept(id, request)):
            return await service.background.cancel(kept)
        entry = service.entry(id, request)
        if entry.result is None:
            entry.cancel()
            await entry.ended()
        return entry.summary()


def _view_routes(routes: APIRouter, service: Service) -> None:
    @routes.get("/queries/{id}/events", tags=["queries"], response_model=None)
    async def follow(id: str, request: Request) -> Response:
        """Its events from the first, or after `Last-Event-ID`; leaving does not cancel it."""
        if service.background is not None and (kept := await service.kept(id, request)):
            return service.background.follow(kept)
        entry = service.entry(id, request)
        last = request.headers.get("last-event-id", "")
        seen = int(last) - entry.base if last.isdecimal() and len(last) < 16 else 0
        after = min(max(seen, 0), len(entry.events))  # of an earlier run: from the beginning
        if entry.result is not None and after == len(entry.events):
            return Response(status_code=204)  # a browser's EventSource then asks no more
        return EventStream(Events(entry, partial(numbered_event, base=entry.base), after))

    @routes.get("/queries/{id}/trace", tags=["queries"], response_model=None)
    async def trace(id: str, request: Request) -> Response:
        """Every span so far: what ran where and when."""
        entry = service.entry(id, request)
        recorded = entry.job.trace
        if recorded is None:
            raise NotFound(f"query {id!r} has not been admitted yet")
        return await run_in_threadpool(_traced, recorded.copy())

    @routes.get("/queries/{id}/graph", tags=["queries"], response_model=None)
    async def graph(
        id: str, request: Request, form: Literal["json", "mermaid", "dot"] = "json"
    ) -> Response:
        """The graph that it ran as."""
        entry = service.entry(id, request)
        plan = entry.job.trace.plan if entry.job.trace else None
        if plan is None:
            raise NotFound(f"query {id!r} has no graph yet")
        return await run_in_threadpool(_drawn, plan.graph, form)


def listed(entry: Entry) -> dict[str, Any]:
    """Its line in a list of queries, with the beginning of what it asked, if that is kept."""
    text = entry.question.text if entry.question is not None else ""
    shown = entry.job.secrets.hidden(text)[:SHORT]
    return {**entry.summary(), "question": shown} if shown else entry.summary()


def _shown(entry: Entry) -> Response:
    body = entry.summary()
    if entry.question is not None:
        body["asked"] = entry.question.to_json()
    if entry.result is not None:
        body["result"] = entry.result.to_json()
    return LongJson(body)


def _traced(trace: Trace) -> Response:
    """The trace without the texts of errors, which may quote the query."""
    return LongJson(trace.to_json(errors=False))


def _drawn(graph: Graph, form: str) -> Response:
    if form == "json":
        return LongJson(render.to_json(graph))
    return PlainTextResponse(render.render(graph, form))
