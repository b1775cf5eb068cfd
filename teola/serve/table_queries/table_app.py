"""The application of the server's own that answers queries over tables.

Being an application, its queries are listed, watched, bounded, cancelled, drained and kept in the
journal as all others are: the journal has their text and options as inputs. What it asks of
language models is kept in the answers table as it comes, so a query that is begun again, here or on
another server, goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from teola.app import App
from teola.errors import InputError
from teola.query.journal.lost import JournalLost
from teola.query.result import Result
from teola.runtime.engines import EngineConfig
from teola.runtime.live.nesting import calling
from teola.runtime.python_engine import PythonEngine
from teola.runtime.runtime import Runtime
from teola.serve.board import Board
from teola.serve.table_queries.registered_tables import RegisteredTables
from teola.serve.table_queries.table_run import APP, TableAsker, TableRun
from teola.tables.answers_file import AnswersInUse
from teola.threads import Threads
from teola.workflow.components import component

ENGINE: Final = "tables"
"""What its one component runs on: so that queries which wait take no place of other functions."""
WAITING: Final = 4096
"""Queries over tables at once, with those that wait for their turn."""
GRACE_S: Final = 1.0
"""After which DuckDB is interrupted in the midst of a statement of a query that nobody wants."""
CLOSE_S: Final = 5.0
"""How long the end of a server waits for runs to write what has come."""
NOTED: Final = 512
"""Queries of which it is held that they have got on since their server died."""
AGAIN_S: Final = 0.5
"""Before answers are looked for again that another process writes."""


class TablesEngine(PythonEngine):
    """Runs the component of TableApp. wound_up: waits for what goes on in threads."""

    def __init__(self, name: str, wound_up: Callable[[], Awaitable[None]]) -> None:
        super().__init__(name, WAITING)
        self._wound_up = wound_up

    async def close(self) -> None:
        """See PythonEngine."""
        await self._wound_up()
        await super().close()


class TableApp(App):
    """Takes `query` and `options` (by the names of RunLimits); gives `table`, the result as `teola
    sql --json` prints it. board: of its queries. served: names of applications. Raises InputError
    if one is this one's, or an engine has its engine's name."""

    def __init__(
        self, runtime: Runtime, tables: RegisteredTables, board: Board, served: Container[str] = ()
    ) -> None:
        if APP in served:
            raise InputError(f"no application may be called {APP!r}, as the server's own is")
        if ENGINE in runtime.configs:
            raise InputError(
                f"engine {ENGINE!r} has the name of what queries over tables run on: rename it, or "
                "serve no [tables.NAME]"
            )
        runtime.configs = {**runtime.configs, ENGINE: EngineConfig(self.tables_engine)}
        self.tables, self._asks, self._board = tables, runtime, board
        self._threads = Threads("tables")
        self._places = asyncio.Semaphore(tables.limits.queries)
        self._winding: set[asyncio.Future[None]] = set()
        self._gets_on: dict[str, asyncio.Task[None]] = {}
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        super().__init__(
            APP,
            component(self._answer, outputs="table", name="tables", pure=True, engine=ENGINE),
            inputs={"query": "text", "options": "any"},
            outputs={"table": "table"},
            description="Answers SQL over tables",
            runtime=runtime,
        )

    def judged(self, result: Result) -> Result:
        """See Application: it is partial where rows have errors or a budget is spent."""
        table = result.outputs.get("table")
        if result.state != "ok" or not isinstance(table, Mapping):
            return result
        return replace(result, state=table["state"])

    def tables_engine(self, name: str) -> PythonEngine:
        """What its component runs on."""
        return TablesEngine(name, self.wound_up)

    async def wound_up(self) -> None:
        """Wait until runs that nobody waits for have written what came, CLOSE_S at most."""
        if self._winding:
            await asyncio.wait(set(self._winding), timeout=CLOSE_S)

    async def _answer(self, query: str, options: Any) -> dict[str, Any]:
        """The table that a query gives."""
        caller, loop = calling.get(), asyncio.get_running_loop()
        assert caller is not None, "a query over tables is a query of its own"
        around = caller.query
        id, tenant, deadline = around.id, around.context.tenant, around.context.deadline
        entry = self._board.running.get(id)
        since = None
        if entry is not None and entry.run > 1:
            since = datetime.fromtimestamp(entry.created, UTC).replace(tzinfo=None)

        def tell(kind: str, told: Mapping[str, Any]) -> None:
            loop.call_soon_threadsafe(self._tell, id, kind, told)

        async with AsyncExitStack() as places:
            await places.enter_async_context(self._turn(tenant))
            await places.enter_async_context(self._places)
            while True:
                asker = TableAsker(
                    tenant, around.run.asker.budget, max(deadline - loop.time(), 0.001), since
                )
                run = TableRun(self.tables, self._asks, query, options, asker, tell)
                task = asyncio.ensure_future(self._threads.run(run.work))
                try:
                    return cast("dict[str, Any]", await asyncio.shield(task))
                except AnswersInUse:  # such as of a server that is about to end
                    await asyncio.sleep(AGAIN_S)
                except asyncio.CancelledError:
                    self._wind_up(run, task, places.pop_all())
                    raise
                finally:
                    around.trace.rows_took(run.took)

    @asynccontextmanager
    async def _turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for the tenant's answers: one query at a time writes a file of them."""
        path = self.tables.answers.path(tenant)
        if path is None:
            yield
            return
        lock = self._turns.setdefault(str(path), asyncio.Lock())
        async with lock:
            yield

    def _wind_up(self, run: TableRun, task: asyncio.Future[Any], places: AsyncExitStack) -> None:
        """End a run that nobody waits for. It writes what has come, and others wait for that; its
        query does not: it may be begun again meanwhile, and then waits here for its turn."""

        async def wait() -> None:
            async with places:
                while not task.done():
                    await asyncio.wait({task}, timeout=GRACE_S)
                    if not task.done():
                        run.interrupt()
                if not task.cancelled():
                    task.exception()  # it has been heard of

        run.stop()
        winding = asyncio.ensure_future(wait())
        self._winding.add(winding)
        winding.add_done_callback(self._winding.discard)

    def _tell(self, id: str, kind: str, told: Mapping[str, Any]) -> None:
        entry = self._board.running.get(id)
        if entry is None or entry.result is not None:
            return
        entry.tell(kind, told)
        if entry.run > 1 and told.get("ended") and id not in self._gets_on:
            # A long query meets many restarts, and each begins where the last one ended.
            self._gets_on[id] = asyncio.ensure_future(self._note_alive(id))
            while len(self._gets_on) > NOTED:
                del self._gets_on[next(iter(self._gets_on))]

    async def _note_alive(self, id: str) -> None:
        journal = self._board.desk.journal
        if journal is not None:
            with suppress(JournalLost):
                await journal.gets_on(id)
