"""RowRun: rows of one instruction as a run, beside graphs and behind the same door.

It keeps some windows of rows in its engine's queue and asks its source for the next as one ends, so
a source of any length is read as fast as the engine answers, and no faster.

    Started ──▶ RowsWanted, for each of `most` windows
                  │ RowsCame ──▶ Submit ── ... ──Completed──▶ RowsWanted ── ...
                  ╰ SourceEnded ──▶ Finish, after the last window

A run may `warm`: its first window is one row, and the others are wanted once that has given its
first token, so that what all prompts begin with is computed once.

What a row says or is answered it does not know, nor how many rows there will be. Policies order
queries by how long they will yet take, so its windows say that they take `LEFT_S` from now on:
whoever comes within that time goes before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, overload

from teola.errors import BudgetSpent, DeadlineExceeded, QueryCancelled
from teola.graph import Op
from teola.policies.asker import Asker
from teola.policies.batching.critical_path import LENGTH
from teola.policies.work import Estimate, WorkSpec
from teola.schedule.events import (
    Cancelled,
    Cause,
    Completed,
    DeadlineReached,
    Failed,
    Finish,
    Outbox,
    RowsBegan,
    RowsCame,
    RowsWanted,
    RunEvent,
    SourceEnded,
    Started,
    State,
    Submit,
    Withdraw,
)
from teola.schedule.run import AskQueues

OPEN: Final = 3
"""Windows at once, at least; where there are more instances, one more than there are of those."""
RETRIES: Final = 2
"""Further tries of a row, as of any LLM call."""
LEFT_S: Final = 3600.0
"""How long a run of rows counts as having still to go: nobody knows how many rows will come. As any
query, a window is overtaken only by what comes that much later less its own length, so that it does
not starve."""


class RowSpecs(Sequence[WorkSpec]):
    """What queues and policies are told of the open windows, by their number.

    engine: the engine that is asked.
    component: its name in traces.
    interactive: whether rows go like any other query, and leave no places to those.
    output: tokens that an answer may have.
    """

    def __init__(self, engine: str, component: str, *, interactive: bool, output: int) -> None:
        self.engine = engine
        self._component, self._interactive, self._output = component, interactive, output
        self._open: dict[int, WorkSpec] = {}
        self._count = 0

    @property
    def specs(self) -> Sequence[WorkSpec]:
        """See Run."""
        return self

    def add(self, row_tokens: int, age_s: float) -> int:
        """Another window, of a run that is so old; its number."""
        i, self._count = self._count, self._count + 1
        total_s = 0.0 if self._interactive else age_s / LENGTH + LEFT_S
        self._open[i] = WorkSpec(
            engine=self.engine,
            op=Op.PREFILLING,
            component=self._component,
            lane=None,
            cuttable=True,
            depth=0,
            retries=RETRIES,
            estimate=Estimate(total_s=total_s),
            planned_tokens=row_tokens,
            planned_output=self._output,
            most_output=self._output,
            rows=True,
            yields=not self._interactive,
        )
        return i

    def drop(self, i: int) -> None:
        """A window is over."""
        del self._open[i]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[WorkSpec]:
        return iter(self._open.values())

    @overload
    def __getitem__(self, i: int) -> WorkSpec: ...

    @overload
    def __getitem__(self, i: slice) -> Sequence[WorkSpec]: ...

    def __getitem__(self, i: int | slice) -> WorkSpec | Sequence[WorkSpec]:
        if isinstance(i, slice):
            return [self._open[k] for k in range(*i.indices(self._count)) if k in self._open]
        return self._open[i]


class RowRun:
    """State of one run of rows; see Run.

    open: rows of each window that is in its engine's queue, by its number.
    failed: whether a row was not answered. most: windows at once. warming: the first window is to
    have one row, and there is no other yet.
    """

    def __init__(
        self,
        id: str,
        plan: RowSpecs,
        asker: Asker,
        *,
        began: float = 0.0,
        deadline: float = inf,
        most: int = OPEN,
        warm: bool = False,
    ) -> None:
        self.id, self.plan, self.asker, self.began = id, plan, asker, began
        self.admitted, self.deadline = began, deadline
        self.behind_s = self.longer_s = 0.0
        self.state: State | None = None
        self.open: dict[int, int] = {}
        self.failed, self.most, self.warming = False, most, warm
        self._wanted = 0
        self._ended = False
        self._out: Outbox = []
        self._ask: AskQueues = self._out.append

    @property
    def engine(self) -> str:
        """Name of the engine that is asked."""
        return self.plan.engine

    def attach(self, out: Outbox, ask: AskQueues) -> None:
        """See Run."""
        self._out, self._ask = out, ask

    def handle(self, event: RunEvent, now: float) -> None:
        """See Run."""
        if self.state is None:
            _HANDLERS[type(event)](self, event, now)

    def _started(self, event: Started, now: float) -> None:
        self._want()

    def _came(self, event: RowsCame, now: float) -> None:
        self._wanted -= 1
        i = self.plan.add(event.row_tokens, now - self.began)
        self.open[i] = event.count
        self._ask(Submit(self.id, i, -1, rows=event))

    def _began(self, event: RowsBegan, now: float) -> None:
        self.warming = False
        self._want()

    def _source_ended(self, event: SourceEnded, now: float) -> None:
        if event.error is not None:
            # What a budget still paid for is answered: that is a part, and no failure.
            spent = isinstance(event.error, BudgetSpent)
            self._stop(State.PARTIAL if spent else State.FAILED, Cause(event.error))
            return
        self._ended, self._wanted = True, 0
        self._finish_if_over()

    def _completed(self, event: Completed, now: float) -> None:
        del self.open[event.primitive]
        self.plan.drop(event.primitive)
        self.failed |= bool(event.counts["failed"])
        self.warming = False
        self._want()
        self._finish_if_over()

    def _window_failed(self, event: Failed, now: float) -> None:
        """No instance is left, or a policy is broken: that is nothing of a row."""
        self.open.pop(event.primitive, None)
        self._stop(State.FAILED, event.cause)

    def _cancelled(self, event: Cancelled, now: float) -> None:
        self._stop(State.CANCELLED, Cause(QueryCancelled(f"rows {self.id} were cancelled")))

    def _deadline(self, event: DeadlineReached, now: float) -> None:
        why = f": {event.waited}" if event.waited else ""
        told = f"rows {self.id} did not finish before their deadline{why}"
        self._stop(State.DEADLINE, Cause(DeadlineExceeded(told)))

    def _want(self) -> None:
        """Ask for as many windows as there is room for."""
        most = 1 if self.warming else self.most
        while not self._ended and len(self.open) + self._wanted < most:
            self._wanted += 1
            self._out.append(RowsWanted(self.id))

    def _finish_if_over(self) -> None:
        if self._ended and not self.open:
            self._finish(State.PARTIAL if self.failed else State.OK, None)

    def _stop(self, state: State, cause: Cause) -> None:
        for i in self.open:
            self._ask(Withdraw(self.id, i))
        self.open.clear()
        self._finish(state, cause)

    def _finish(self, state: State, cause: Cause | None) -> None:
        self.state = state
        self._out.append(Finish(self.id, state, cause, ()))


def windows(instances: int) -> int:
    """How many are open where there are so many instances."""
    return max(OPEN, instances + 1)


_HANDLERS: Final[Mapping[type, Callable[[RowRun, Any, float], None]]] = {
    Started: RowRun._started,
    RowsCame: RowRun._came,
    RowsBegan: RowRun._began,
    SourceEnded: RowRun._source_ended,
    Completed: RowRun._completed,
    Failed: RowRun._window_failed,
    Cancelled: RowRun._cancelled,
    DeadlineReached: RowRun._deadline,
}
