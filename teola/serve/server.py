"""The server: routes on the runtime's own loop, from the first byte listened for to the drain."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from teola.app import App
from teola.errors import InputError, TeolaError
from teola.runtime.runtime import Runtime
from teola.serve import api, engines_api, openai_api
from teola.serve.auth import Guard, KeyFile
from teola.serve.board import Board
from teola.serve.connections import give_up_the_dead, most_connections, protocol
from teola.serve.metrics import Metrics
from teola.serve.problems import NotFound, Problem, TooLarge, answer, problem

LOCAL: Final = ("127.0.0.1", "localhost", "::1")
JSON_BYTES: Final = 4 * 2**20
FORM_BYTES: Final = 64 * 2**20
LAST_WORDS_S: Final = 5
"""Seconds that clients have to take their last events once all queries have ended."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Readiness:
    """Whether all engines are there; error: why one is not."""

    ready: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """queries: at once; queries_of_tenant: of one tenant (None: no fewer). drain_s: seconds that
    they get to end when the server stops."""

    queries: int
    queries_of_tenant: int | None = None
    drain_s: float = 30.0


def make_app(
    runtime: Runtime,
    apps: Mapping[str, App],
    board: Board,
    readiness: Readiness,
    keys: KeyFile | None = None,
) -> ASGIApp:
    """The ASGI application, to be called on the runtime's loop. keys: None lets everybody in."""
    found = FastAPI(
        title="Teola",
        version=version("teola"),
        description="LLM applications, orchestrated primitive by primitive.",
        docs_url=None,
        redoc_url=None,
    )
    service = api.Service(apps, board)
    found.include_router(api.router(service))
    found.include_router(openai_api.router(service))
    found.include_router(engines_api.router(runtime, service))

    @found.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """The process is there."""
        return {"status": "ok"}

    @found.get("/readyz", tags=["health"], response_model=None)
    async def readyz() -> Response:
        """Whether queries are welcome: all engines run and the server is not about to stop."""
        if board.draining:
            return JSONResponse({"status": "draining"}, 503)
        if readiness.error:
            return JSONResponse({"status": "failed", "error": readiness.error}, 503)
        if not readiness.ready:
            return JSONResponse({"status": "starting"}, 503)
        return JSONResponse({"status": "ready"})

    metrics = Metrics(runtime, apps, board)
    board.on_end = metrics.ended

    @found.get("/metrics", tags=["health"], response_model=None)
    async def scrape() -> Response:
        """Everything that Prometheus wants to know."""
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    _refusals(found, metrics)
    return Guard(Bounded(found), keys)


def _refusals(app: FastAPI, metrics: Metrics) -> None:
    """Every error in one of the two forms."""

    def told(request: Request, found: Problem) -> Response:
        metrics.refused(found.code)
        return answer(request.url.path, found)

    @app.exception_handler(TeolaError)
    async def ours(request: Request, error: TeolaError) -> Response:
        return told(request, problem(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return told(request, problem(InputError(f"{where}: {first['msg']}")))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            message = f"no such path: {request.url.path}; GET /v1/apps lists the applications"
            return told(request, problem(NotFound(message)))
        response = told(request, Problem(error.status_code, "refused", str(error.detail)))
        response.headers.update(error.headers or {})
        return response


class Bounded:
    """Refuses bodies that are too long, at the latest when they have become so."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        form = headers.get(b"content-type", b"").lower().startswith(b"multipart/form-data")
        most = FORM_BYTES if form else JSON_BYTES
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            await self._refuse(scope, receive, send, most)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise _too_large(most)
            return message

        await self._app(scope, counted, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        refused = answer(scope["path"], problem(_too_large(most)), {"connection": "close"})
        await refused(scope, receive, send)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is larger than {most // 2**20} MiB")


def listen(host: str, port: int, keys: Path | None = None) -> socket.socket:
    """A socket that accepts from now on. Raises InputError, also where anybody could come in."""
    if keys is None and host not in LOCAL:
        raise InputError(
            f"without API keys only this machine is served, not {host}: create some with `teola "
            "keys create NAME`, and give --keys FILE"
        )
    if keys is not None and not KeyFile(keys).read():
        raise InputError(f"there are no keys in {keys}: `teola keys create NAME --file {keys}`")
    try:
        listener = socket.create_server((host, port), backlog=2048, reuse_port=False)
        give_up_the_dead(listener)
        return listener
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot listen on {host}:{port}: {reason}; try another --port") from None


def serve(
    runtime: Runtime,
    apps: Mapping[str, App],
    listener: socket.socket,
    *,
    keys: Path | None = None,
    limits: Limits | None = None,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve `apps` on `runtime` until SIGTERM or SIGINT, then drain; a second signal ends it now.

    Call it on the main thread. started: called (there) once every engine runs.
    """
    limits = limits or Limits(runtime.max_queries)
    board, readiness = Board(limits.queries, limits.queries_of_tenant), Readiness()
    asgi = make_app(runtime, apps, board, readiness, KeyFile(keys) if keys else None)
    config = uvicorn.Config(
        asgi,
        http=protocol(most_connections()),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=LAST_WORDS_S,
    )
    server = uvicorn.Server(config)
    serving = runtime.start(server.serve(sockets=[listener]))
    starting = runtime.start(_start(runtime, apps, readiness))
    starting.add_done_callback(lambda done: started() if not done.exception() else None)
    with _signals() as stopped:
        while not serving.done() and not stopped():
            with suppress(TimeoutError):
                serving.result(0.2)
    starting.cancel()
    if not serving.done():
        with _signals() as again:
            draining = runtime.start(_stop(board, server, limits.drain_s))
            while not draining.done():
                with suppress(TimeoutError):
                    draining.result(0.2)
                if again():
                    server.force_exit = True
                    draining.cancel()
                    break
            server.should_exit = True
            serving.result()
    listener.close()


async def _start(runtime: Runtime, apps: Mapping[str, App], readiness: Readiness) -> None:
    """Start every engine that any application uses."""
    names = {name: None for app in apps.values() for name in app.engine_names}
    try:
        await runtime.ensure(names)
    except TeolaError as error:
        readiness.error = str(error)
        log.error("%s", error)
        raise
    readiness.ready = True


async def _stop(board: Board, server: uvicorn.Server, drain_s: float) -> None:
    """Let what runs end, then stop listening."""
    await board.drain(drain_s)
    await asyncio.sleep(0)  # the last events are written
    server.should_exit = True


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Meanwhile SIGTERM and SIGINT are only noted; whether one came."""
    came: list[int] = []
    before: dict[int, Any] = {
        number: signal.signal(number, lambda n, _: came.append(n))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
