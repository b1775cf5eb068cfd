"""The one route that must be quick, answered without FastAPI around it.

FastAPI looks for a route among all of them, solves its dependencies and keeps stacks for what they
opened: for each request that takes longer than running a small query. Queries are asked by a route
of Starlette's instead, on which nothing of that hangs. FastAPI knows the same route, for
/openapi.json, answers all others, and its handlers of errors serve here too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

BEFORE: Final = "/v1/apps/"
BEHIND: Final = "/queries"

Ask = Callable[[str, Request], Awaitable[Response]]


class Direct:
    """ASGI. ask: answers a query of the application so called. app: answers everything else; its
    handlers of errors must be there."""

    def __init__(self, app: FastAPI, ask: Ask) -> None:
        async def query(request: Request) -> Response:
            return await ask(request.path_params["app"], request)

        route = Route(f"{BEFORE}{{app}}{BEHIND}", query, methods=["POST"])
        handlers = app.exception_handlers
        self._rest = app
        self._quick = Starlette(routes=[route], exception_handlers=handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._quick if _asks(scope) else self._rest)(scope, receive, send)


def _asks(scope: Scope) -> bool:
    """Whether a request is a query. What only looks like one ends in the same 404."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return False
    path: str = scope["path"]
    return path.startswith(BEFORE) and path.endswith(BEHIND)
