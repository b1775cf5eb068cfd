"""The server: routes on the runtime's own loop, from the first byte listened for to the drain.

Long because it is one life, in which the order counts.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from teola.app import App
from teola.errors import InputError, TeolaError, reason_of
from teola.query import query_files
from teola.query.event_log import MOST_EVENTS
from teola.runtime.live import loops
from teola.runtime.observe.noting import note
from teola.runtime.runtime import Runtime
from teola.serve import answering, api, collections_api, engines_api, looking, page, primitives_api
from teola.serve.access.answer_headers import AnswerHeaders
from teola.serve.access.auth import KeyFile, KeyGuard
from teola.serve.admission.admission import NO_SHARES, Shares
from teola.serve.admission.expecting import admission_for
from teola.serve.board import Board
from teola.serve.chat import openai_api
from teola.serve.chat.own_calls import OwnCalls
from teola.serve.connections import give_up_the_dead, most_connections, protocol
from teola.serve.direct import Direct
from teola.serve.indexing_app import IndexingApp
from teola.serve.intake.bounds import Bounded
from teola.serve.intake.limits import QueryLimits
from teola.serve.intake.listed_documents import Intake
from teola.serve.intake.named_databases import NamedDatabases, paths_closed
from teola.serve.observe.metrics import Metrics
from teola.serve.observe.observing import Observers
from teola.serve.observe.telemetry import Telemetry, from_environment
from teola.serve.openapi.published import publish_description
from teola.serve.problems import NotFound, Problem, answer, problem
from teola.serve.table_queries import sql_api
from teola.serve.warming import warm

if TYPE_CHECKING:
    from teola.query.journal.journal import Journal
    from teola.serve.journal.background import Background
    from teola.serve.journal.keeper import Keeper
    from teola.serve.table_queries.registered_tables import RegisteredTables
    from teola.serve.table_queries.table_app import TableApp

LOCAL: Final = ("127.0.0.1", "localhost", "::1")
LAST_WORDS_S: Final = 5
"""Seconds that clients have to take their last events once all queries have ended."""
CLOSE_S: Final = 15.0
"""How long the end waits for the journal, to give back what is left."""
FIRST_S: Final = 0.02
"""Pause between listening and starting the engines, in which first requests are answered: the
libraries that engines import hold Python up for as long as a second."""
GARBAGE: Final = (10_000, 10, 50)
"""New objects before Python looks for cycles. At its default of 700 a server that keeps its last
queries looks through them all the time: an eighth of what a small query cost. To look through all
that is alive holds up everybody, for 0.3 s where a query holds a million rows: seldom."""
M_ARENA_MAX: Final = -8
"""As malloc.h of glibc has it."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Readiness:
    """Whether all engines are there, and warm; error: why one is not."""

    ready: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a server takes.

    queries: most that run at once.
    queries_of_tenant: most of one tenant that run at once; None: no fewer than of all.
    drain_s: seconds that queries get to end when the server stops.
    max_wait_s, shares: see Admission.
    query: limits of each query.
    events: of each query that are held for its clients, besides its tokens.
    logs_said: whether logs have what model servers say in words.
    """

    queries: int
    queries_of_tenant: int | None = None
    drain_s: float = 30.0
    max_wait_s: float | None = None
    shares: Shares = NO_SHARES
    query: QueryLimits = field(default_factory=QueryLimits)
    events: int = MOST_EVENTS
    logs_said: bool = False


def board_for(runtime: Runtime, apps: Mapping[str, App], limits: ServerLimits) -> Board:
    """An empty board for queries of `apps`."""
    board = Board(limits.queries, limits.queries_of_tenant, limits.events)
    board.limits, board.logs_said = limits.query, limits.logs_said
    board.databases = NamedDatabases(runtime.configs)
    board.admission = admission_for(runtime, apps, limits.max_wait_s, limits.shares)
    return board


def make_app(
    runtime: Runtime,
    apps: Mapping[str, App],
    board: Board,
    readiness: Readiness,
    keys: KeyFile | None = None,
    keeper: Keeper | None = None,
    intake: Intake | None = None,
    telemetry: Telemetry | None = None,
    tables: RegisteredTables | None = None,
) -> ASGIApp:
    """The ASGI application, to be called on the runtime's loop. keys: None lets everybody in.
    tables: that clients may ask over."""
    fastapi = FastAPI(
        title="Teola",
        version=version("teola"),
        description="LLM applications, orchestrated primitive by primitive.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    intake = intake or Intake()
    runtime.configs = paths_closed(runtime.configs)
    service = api.Service(apps, board, _background(keeper, board), intake)
    key = keeper.journal.seal.key_of_call_ids if keeper is not None else None
    fastapi.include_router(api.router(service))
    fastapi.include_router(answering.answer_router(service))
    fastapi.include_router(openai_api.router(service, OwnCalls(intake.own_calls, key)))
    fastapi.include_router(engines_api.router(runtime, service))
    fastapi.include_router(looking.router(runtime, service))
    fastapi.include_router(primitives_api.router(service))
    indexing = IndexingApp(runtime, apps)
    if keeper is not None:
        keeper.add(indexing)
    fastapi.include_router(collections_api.router(runtime, service, indexing))
    table_app = _table_app(runtime, tables, board, apps)
    if keeper is not None and table_app is not None:
        keeper.add(table_app)
    fastapi.include_router(sql_api.router(service, table_app))
    page.mount(fastapi)

    @fastapi.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """The process is there."""
        return {"status": "ok"}

    @fastapi.get("/readyz", tags=["health"], response_model=None)
    async def readyz() -> Response:
        """Whether queries are welcome: all engines run and are warm, so that a first query takes no
        longer than later ones, and the server is not about to stop."""
        if board.draining:
            return JSONResponse({"status": "draining"}, 503)
        if readiness.error:
            return JSONResponse({"status": "failed", "error": readiness.error}, 503)
        if not readiness.ready:
            return JSONResponse({"status": "starting"}, 503)
        return JSONResponse({"status": "ready"})

    metrics = Metrics(runtime, apps, board)
    if keeper is not None:
        metrics.watch_journal(keeper.opened.is_set)
    observers = Observers(board, metrics, telemetry)

    @fastapi.get("/metrics", tags=["health"], response_model=None)
    async def scrape() -> Response:
        """Everything that Prometheus wants to know."""
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    _refusals(fastapi, observers)
    publish_description(fastapi, locked=keys is not None)
    direct = Direct(fastapi, partial(api.ask, service))
    bounded = Bounded(direct, collections_api.takes_forms, observers.refused)
    guard = KeyGuard(bounded, keys, observers.refused)
    board.desk.accounts_of = guard.accounts_of
    return observers.around(AnswerHeaders(guard))


def _refusals(app: FastAPI, observers: Observers) -> None:
    """Every error in one of the two forms."""

    def told(request: Request, problem: Problem) -> Response:
        observers.refused(problem, request.scope)
        return answer(request.scope["path"], problem)

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
            path = request.scope["path"]
            message = f"no such path: {path}; GET /v1/apps lists the applications"
            return told(request, problem(NotFound(message)))
        response = told(request, Problem(error.status_code, "refused", str(error.detail)))
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody reads it

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        message = "the server failed, which is a bug in it; its log says where"
        return told(request, Problem(500, "internal", message))


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
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048, reuse_port=False)
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
    limits: ServerLimits | None = None,
    journal: Journal | None = None,
    intake: Intake | None = None,
    tables: RegisteredTables | None = None,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve `apps` on `runtime` until SIGTERM or SIGINT, then drain; a second signal ends it now.

    Call it on the main thread. journal: keeps background queries over restarts. intake: what
    clients may send. tables: that they may ask over. started: called (there) once every
    engine runs.
    """
    limits = limits or ServerLimits(runtime.max_queries)
    _share_arenas()
    query_files.sweep()
    runtime.new_loop = loops.quick
    board, readiness = board_for(runtime, apps, limits), Readiness()
    keeper = _keeper(journal, board, apps)
    telemetry, key_file = from_environment(runtime), KeyFile(keys) if keys else None
    others = intake, telemetry, tables
    asgi = make_app(runtime, apps, board, readiness, key_file, keeper, *others)
    config = uvicorn.Config(
        asgi,
        http=protocol(most_connections(), lambda problem: board.on_refused(problem)),
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=LAST_WORDS_S,
    )
    server = _Server(config)
    serving = runtime.start(server.serve(sockets=[listener]))
    starting = runtime.start(_start(runtime, apps, readiness, keeper, server.listens))
    starting.add_done_callback(
        lambda done: None if done.cancelled() or done.exception() else started()
    )
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
    if keeper is not None:
        with suppress(TimeoutError):
            runtime.start(keeper.close()).result(CLOSE_S)
    if telemetry is not None and not server.force_exit:
        runtime.start(telemetry.close()).result()
    listener.close()
    query_files.clear()
    note(log, logging.INFO, "stopped", "stopped")


class _Server(uvicorn.Server):
    """Tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Returns when it does."""
        await super().startup(sockets)
        self.listens.set()


async def _start(
    runtime: Runtime,
    apps: Mapping[str, App],
    readiness: Readiness,
    keeper: Keeper | None,
    listens: asyncio.Event,
) -> None:
    """Start and warm every engine that any application uses; then what was left to run goes on."""
    await listens.wait()
    await asyncio.sleep(FIRST_S)
    if keeper is not None:
        keeper.open()
    servers = asyncio.create_task(_start_tools(runtime, apps))
    names = {name: None for app in apps.values() for name in app.engine_names}
    needed = {name for app in apps.values() for name in app.needed_engines}
    try:
        await runtime.ensure(names, names.keys() - needed)
    except TeolaError as error:
        readiness.error = str(error)
        message = "the engines cannot start: %(reason)s"
        note(log, logging.ERROR, "engine_failed", message, reason=str(error))
        raise
    finally:
        await servers
    await warm(runtime, apps)
    gc.freeze()  # what is there by now stays: models and modules need not be looked through
    gc.set_threshold(*GARBAGE)
    readiness.ready = True
    if keeper is not None:
        keeper.start()


async def _start_tools(runtime: Runtime, apps: Mapping[str, App]) -> None:
    """Start the servers of tools that agents use. One that cannot be is tried again when it is
    needed; until then, queries that need it fail."""
    sources = dict.fromkeys(source for app in apps.values() for source in app.tool_sources)
    for name, error in (await runtime.tools.start(sources)).items():
        message = "tool server %(server)s cannot start: %(reason)s"
        note(log, logging.WARNING, "tools_failed", message, server=name, reason=reason_of(error))


def _share_arenas() -> None:
    """Threads share two arenas of glibc's allocator. By default nearly each has one of its own, and
    keeps for good the most that it ever needed."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_ARENA_MAX, 2)


async def _stop(board: Board, server: uvicorn.Server, drain_s: float) -> None:
    """Let what runs end, then stop listening."""
    message = "stopping; %(queries)d queries still run"
    note(log, logging.INFO, "drain", message, queries=len(board.running))
    await board.drain(drain_s)
    await asyncio.sleep(0)  # the last events are written
    server.should_exit = True


def _keeper(journal: Journal | None, board: Board, apps: Mapping[str, App]) -> Keeper | None:
    if journal is None:
        return None
    from teola.serve.journal.keeper import Keeper  # only here, for what it imports takes its time

    return Keeper(journal, board, apps)


def _table_app(
    runtime: Runtime, tables: RegisteredTables | None, board: Board, apps: Mapping[str, App]
) -> TableApp | None:
    if tables is None or not tables.sources:
        return None
    from teola.serve.table_queries.table_app import TableApp  # with DuckDB, which not all have

    return TableApp(runtime, tables, board, apps)


def _background(keeper: Keeper | None, board: Board) -> Background | None:
    if keeper is None:
        return None
    from teola.serve.journal.background import Background

    return Background(keeper, board)


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
