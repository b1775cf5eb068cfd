"""Collections over HTTP: which there are, what is in one, and documents that come and go.

Indexing is a background query of an application of the server's own. It is watched, cancelled and
kept in the journal like any other one, and what it has done is its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from teola.collections import STORE, ids_of
from teola.engine import DocumentStore
from teola.errors import InputError, UnknownName
from teola.runtime.runtime import Runtime
from teola.serve.api import Service, announced, body_of, tenant
from teola.serve.direct import asked_of
from teola.serve.indexing_app import IndexingApp
from teola.serve.intake.index_request import IndexRequest, to_index
from teola.serve.intake.schemas import check_schemas
from teola.serve.intake.uploads import Upload
from teola.serve.long_json import LongJson
from teola.serve.problems import NotFound

MOST_LISTED: Final = 10_000
"""Documents in one answer."""
MOST_NAMES: Final = 100
"""Documents that one request deletes by name."""
SHOWN: Final = ("id", "name", "chunks", "metadata")
"""What is told of a document; where a file lay is nobody's business here."""
BEFORE: Final = "/v1/collections/"
BEHIND: Final = "/documents"


def takes_forms(scope: Scope) -> bool:
    """Whether a request may be a form: it brings documents, with a query or into a collection."""
    if asked_of(scope) is not None:
        return True
    path: str = scope.get("path", "")
    there = path.startswith(BEFORE) and path.endswith(BEHIND)
    return scope["type"] == "http" and scope["method"] == "POST" and there


def router(runtime: Runtime, service: Service, app: IndexingApp) -> APIRouter:
    """All routes of this module. app: what indexes."""
    routes = APIRouter(prefix="/v1/collections", tags=["collections"])

    @routes.get("", response_model=None)
    async def collections(request: Request) -> Response:
        """The tenant's collections, with the number of documents and chunks in each."""
        entries = await (await _store(runtime)).collections(tenant(request))
        listed = [{key: entry[key] for key in ("name", "documents", "chunks")} for entry in entries]
        return await run_in_threadpool(LongJson, {"collections": listed})

    @routes.get("/{name:path}/documents", response_model=None)
    async def documents(
        name: str,
        request: Request,
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 1000,
    ) -> Response:
        """The documents of a collection, the oldest first, and how many there are in all."""
        documents = await _documents(runtime, tenant(request), name)
        return await run_in_threadpool(_listed, name, documents, offset, limit)

    @routes.post(
        "/{name:path}/documents",
        status_code=202,
        openapi_extra=body_of(IndexRequest),
        response_model=None,
    )
    async def index(name: str, request: Request) -> Response:
        """Index documents in the background: JSON, or a form with files. A document replaces the
        one that has its name, and a new name of a collection makes it."""
        upload = Upload()
        service.board.check(app, announced(request), tenant(request))
        try:
            query = await to_index(request, app, name, upload, service.intake)
            await check_schemas(query.overrides)
            if service.background is not None:
                return await service.background.accept(request, app.name, app, query, upload)
            spec = query.ask(tenant(request))
            entry = service.board.start(app, spec, mode=query.mode, cleanup=upload.remove)
        except BaseException:
            upload.remove()
            raise
        headers = {"x-query-id": entry.id, "location": f"/v1/queries/{entry.id}"}
        return JSONResponse(entry.summary(), 202, headers=headers)

    @routes.delete("/{name:path}/documents")
    async def delete(
        name: str,
        request: Request,
        document: Annotated[
            list[str] | None,
            Query(alias="name", max_length=MOST_NAMES, description="Names or ids; repeatable."),
        ] = None,
        all: bool = False,
    ) -> dict[str, Any]:
        """Delete documents of a collection: those that are named, or all of them."""
        if bool(document) == all:
            raise InputError("say which documents: ?name=... (repeatable), or ?all=true")
        whose, there = tenant(request), await _documents(runtime, tenant(request), name)
        chosen = None if all else _chosen(there, document or (), name)
        deleted = await (await _store(runtime)).delete(whose, name, chosen)
        return {"collection": name, "deleted": deleted}

    return routes


async def _store(runtime: Runtime) -> DocumentStore:
    """The store, started where no application has needed it. Raises EngineUnavailable."""
    await runtime.ensure([STORE])
    return cast("DocumentStore", runtime.host(STORE).engine)


async def _documents(runtime: Runtime, tenant: str, collection: str) -> list[dict[str, Any]]:
    """Those of a collection of the tenant's. Raises NotFound."""
    store = await _store(runtime)
    names = [entry["name"] for entry in await store.collections(tenant)]
    if collection not in names:
        raise NotFound(str(UnknownName("collection", collection, names)))
    return await store.documents(tenant, collection)


def _chosen(there: list[dict[str, Any]], names: Iterable[str], collection: str) -> list[str]:
    try:
        return ids_of(there, names, collection)
    except InputError as error:
        raise NotFound(str(error)) from None


def _listed(name: str, documents: list[dict[str, Any]], offset: int, limit: int) -> Response:
    shown = [_shown(document) for document in documents[offset : offset + limit]]
    return LongJson({"collection": name, "total": len(documents), "documents": shown})


def _shown(document: Mapping[str, Any]) -> dict[str, Any]:
    shown = {key: document[key] for key in SHOWN}
    return {**shown, "created": round(document["created_at"].timestamp(), 3)}
