"""The `live` driver: the core on an asyncio loop, with real engines behind hosts.

Everything here runs on one loop. Events that arrive in one turn of the loop are handled together
before any engine's scheduling round, so primitives that become ready at once can share a batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final, cast

from teola.engine import Call, QueryContext, Request, Result, SequenceHandle
from teola.errors import InputError, OutputError, QueryCancelled, TeolaError
from teola.graph import DecodeParams, ToolParams
from teola.runtime.driver import Driver, Query
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live_batch import (
    GONE,
    NOTHING,
    as_retryable,
    fetched,
    lies_elsewhere,
    misshapen,
)
from teola.runtime.live_call import LiveCall
from teola.runtime.live_query import Ending, LiveQuery, Progress, Watcher
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
    InstanceChanged,
    InstanceDraining,
    Piece,
    QueueEvent,
    SetTimer,
    SliceCompleted,
    SliceFailed,
    State,
    Timer,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan

MEMORY_INTERVAL_S: Final = 0.25
"""How often a busy LLM instance is asked for its free KV memory. A vLLM computes 10 ms on that, so
up to a second apart while there is room for `AMPLE` times what may be in prefilling."""
AMPLE: Final = 4
PREFILLED: Final = DecodeParams(max_tokens=1)
"""What is asked of a prefilling that nothing is decoded from yet."""


class Live(Driver):
    """Runs queries on hosts. Use from its loop only."""

    def __init__(self, queues: Mapping[str, EngineQueue], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(queues)
        self.loop = loop
        self.hosts: dict[tuple[str, int], LocalHost] = {}
        self._inbox: deque[QueueEvent] = deque()
        self._scheduled = False
        self._draining: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._tasks: dict[tuple[str, int, int], tuple[asyncio.Task[None], Piece]] = {}
        self._watchers: dict[tuple[str, int], asyncio.Task[None]] = {}
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
        most_bytes: float = inf,
    ) -> Ending:
        """Run a query to its end. Cancelling this coroutine cancels the query. streams: the watcher
        is told tokens as they come, after which no try can be another's; else the whole text.
        most_bytes: what batches may have computed for it and is still to be read."""
        trace.plan = plan
        run = GraphRun(context.query_id, plan, tenant=context.tenant, app=trace.app)
        done: asyncio.Future[Ending] = self.loop.create_future()
        store = Store(plan, inputs)
        query = LiveQuery(context, plan, store, run, trace, done, watcher, streams, most_bytes)
        if context.deadline != float("inf"):
            query.timer = self.loop.call_at(
                context.deadline, self._late, context.query_id, DeadlineReached()
            )
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
        query.context.life.over = True
        if query.timer:
            query.timer.cancel()
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
        ending = Ending(command.state, outputs, error, command.missing, query.trace, failed)
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
        tasks += [*self._batches.values(), *self._watchers.values()]
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
        if self.core.queues[command.engine].limits.continuous:
            self._watch_memory(command, host)
            for piece in pieces:
                self._abortable(command, piece, self._call(host, command, piece))
        elif len(pieces) == 1 and host.interruptible:
            self._abortable(command, pieces[0], self._batch(host, command))
        else:
            self._batches[command.engine, command.batch] = self.loop.create_task(
                self._batch(host, command)
            )

    def _watch_memory(self, command: Dispatch, host: LocalHost) -> None:
        """While calls run on an engine that tells its free KV memory, ask it now and then."""
        key = (command.engine, command.instance)
        watcher = self._watchers.get(key)
        if host.tells_memory and (watcher is None or watcher.done()):
            self._watchers[key] = self.loop.create_task(self._report_memory(*key, host))

    async def _report_memory(self, engine: str, instance: int, host: LocalHost) -> None:
        queue, pause = self.core.queues[engine], MEMORY_INTERVAL_S
        while queue.instances[instance].entries:
            await asyncio.sleep(pause)
            try:
                free = await host.engine.capacity()  # type: ignore[attr-defined]
            except TeolaError:
                return  # calls on it will tell what is wrong
            if free is not None and queue.instances[instance].entries:
                self.post(InstanceChanged(engine, instance, free))
            ample = free is not None and free >= AMPLE * queue.limits.max_batch
            pause = min(2 * pause, 1.0) if ample else MEMORY_INTERVAL_S

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
        self.post(
            SliceFailed(
                command.engine,
                command.instance,
                command.batch,
                piece.run,
                piece.primitive,
                piece.lo,
                piece.hi,
                cause,
            )
        )

    def _complete(self, command: Dispatch, piece: Piece, counts: Mapping[str, int]) -> None:
        self._tasks.pop((piece.run, piece.primitive, command.batch), None)
        self.post(
            SliceCompleted(
                command.engine,
                command.instance,
                command.batch,
                piece.run,
                piece.primitive,
                piece.lo,
                piece.hi,
                counts,
            )
        )

    async def _batch(self, host: LocalHost, command: Dispatch) -> None:
        pieces = command.pieces
        results: Sequence[Result | Exception]
        try:
            results = await self._results(host, pieces)
        except asyncio.CancelledError:
            results = [QueryCancelled("aborted")] * len(pieces)
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            results = [as_retryable(error, len(pieces))] * len(pieces)
        self._batches.pop((command.engine, command.batch), None)
        if len(pieces) > 1:
            self._wake()
        for piece, result in zip(pieces, results, strict=True):
            self._slice(command, piece, result)

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

    def _slice(self, command: Dispatch, piece: Piece, result: Result | Exception) -> None:
        query = self.queries.get(piece.run)
        if query is not None and not isinstance(result, Exception):
            p = query.plan.primitives[piece.primitive]
            shown = query.plan.shown[piece.primitive] if type(p.params) is ToolParams else NOTHING
            result = misshapen(p, piece.hi - piece.lo, result, shown) or result
        if isinstance(result, Exception):
            retryable = isinstance(result, TeolaError) and result.retryable
            self._fail(command, piece, Cause(result, retryable))
            return
        _, i, lo, hi, _, total = piece
        counts: Mapping[str, int] = {}
        if query is not None:
            live = cast("LiveQuery", query)
            counts = live.store.put_slice(i, lo, hi, total, result)
            if live.store.held_bytes > live.most_bytes:
                self._fail(command, piece, Cause(_too_much(live.most_bytes)))
                return
            live.trace.ended(i, lo, self.loop.time())
            self._watch(live, piece, "finished")
        self._complete(command, piece, counts)

    def _watch(self, query: LiveQuery, piece: Piece, state: str) -> None:
        if query.watcher:
            p = query.plan.primitives[piece.primitive]
            items = piece.hi - piece.lo if p.batchable else 1
            query.watcher(Progress(p.id, p.op.value, p.engine, state, items))

    # --- LLM calls --------------------------------------------------------------------------

    async def _call(self, host: LocalHost, command: Dispatch, piece: Piece) -> None:
        i, query = piece.primitive, self.queries.get(piece.run)
        if query is None:
            self._fail(command, piece, Cause(GONE))
            return
        assert isinstance(query, LiveQuery)
        self._watch(query, piece, "started")
        generated = LiveCall(command, query, i, self.post, self.loop.time)
        try:
            if query.plan.members[i]:
                await generated.run(host, self._prepare(query, i, host.instance))
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
        call = self._prepare(query, i, host.instance)
        if call.parts:
            handle = await host.prefill(call)
        else:
            handle = call.prefix or SequenceHandle(host.engine.spec.name, host.instance, ())
        query.trace.ended(i, 0, self.loop.time())
        return query.store.put(i, {"sequence": replace(handle, instance=host.instance)})

    def _prepare(self, query: LiveQuery, i: int, instance: int) -> Call:
        """The call that primitive `i` leads, or its prefilling if it leads none."""
        members = query.plan.members[i]
        decode = query.plan.primitives[members[0]].params if members else PREFILLED
        assert isinstance(decode, DecodeParams)
        before = query.plan.sequence_of[i]
        prefix = query.store.values[before]["sequence"] if before >= 0 else None
        if prefix is not None and prefix.instance != instance:
            prefix = replace(prefix, state=None)  # of no use elsewhere: it is computed anew
        parts = query.store.prompt(i)
        return Call(query.context, parts, decode, prefix, query.plan.depth[i])


def _too_much(most: float) -> InputError:
    return InputError(
        f"what it computes for this query is more than the {most / 2**20:g} MiB that are held for "
        "one; send fewer documents at once"
    )
