"""What one primitive of a query read and gave, how it was tried, and with whom in a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from teola.errors import UnknownName
from teola.runtime.observe.trace import Trace
from teola.serve.api import Service, tenant
from teola.serve.board import Board, Entry
from teola.serve.long_json import LongJson
from teola.serve.looking import MOST_ERROR
from teola.serve.problems import NotFound

MOST_BESIDE: Final = 256
"""Queries of the tenant that are looked through for members of a batch."""


def router(service: Service) -> APIRouter:
    """The route of this module."""
    routes = APIRouter(prefix="/v1")

    @routes.get("/queries/{id}/primitives/{primitive:path}", tags=["queries"], response_model=None)
    async def primitive(id: str, primitive: str, request: Request) -> Response:
        """What one primitive read and gave, as far as that is kept, its tries, tokens and batches;
        of a part by its path, as in the timeline."""
        entry = service.entry(id, request)
        if entry.job.trace is None:
            raise NotFound(f"query {id!r} has not been admitted yet")
        trace = entry.job.trace.copy()
        beside = list(_beside(service.board, entry, tenant(request)))
        hide = entry.job.secrets.hidden

        def made() -> Response:
            try:
                described = trace.primitive(primitive, beside=beside)
            except UnknownName as error:
                raise NotFound(f"query {id!r}: {error}") from None
            for span in described["tries"]:
                if "error" in span:
                    span["error"] = hide(span["error"])[:MOST_ERROR]
            return LongJson(described)

        return await run_in_threadpool(made)

    return routes


def _beside(board: Board, entry: Entry, tenant: str) -> Iterator[Trace]:
    """Other queries of the tenant that ran meanwhile."""
    mine = entry.job.trace
    assert mine is not None
    left = MOST_BESIDE
    for other in board.all(tenant):
        trace = other.job.trace
        if other is entry or trace is None or not left:
            continue
        if mine.finished is not None and trace.admitted > mine.finished:
            continue
        if trace.finished is None:
            yield trace.copy()
        elif trace.finished >= mine.admitted:
            yield trace
        left -= 1
