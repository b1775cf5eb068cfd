"""The `live` driver: the core on an asyncio loop, with real engines behind hosts.

Everything here runs on one loop. Events that arrive in one turn of the loop are handled together
before any engine's scheduling round, so primitives that become ready at once can share a batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from teola.engine import QueryContext, Request, Result, SequenceHandle
from teola.errors import OutputError, QueryCancelled, TeolaError, reason_of
from teola.graph import ToolParams
from teola.runtime.driver import Driver, Query
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live_batch import (
    GONE,
    NOTHING,
    as_retryable,
    completed,
    failure,
    fetched,
    lies_elsewhere,
    may_try_again,
    misshapen,
    too_much,
)
from teola.runtime.live_call import LiveCall, call_of
from teola.runtime.live_memory import MemoryWatch
from teola.runtime.live_query import Ending, LiveQuery, Progress, Watcher
from teola.runtime.nesting import Caller, Terms, calling
from teola.runtime.noting import working_for
from teola.runtime.store import Store
from teola.runtime.trace import Trace
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    Cancelled,
    Cause,
    DeadlineReached,
    Dispatch,
    Finish,
    InstanceDraining,
    InstanceWaits,
    Piece,
    QueueEvent,
    SetTimer,
    SliceFailed,
    State,
    Timer,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan

ON_ITS_OWN: Final = Terms()


class Live(Driver):
    """Runs queries on hosts. Use from its loop only."""

    def __init__(self, queues: Mapping[str, EngineQueue], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(queues)
        self.loop = loop
        self.hosts: dict[tuple[str, int], LocalHost] = {}
        self._inbox: deque[QueueEvent] = deque()
        self._scheduled = False
        self.outermost = 0
        """Queries in flight that are in no other."""
        self._draining: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._tasks: dict[tuple[str, int, int], tuple[asyncio.Task[None], Piece]] = {}
        self._memory = MemoryWatch(loop, self.post)
        self._batches: dict[tuple[str, int], asyncio.Task[None]] = {}

    # --- queries --------------------------------------------------------------------------

    async def execute(
        self,
        plan: Plan,
        inputs: Mapping[str, Any],
        context: QueryContext,
        trace: Trace,
        watcher: Watcher | None = None,
        streams: bool = True,
        terms: Terms = ON_ITS_OWN,
    ) -> Ending:
        """Run a query to its end. Cancelling this coroutine cancels the query. streams: the watcher
        is told tokens as they come, after which no try can be another's; else the whole text.
        terms: see LiveQuery."""
        trace.plan = plan
        run = GraphRun(context.query_id, plan, tenant=context.tenant, app=trace.app)
        done: asyncio.Future[Ending] = self.loop.create_future()
        store = Store(plan, inputs)
        query = LiveQuery(context, plan, store, run, trace, done, watcher, streams, terms)
        if context.deadline != float("inf"):
            query.timer = self.loop.call_at(
                context.deadline, self._late, context.query_id, DeadlineReached()
            )
        self.outermost += not terms.depth
        self.begin(query, self.loop.time())
        self._wake()
        try:
            return await done
        except asyncio.CancelledError:
            self._late(context.query_id, Cancelled())
            raise

    def _late(self, id: str, event: Cancelled | DeadlineReached) -> None:
        if id in self.queries:
            self.tell(id, event, self.loop.time())
            self._wake()

    def finished(self, query: Query, command: Finish, now: float) -> None:
        assert isinstance(query, LiveQuery)
        self.outermost -= not query.terms.depth
        query.left_alone()
        graph = query.plan.graph
        outputs = {name: query.store.read(ref) for name, ref in graph.outputs.items()}
        if command.state is State.OK:
            query.tell_whole(outputs)
        query.trace.cut = bool(query.cut) and any(
            query.plan.head[i] in query.cut for i in query.wrote()
        )
        error = command.cause.error if command.cause else None
        failed = query.plan.primitives[command.failed] if command.failed >= 0 else None
        query.store = Store(query.plan, {})
        reasons = (reason_of(cause.error) for cause in command.reasons)
        why = dict(zip(command.missing, reasons, strict=True))
        ending = Ending(command.state, outputs, error, command.missing, query.trace, failed, why)
        if not query.done.done():
            query.done.set_result(ending)

    async def drain(self, engine: str, instance: int) -> None:
        """Send an instance nothing more, and wait until what it has is done."""
        self.post(InstanceDraining(engine, instance))
        if self.core.queues[engine].instances[instance].entries:
            empty = self._draining[engine, instance] = self.loop.create_future()
            await empty

    async def stop(self) -> None:
        """Stop all work that was dispatched, when no query wants it any more."""
        tasks = [task for task, _ in self._tasks.values()]
        tasks += [*self._batches.values(), *self._memory.tasks()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- time and events --------------------------------------------------------------------

    def post(self, event: QueueEvent) -> None:
        """Handle an event: at once if nothing else is running, which could end in the same turn of
        the loop and share a batch with what becomes ready; else at the end of this turn."""
        self._inbox.append(event)
        if self._tasks or self._batches or self._scheduled:
            self._wake()
        else:
            self._scheduled = True
            self._drain()

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._drain)

    def _drain(self) -> None:
        now = self.loop.time()
        inbox = self._inbox
        try:
            while inbox:
                event = inbox.popleft()
                if type(event) is SliceFailed:
                    self.failed(event, now)
                else:
                    self.handle(event, now)
            self.flush(now)
            if self._draining:
                self._note_drained()
        finally:
            self._scheduled = False
            if inbox:
                self._wake()

    def _note_drained(self) -> None:
        for (engine, i), empty in list(self._draining.items()):
            if not self.core.queues[engine].instances[i].entries:
                del self._draining[engine, i]
                empty.set_result(None)

    def set_timer(self, command: SetTimer) -> None:
        self.loop.call_at(command.at, self.post, Timer(command.engine))

    # --- dispatching ------------------------------------------------------------------------

    def dispatch(self, command: Dispatch, now: float) -> None:
        host = self.hosts[command.engine, command.instance]
        pieces = command.pieces
        queue = self.core.queues[command.engine]
        if queue.limits.continuous:
            self._memory.watch(queue, command.instance, host)
            for piece in pieces:
                self._abortable(command, piece, self._call(host, command, piece))
        elif len(pieces) == 1 and host.interruptible:
            self._abortable(command, pieces[0], self._batch(host, command))
        else:
            self._batches[command.engine, command.batch] = self.loop.create_task(
                self._batch(host, command)
            )

    def _abortable(self, command: Dispatch, piece: Piece, work: Coroutine[Any, Any, None]) -> None:
        key = (piece.run, piece.primitive, command.batch)
        self._tasks[key] = (self.loop.create_task(work), piece)

    def abort(self, command: AbortRequest) -> None:
        """LLM calls stop alone; of batches only those that hold nothing else can be stopped."""
        found = self._tasks.get((command.run, command.primitive, command.batch))
        if found is not None:
            found[0].cancel()
            found[0].add_done_callback(lambda _: self._ensure_end(command, found[1]))

    def _ensure_end(self, command: AbortRequest, piece: Piece) -> None:
        """A task that was cancelled before its first step has told nobody."""
        if (command.run, command.primitive, command.batch) in self._tasks:
            self._fail(command, piece, Cause(QueryCancelled("aborted")))

    def _fail(self, command: Dispatch | AbortRequest, piece: Piece, cause: Cause) -> None:
        self._tasks.pop((piece.run, piece.primitive, command.batch), None)
        self.post(failure(command, piece, cause))

    def _complete(self, command: Dispatch, piece: Piece, counts: Mapping[str, int]) -> None:
        self._tasks.pop((piece.run, piece.primitive, command.batch), None)
        self.post(completed(command, piece, counts))

    async def _batch(self, host: LocalHost, command: Dispatch) -> None:
        pieces = command.pieces
        caller = self._caller(command)
        calling.set(caller)
        results: Sequence[Result | Exception]
        try:
            results = await self._results(host, pieces)
        except asyncio.CancelledError:
            results = [QueryCancelled("aborted")] * len(pieces)
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            results = [as_retryable(error, len(pieces))] * len(pieces)
        if caller is not None:
            caller.end()
        told = caller is not None and caller.told
        self._batches.pop((command.engine, command.batch), None)
        if len(pieces) > 1:
            self._wake()
        for piece, result in zip(pieces, results, strict=True):
            self._slice(command, piece, result, told)

    def _caller(self, command: Dispatch) -> Caller | None:
        """On whose behalf a batch runs. One of several pieces runs on nobody's alone."""
        piece, *others = command.pieces
        query = self.queries.get(piece.run)
        if others or query is None:
            return None
        assert isinstance(query, LiveQuery)
        return Caller(query, piece.primitive, self._lend, (command.engine, command.instance))

    def _lend(self, place: tuple[str, int] | None, change: int) -> None:
        """A batch leaves its place on this instance to others, or takes it back."""
        if place is not None:
            self.loop.call_soon_threadsafe(self.post, InstanceWaits(*place, change))

    async def _results(
        self, host: LocalHost, pieces: Sequence[Piece]
    ) -> Sequence[Result | Exception]:
        """What the engine makes of the pieces whose queries are still there."""
        requests = [self._request(piece, host.keeps) for piece in pieces]
        wanted = [r for r in requests if r is not None]
        if not host.keeps:
            wanted = [await fetched(r) if lies_elsewhere(r) else r for r in wanted]
        found = await host.execute(wanted) if wanted else ()
        if len(found) != len(wanted):
            raise OutputError(f"the engine gave {len(found)} results for {len(wanted)} requests")
        if len(wanted) == len(pieces):
            return found
        left = iter(found)
        return [GONE if r is None else next(left) for r in requests]

    def _request(self, piece: Piece, keeps: bool) -> Request | None:
        query = self.queries.get(piece.run)
        if query is None:
            return None
        assert isinstance(query, LiveQuery)
        p = query.plan.primitives[piece.primitive]
        lo, hi = (piece.lo, piece.hi) if p.batchable else (0, None)
        inputs = query.store.resolve(piece.primitive, lo, hi)
        self._watch(query, piece, "started")
        key = f"{piece.run}/{p.id}/{piece.lo}"
        keep = query.plan.keepable[piece.primitive] if keeps else NOTHING
        return Request(p.op, p.params, inputs, query.context, key, keep)

    def _slice(
        self, command: Dispatch, piece: Piece, result: Result | Exception, told: bool
    ) -> None:
        """A piece came back. told: some of its text has left for the client."""
        query = self.queries.get(piece.run)
        if query is not None and not isinstance(result, Exception):
            p = query.plan.primitives[piece.primitive]
            shown = query.plan.shown[piece.primitive] if type(p.params) is ToolParams else NOTHING
            result = misshapen(p, piece.hi - piece.lo, result, shown) or result
        if isinstance(result, Exception):
            done = query.plan.primitives[piece.primitive] if query is not None else None
            again = done is not None and not told and may_try_again(done, result)
            self._fail(command, piece, Cause(result, again))
            return
        _, i, lo, hi, _, total = piece
        counts: Mapping[str, int] = {}
        if query is not None:
            assert isinstance(query, LiveQuery)
            counts = query.store.put_slice(i, lo, hi, total, result)
            if query.store.held_bytes > query.terms.most_bytes:
                self._fail(command, piece, Cause(too_much(query.terms.most_bytes)))
                return
            query.trace.ended(i, lo, self.loop.time())
            self._watch(query, piece, "finished")
        self._complete(command, piece, counts)

    def _watch(self, query: LiveQuery, piece: Piece, state: str) -> None:
        if query.watcher:
            p = query.plan.primitives[piece.primitive]
            items = piece.hi - piece.lo if p.batchable else 1
            query.watcher(Progress(p.id, p.op.value, p.engine, state, items))

    # --- Conditions -----------------------------------------------------------------------

    def ponder(self, query: Query, i: int, work: Coroutine[Any, Any, Mapping[str, Any]]) -> None:
        assert isinstance(query, LiveQuery)
        task = self.loop.create_task(self._ponder(query, i, work))
        query.deciding.add(task)
        task.add_done_callback(query.deciding.discard)

    async def _ponder(
        self, query: LiveQuery, i: int, work: Coroutine[Any, Any, Mapping[str, Any]]
    ) -> None:
        caller = Caller(query, i, self._lend)
        calling.set(caller)
        working_for.set((query.id,))
        try:
            result = await work
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            self.undecided(query, i, error, self.loop.time())
        else:
            self.decided(query, i, result, self.loop.time())
        finally:
            caller.end()
        self._wake()

    # --- LLM calls --------------------------------------------------------------------------

    async def _call(self, host: LocalHost, command: Dispatch, piece: Piece) -> None:
        i, query = piece.primitive, self.queries.get(piece.run)
        if query is None:
            self._fail(command, piece, Cause(GONE))
            return
        assert isinstance(query, LiveQuery)
        calling.set(None)
        self._watch(query, piece, "started")
        generated = LiveCall(command, query, i, self.post, self.loop.time)
        try:
            if query.plan.members[i]:
                await generated.run(host, call_of(query, i, host.instance))
                counts: Mapping[str, int] = {}
            else:
                counts = await self._prefill(host, query, i)
        except asyncio.CancelledError:
            self._fail(command, piece, Cause(QueryCancelled("aborted")))
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            retryable = isinstance(error, TeolaError) and error.retryable and not generated.sent
            self._fail(command, piece, Cause(error, retryable))
        else:
            self._watch(query, piece, "finished")
            self._complete(command, piece, counts)

    async def _prefill(self, host: LocalHost, query: LiveQuery, i: int) -> Mapping[str, int]:
        call = call_of(query, i, host.instance)
        if call.parts:
            handle = await host.prefill(call)
        else:
            handle = call.prefix or SequenceHandle(host.engine.spec.name, host.instance, ())
        query.trace.ended(i, 0, self.loop.time())
        return query.store.put(i, {"sequence": replace(handle, instance=host.instance)})
