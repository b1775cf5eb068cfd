"""The one route that must be quick, answered without FastAPI's routes around it.

FastAPI looks for a route among all of them, solves its dependencies and keeps stacks for what they
opened: for each request that takes longer than running a small query. Queries are asked here
instead. FastAPI knows the same route, for /openapi.json, answers all others, and its handlers of
errors serve here too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import request_response
from starlette.types import ASGIApp, Receive, Scope, Send

BEFORE: Final = "/v1/apps/"
BEHIND: Final = "/queries"

Answering = Callable[[str, Request], Awaitable[Response]]


class Direct:
    """ASGI. ask: answers a query of the application so called. app: answers everything else; its
    handlers of errors must be there."""

    def __init__(self, app: FastAPI, ask: Answering) -> None:
        async def query(request: Request) -> Response:
            return await ask(request.path_params["app"], request)

        handlers = dict(app.exception_handlers)
        bug = handlers.pop(Exception)
        self._rest = app
        self._handlers: tuple[dict[Any, Any], dict[int, Any]] = (handlers, {})
        self._quick: ASGIApp = ServerErrorMiddleware(request_response(query), handler=bug)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = asked_of(scope)
        if name is None:
            await self._rest(scope, receive, send)
            return
        scope["app"] = self._rest  # else Starlette takes broken forms for ours
        scope["path_params"] = {"app": name}
        scope["starlette.exception_handlers"] = self._handlers
        await self._quick(scope, receive, send)


def asked_of(scope: Scope) -> str | None:
    """The application of which a request asks a query, if it does."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path: str = scope["path"]
    if not (path.startswith(BEFORE) and path.endswith(BEHIND)):
        return None
    name = path[len(BEFORE) : -len(BEHIND)]
    return None if not name or "/" in name else name
