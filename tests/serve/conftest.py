"""A real server on a real port, with small applications; and clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
import uvicorn

from teola import App, Runtime, component
from teola.query.journal.journal import Journal
from teola.query.spec import QuerySpec
from teola.query.underway import FiledWhen
from teola.serve import connections, server
from teola.serve.access.auth import KeyFile
from teola.serve.board import Board, Entry
from teola.serve.intake.listed_documents import Intake
from teola.serve.journal.keeper import Keeper
from teola.serve.table_queries.registered_tables import RegisteredTables

WAIT_S = 600.0


@dataclass
class Served:
    """A server that runs. url: without a slash at its end."""

    url: str
    board: Board
    runtime: Runtime


@component(outputs="answer", pure=True)
async def say(question: str) -> str:
    """Answers after a while to `wait`, badly to `fail`."""
    if question.endswith("wait"):
        await asyncio.sleep(WAIT_S)
    if question == "fail":
        raise ValueError("bad luck")
    return f"you said: {question}"


@component(outputs="answer", pure=True)
async def recall(question: str, history: str) -> str:
    return f"{history} | {question}"


@component(outputs="answer", pure=True)
async def count(names: list[str], unit: str) -> dict[str, object]:
    return {"count": len(names), "unit": unit}


def applications() -> dict[str, App]:
    text = {"question": "text"}
    answer = {"answer": "answer"}
    apps = [
        App("echo", template=say, inputs=text, outputs=answer, description="Says it again"),
        App("memory", template=recall, inputs={**text, "history": "text"}, outputs=answer),
        App("count", template=count, inputs={"names": "texts", "unit": "text"}, outputs=answer),
    ]
    return {app.name: app for app in apps}


@contextmanager
def lent(apps: Mapping[str, App], runtime: Runtime) -> Iterator[None]:
    """Meanwhile they run there."""
    own = [(app, app.runtime) for app in apps.values()]
    for app in apps.values():
        app.runtime = runtime
    try:
        yield
    finally:
        for app, before in own:
            app.runtime = before


@contextmanager
def serving(
    runtime: Runtime,
    apps: Mapping[str, App],
    keys: KeyFile | None = None,
    journal: Journal | None = None,
    intake: Intake | None = None,
    tables: RegisteredTables | None = None,
) -> Iterator[Served]:
    """Serve `apps` as `teola serve` does, but from a thread that has no signals."""
    with lent(apps, runtime), _serving(runtime, apps, keys, journal, intake, tables) as found:
        yield found


@contextmanager
def _serving(
    runtime: Runtime,
    apps: Mapping[str, App],
    keys: KeyFile | None,
    journal: Journal | None,
    intake: Intake | None,
    tables: RegisteredTables | None,
) -> Iterator[Served]:
    listener = server.listen("127.0.0.1", 0)
    board = server.board_for(runtime, apps, server.ServerLimits(runtime.max_queries))
    readiness = server.Readiness()
    keeper = Keeper(journal, board, apps) if journal else None
    others = intake, None, tables
    asgi = server.make_app(runtime, apps, board, readiness, keys, keeper, *others)
    http = connections.protocol(connections.most_connections(), lambda told: board.on_refused(told))
    config = uvicorn.Config(asgi, http=http, ws="none", log_config=None, lifespan="off")
    running = uvicorn.Server(config)
    serving = runtime.start(running.serve(sockets=[listener]))
    names = {name: None for app in apps.values() for name in app.engine_names}
    runtime.start(runtime.ensure(names)).result()
    readiness.ready = True
    if keeper is not None:
        runtime.loop.call_soon_threadsafe(keeper.start)
    try:
        yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", board, runtime)
    finally:
        runtime.start(board.drain(0)).result()
        running.should_exit = True
        serving.result(30)
        if keeper is not None:
            runtime.start(keeper.close()).result(30)
        listener.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Runtime() as runtime, serving(runtime, applications()) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=30) as client:
        yield client


def begun(
    board: Board,
    app: App,
    question: str,
    *,
    mode: str = "background",
    keeps: FiledWhen | None = None,
) -> Entry:
    """A query on the board, with nothing unusual. Call it on the board's loop."""
    return board.start(
        app, QuerySpec({"question": question}, tenant="default"), mode=mode, keeps=keeps
    )


def soon(true: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait until something holds."""
    until = monotonic() + limit_s
    while not true():
        assert monotonic() < until, "it never did"
        sleep(0.01)


@pytest.fixture
def two_tenants(tmp_path: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of two tenants of one server."""
    keys = KeyFile(tmp_path / "keys.json")
    red, blue = keys.create("alice", "red"), keys.create("bob", "blue")
    with Runtime() as runtime, serving(runtime, applications(), keys) as found:
        mine, other = (
            httpx.Client(base_url=found.url, headers={"authorization": f"Bearer {key}"})
            for key in (red, blue)
        )
        with mine, other:
            yield mine, other
