"""RowsTask: one run of rows in a runtime, from the call of `Runtime.ask_rows` to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from math import inf
from typing import Any, Protocol
from uuid import uuid4

from teola.engine import QueryContext
from teola.errors import TeolaError
from teola.policies.asker import Asker
from teola.policies.ledger import Ledger
from teola.price import Price
from teola.runtime.collector import seldom_collecting
from teola.runtime.live.row_budget import RowBudget
from teola.runtime.live.row_source import AnswerSink, RowSource
from teola.runtime.live.sent_rows import LiveRows
from teola.runtime.observe.trace import Trace
from teola.runtime.rows import OnAnswers, Row, RowPriority, RowsCall, RowsEnd
from teola.schedule.events import State
from teola.schedule.row_run import RowRun, RowSpecs, windows


class RowsHome(Protocol):
    """What is needed of a runtime."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def live(self) -> Any: ...

    def admit(self) -> None: ...

    def price_of(self, name: str) -> Price | None: ...

    async def ensure(self, names: Iterable[str], optional: Collection[str] = ()) -> None: ...


class RowsTask:
    """A run of rows that somebody asked for; see Runtime.ask_rows. id: its name in the core."""

    def __init__(
        self,
        home: RowsHome,
        call: RowsCall,
        rows: Iterator[Row],
        on_answers: OnAnswers,
        tenant: str,
        app: str,
        program: str,
        priority: RowPriority,
        budget: Ledger | None,
        price: Price | None = None,
    ) -> None:
        self.id = str(uuid4())
        self._home, self._call, self._rows, self._on_answers = home, call, rows, on_answers
        self._tenant, self._app = tenant or "default", app
        self._program, self._priority = program, priority
        self._budget, self._price = budget, price
        self._cancelled = False
        self._error: Exception | None = None

    async def run(self, deadline_s: float | None) -> RowsEnd:
        """To its end. Raises what `on_answers` raised."""
        home, loop = self._home, self._home.loop
        began = loop.time()
        deadline = inf if deadline_s is None else began + deadline_s
        try:
            async with asyncio.timeout_at(None if deadline == inf else deadline):
                await home.ensure([self._call.engine])
            home.admit()
        except TimeoutError:
            return _unasked(State.DEADLINE, loop.time() - began, None)
        except TeolaError as error:
            return _unasked(State.FAILED, loop.time() - began, error)
        if self._cancelled:
            return _unasked(State.CANCELLED, loop.time() - began, None)
        asked = self._asked(deadline)
        with seldom_collecting():
            end: RowsEnd = await home.live.ask_rows(asked)
        if self._error is not None:
            raise self._error
        return end

    def _asked(self, deadline: float) -> LiveRows:
        live, call, loop = self._home.live, self._call, self._home.loop
        now, id = loop.time(), self.id
        program = self._program or id
        asker = Asker(self._tenant, self._app, program, now, budget=self._budget)
        specs = RowSpecs(
            call.engine,
            "rows",
            interactive=self._priority == "interactive",
            output=call.decode.max_tokens,
        )
        most = windows(len(live.core.queues[call.engine].instances))
        wanted_by = deadline if self._priority == "interactive" else inf  # others do not hurry
        run = RowRun(id, specs, asker, began=now, deadline=wanted_by, most=most, warm=call.warm)
        context = QueryContext(id, self._tenant, deadline, part_of=self._program)

        def look() -> None:
            live.asked_rows.look(asked)

        def drained() -> None:
            loop.call_soon_threadsafe(look)

        source = RowSource(self._rows, loop, look)
        sink = AnswerSink(self._on_answers, drained, self._broke)
        trace = Trace(id, self._app, None, now)
        done = loop.create_future()
        asked = LiveRows(
            run, trace, context, call.instruction, call.decode, source, sink, done, call.shared
        )
        if self._budget is not None:
            price = self._price or self._home.price_of(call.engine)
            asked.budget = RowBudget(self._budget, price, call.decode.max_tokens)
        return asked

    def cancel(self) -> None:
        """See RowsHandle; from any thread."""
        self._cancelled = True
        loop = self._home.loop
        loop.call_soon_threadsafe(self._home.live.cancel_rows, self.id)

    def _broke(self, error: Exception) -> None:
        self._error = error
        self.cancel()


def _unasked(state: State, seconds: float, error: Exception | None) -> RowsEnd:
    return RowsEnd(state.value, 0, 0, 0, 0, 0, 0, seconds, error)
