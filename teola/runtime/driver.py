"""What both drivers share: performing the core's commands on queries and their stores.

A driver owns time and the engines. It feeds events to the core, performs the commands that come
back until there are none, and then lets the core hold a scheduling round.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from teola.graph import Op
from teola.graph.ops import PREFILLS
from teola.runtime.noting import note
from teola.runtime.store import Store
from teola.runtime.trace import Trace
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    Cause,
    Command,
    Completed,
    Control,
    Dispatch,
    Ejected,
    Failed,
    Finish,
    QueueEvent,
    Recovered,
    Release,
    Retried,
    RunEvent,
    SetTimer,
    Skipped,
    SliceFailed,
    Started,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan

log = logging.getLogger(__name__)


class Query:
    """One query in flight: its run, its values, its trace."""

    __slots__ = ("__dict__", "id", "plan", "run", "store", "trace")

    def __init__(self, id: str, plan: Plan, store: Store, run: GraphRun, trace: Trace) -> None:
        self.id, self.plan, self.store, self.run, self.trace = id, plan, store, run, trace


class Driver(ABC):
    """Runs a Core. Subclasses know the time and reach the engines."""

    def __init__(self, queues: Mapping[str, EngineQueue]) -> None:
        self.core = Core(queues, self._measure)
        self.queries: dict[str, Query] = {}
        self._todo: deque[Command] = deque()
        self._performing = False

    def begin(self, query: Query, now: float) -> None:
        """Start a query."""
        self.queries[query.id] = query
        query.run.admitted = query.trace.admitted
        self.core.add(query.run)
        self.tell(query.id, Started(query.store.counts()), now)

    def tell(self, run: str, event: RunEvent, now: float) -> None:
        """Give the core an event of a run and perform what follows."""
        self._perform(self.core.tell(run, event, now), now)

    def handle(self, event: QueueEvent, now: float) -> None:
        """Give the core an event of an engine and perform what follows."""
        self._perform(self.core.handle(event, now), now)

    def flush(self, now: float) -> None:
        """Scheduling rounds until no engine has anything more to send."""
        while self.core.unsettled:
            self._perform(self.core.flush(now), now)

    def _measure(self, run: str, i: int) -> int:
        store = self.queries[run].store
        if store.plan.primitives[i].op in PREFILLS:
            return store.prompt_tokens(i)
        return store.items(i)

    def _perform(self, commands: Sequence[Command], now: float) -> None:
        if not commands:
            return
        todo = self._todo
        todo.extend(commands)
        if self._performing:
            return
        self._performing = True
        try:
            while todo:
                self._one(todo.popleft(), now)
        finally:
            self._performing = False

    def _one(self, command: Command, now: float) -> None:
        kind = type(command)
        if kind is Dispatch:
            self._traced(command, now)  # type: ignore[arg-type]
            self.dispatch(command, now)  # type: ignore[arg-type]
        elif kind is Release:
            query = self.queries.get(command.run)  # type: ignore[union-attr]
            if query is not None:
                self.released(query, command.primitive)  # type: ignore[union-attr]
        elif kind is Control:
            self._control(command, now)  # type: ignore[arg-type]
        elif isinstance(command, Finish):
            query = self.queries.pop(command.run)
            query.trace.finish(command.state.value, now)
            self.finished(query, command, now)
        elif isinstance(command, Skipped):
            query = self.queries[command.run]
            query.store.drop(command.primitive)
            query.trace.ended(command.primitive, -1, now, "skipped")
        elif isinstance(command, AbortRequest):
            self.abort(command)
        elif isinstance(command, SetTimer):
            self.set_timer(command)
        elif isinstance(command, Ejected):
            self.ejected(command, now)
        elif isinstance(command, Recovered):
            self.recovered(command)
        else:
            assert isinstance(command, Retried), command

    def _traced(self, command: Dispatch, now: float) -> None:
        size = len(command.pieces)
        for piece in command.pieces:
            query = self.queries.get(piece.run)
            if query is not None:
                query.trace.sent(
                    piece.primitive,
                    piece.lo,
                    piece.hi,
                    piece.queued,
                    now,
                    command.instance,
                    command.batch,
                    size,
                )

    def _control(self, command: Control, now: float) -> None:
        query = self.queries.get(command.run)
        if query is None:
            return
        i = command.primitive
        query.trace.sent(i, 0, 1, now, now)
        try:
            result = self.decide(query, i)
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            self.undecided(query, i, error, now)
            return
        if isinstance(result, Coroutine):
            self.ponder(query, i, result)
        else:
            self.decided(query, i, result, now)

    def decide(
        self, query: Query, i: int
    ) -> Mapping[str, Any] | Coroutine[Any, Any, Mapping[str, Any]]:
        """Outputs of a control primitive; what is to be awaited for them goes to `ponder`."""
        return query.store.control(i)

    def decided(self, query: Query, i: int, result: Mapping[str, Any], now: float) -> None:
        """A control primitive gave its outputs."""
        query.trace.ended(i, 0, now)
        branch = result["branch"] if query.plan.primitives[i].op is Op.CONDITION else None
        self.tell(query.id, Completed(i, query.store.put(i, result), branch), now)

    def undecided(self, query: Query, i: int, error: Exception, now: float) -> None:
        """A control primitive failed."""
        query.trace.failed(i, 0, now, error)
        self.tell(query.id, Failed(i, Cause(error)), now)

    def released(self, query: Query, i: int) -> None:
        """The outputs of primitive `i` have had their last reader."""
        query.store.release(i)

    def failed(self, event: SliceFailed, now: float) -> None:
        """Note a failed slice in the trace and tell the core."""
        query = self.queries.get(event.run)
        if query is not None:
            query.trace.failed(event.primitive, event.lo, now, event.cause.error)
        self.handle(event, now)

    def ejected(self, command: Ejected, now: float) -> None:
        """An instance is left alone for a while."""
        note(
            log,
            logging.WARNING,
            "engine_ejected",
            "engine %(engine)s: instance %(instance)d is sent nothing for %(for_s).0f s: "
            "%(error_type)s",
            engine=command.engine,
            instance=command.instance,
            for_s=round(command.until - now, 1),
            error_type=type(command.cause.error).__name__,
        )

    def recovered(self, command: Recovered) -> None:
        """An instance that was left alone works again."""
        told = "engine %(engine)s: instance %(instance)d works again"
        note(log, logging.INFO, "engine_recovered", told, **command._asdict())

    def ponder(self, query: Query, i: int, work: Coroutine[Any, Any, Mapping[str, Any]]) -> None:
        """Await the outputs of control primitive `i`."""
        raise NotImplementedError

    @abstractmethod
    def dispatch(self, command: Dispatch, now: float) -> None:
        """Send a batch to an instance."""

    @abstractmethod
    def abort(self, command: AbortRequest) -> None:
        """Stop a slice if that is possible; its terminal event must come in either case."""

    @abstractmethod
    def set_timer(self, command: SetTimer) -> None:
        """Send Timer at the given time."""

    @abstractmethod
    def finished(self, query: Query, command: Finish, now: float) -> None:
        """A query has ended; its outputs can be read from the store now."""
