"""The routes of a server, as it has them and not as it publishes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from starlette.routing import Mount

from teola import Runtime
from teola.serve import server
from teola.serve.board import Board


def fastapi_of(asgi: Any) -> FastAPI:
    """The application inside the middlewares that `make_app` puts around it."""
    while not isinstance(asgi, FastAPI):
        asgi = getattr(asgi, "_app", None) or asgi._rest
    return asgi


def every_route() -> list[tuple[str, str]]:
    """Method and path of every route; of mounted folders the path of something inside."""
    with Runtime() as runtime:
        asgi = server.make_app(runtime, {}, Board(1), server.Readiness())
        return sorted(set(_routes(fastapi_of(asgi).routes)))


def _routes(routes: Any) -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Mount):
            yield "GET", f"{route.path}/index.html"
        elif hasattr(route, "methods"):
            published = route.path.replace(":path}", "}")
            yield from ((method, published) for method in route.methods or ())
        else:  # FastAPI keeps included routers as they are
            yield from _routes(route.effective_route_contexts())
