"""The `live` driver: the core on an asyncio loop, with real engines behind hosts.

Everything here runs on one loop. Events that arrive in one turn of the loop are handled together
before any engine's scheduling round, so primitives that become ready at once can share a batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Final

from teola.engine import QueryContext, Request, Result
from teola.errors import QueryCancelled, TeolaError, reason_of
from teola.graph import Growth, ToolParams
from teola.learning import Learner
from teola.policies.work import Size, Work
from teola.runtime.driver import Driver
from teola.runtime.growing import Place, Tally
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.batch import (
    GONE,
    NOTHING,
    as_retryable,
    may_try_again,
    misshapen,
    results_of,
    too_much,
    wrong_number,
)
from teola.runtime.live.call import LiveCall, call_of
from teola.runtime.live.entering import entered
from teola.runtime.live.memory import MemoryWatch
from teola.runtime.live.nesting import Caller, Terms, calling
from teola.runtime.live.prefixes import PrefixWatch
from teola.runtime.live.query import Ending, LiveQuery, Watcher, describe, growth_of, part_of
from teola.runtime.live.sequences import KeptSequences
from teola.runtime.live.sizing import Sizing
from teola.runtime.observe.noting import working_for
from teola.runtime.observe.trace import Trace
from teola.runtime.store import Store
from teola.schedule.events import (
    AbortRequest,
    BatchCompleted,
    CallEnded,
    Cancelled,
    Cause,
    DeadlineReached,
    Dispatch,
    Finish,
    InstanceDraining,
    InstanceWaits,
    Measure,
    Outcome,
    QueueEvent,
    SetTimer,
    State,
    Timer,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan

ON_ITS_OWN: Final = Terms()
ROUNDS, ROUNDS_S = 64, 0.002
"""Scheduling rounds in one turn of the loop, which others wait for."""


class Live(Driver[LiveQuery]):
    """Runs queries on hosts. Use from its loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, learner: Learner | None = None) -> None:
        super().__init__({}, learner)
        self.loop = loop
        self.hosts: dict[tuple[str, int], LocalHost] = {}
        self._inbox: deque[QueueEvent] = deque()
        self._scheduled = False
        self.outermost = 0
        """Queries in flight that are in no other."""
        self._draining: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._context = copy_context()
        """What tasks inherit, and not the context of whoever happened to wake the loop."""
        self._tasks: dict[tuple[str, int, int], asyncio.Task[None]] = {}
        self._memory = MemoryWatch(loop, self.post)
        self.prefixes = PrefixWatch(loop, self.post)
        self._sizing = Sizing(loop, self.hosts, self._inbox.append, self._wake)
        self.sequences = KeptSequences()
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
        id = context.query_id
        run = GraphRun(id, plan, tenant=context.tenant, app=trace.app, program=context.program)
        done: asyncio.Future[Ending] = self.loop.create_future()
        store = Store(plan, inputs)
        tally = Tally(terms.most_parts, terms.most_primitives, terms.most_tokens)
        query = LiveQuery(context, plan, store, run, trace, done, watcher, streams, terms, tally)
        if context.deadline != float("inf"):
            query.timer = self.loop.call_at(context.deadline, self._late, id, DeadlineReached())
        self.outermost += not terms.depth
        self.begin(query, self.loop.time())
        self._wake()
        try:
            return await done
        except asyncio.CancelledError:
            self._late(id, Cancelled())
            raise

    def _late(self, id: str, event: Cancelled | DeadlineReached) -> None:
        if id in self.queries:
            self.tell(id, event, self.loop.time())
            self._wake()

    def growth(self, query: LiveQuery, i: int) -> Growth:
        return growth_of(query, i)

    def made_part(
        self, around: LiveQuery, id: str, plan: Plan, place: Place, now: float
    ) -> LiveQuery:
        self._wake()
        return part_of(around, id, plan, place, now)

    def finished(self, query: LiveQuery, command: Finish, now: float) -> None:
        self.outermost -= query.place is None and not query.terms.depth
        query.left_alone()
        graph = query.plan.graph
        outputs = {name: query.store.read(ref) for name, ref in graph.outputs.items()}
        if command.state is State.OK and query.place is None:
            query.tell_whole(outputs)
        heads = (query.plan.head[i] for i in query.wrote())
        query.trace.cut = bool(query.cut) and not query.cut.isdisjoint(heads)
        error = command.cause.error if command.cause else None
        failed = query.plan.primitives[command.failed] if command.failed >= 0 else None
        for values in query.store.values.values():
            self.forgotten(values)
        query.store = Store(query.plan, {})
        if query.place is not None:
            told = describe(error, failed) if error is not None and failed is not None else error
            self.parts.ended(query, command.state, outputs, told, now)
            self._wake()
            return
        reasons = (reason_of(cause.error) for cause in command.reasons)
        why = dict(zip(command.missing, reasons, strict=True))
        ending = Ending(command.state, outputs, error, command.missing, query.trace, failed, why)
        if query.done is not None and not query.done.done():
            query.done.set_result(ending)

    def forgotten(self, outputs: Mapping[str, Any] | None) -> None:
        self.sequences.let_go(outputs)

    async def drain(self, engine: str, instance: int) -> None:
        """Send an instance nothing more, and wait until what it has is done."""
        self.post(InstanceDraining(engine, instance))
        if self._entries(engine, instance):
            empty = self._draining[engine, instance] = self.loop.create_future()
            await empty

    def _entries(self, engine: str, instance: int) -> int:
        return self.core.queues[engine].instances[instance].entries

    async def stop(self) -> None:
        """Stop all work that was dispatched, when no query wants it any more."""
        tasks = [*self._tasks.values(), *self._batches.values(), *self._memory.tasks()]
        tasks += self.prefixes.tasks()
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
        """What has come in, then a scheduling round; again while what was dispatched has ended at
        once, but not for long: others use the loop."""
        began, inbox = self.loop.time(), self._inbox
        now = began
        try:
            for _ in range(ROUNDS):
                while inbox:
                    self.handle(inbox.popleft(), now)
                self.flush(now)
                if not inbox:
                    break
                now = self.loop.time()
                if now > began + ROUNDS_S:
                    break
            for place in [p for p in self._draining if not self._entries(*p)]:
                self._draining.pop(place).set_result(None)
        finally:
            self._scheduled = False
            if inbox:
                self._wake()

    def set_timer(self, command: SetTimer, now: float) -> None:
        self.loop.call_at(command.at, self.post, Timer(command.engine))

    # --- dispatching ------------------------------------------------------------------------

    def dispatch(self, command: Dispatch, now: float) -> None:
        host = self.hosts[command.engine, command.instance]
        slices = command.slices
        queue = self.core.queues[command.engine]
        if queue.continuous:
            self._memory.watch(queue, command.instance, host)
            self.prefixes.watch(queue, command.instance, host)
            for work, _, _ in slices:
                self._abortable(work, command.batch, self._call(host, command, work))
        elif len(slices) == 1 and host.interruptible:
            self._abortable(slices[0].work, command.batch, self._batch(host, command))
        else:
            task = entered(self.loop, self._batch(host, command), self._context.copy())
            if not task.done():
                self._batches[command.engine, command.batch] = task

    def _abortable(self, work: Work, batch: int, steps: Coroutine[Any, Any, None]) -> None:
        task = entered(self.loop, steps, self._context.copy())
        if not task.done():
            self._tasks[work.run, work.primitive, batch] = task

    def abort(self, command: AbortRequest, now: float) -> None:
        """LLM calls stop alone; of batches only those that hold nothing else can be stopped."""
        task = self._tasks.get((command.run, command.primitive, command.batch))
        if task is not None:
            task.cancel()

    async def _batch(self, host: LocalHost, command: Dispatch) -> None:
        slices = command.slices
        caller = self._caller(command) if len(slices) == 1 else None
        calling.set(caller)
        keeps = host.keeps
        results: Sequence[Result | Exception]
        try:
            requests = [self._request(work, lo, hi, keeps) for work, lo, hi in slices]
            results = await results_of(host, requests)
            if len(results) != len(slices):
                raise wrong_number(len(results), len(slices))
        except asyncio.CancelledError:
            results = [QueryCancelled("aborted")] * len(slices)
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            results = [as_retryable(error, len(slices))] * len(slices)
        if caller is not None:
            caller.end()
        told = caller is not None and caller.told
        outcomes = [
            self._outcome(work, lo, hi, result, told)
            for (work, lo, hi), result in zip(slices, results, strict=True)
        ]
        first = slices[0].work
        self._tasks.pop((first.run, first.primitive, command.batch), None)
        self._batches.pop((command.engine, command.batch), None)
        self.post(BatchCompleted(command.engine, command.batch, outcomes))

    def _caller(self, command: Dispatch) -> Caller | None:
        """On whose behalf a batch of one piece runs. One of several runs on nobody's alone."""
        work = command.slices[0].work
        query = self.queries.get(work.run)
        if query is None:
            return None
        return Caller(query, work.primitive, self._lend, (command.engine, command.instance))

    def _lend(self, place: tuple[str, int] | None, change: int) -> None:
        """A batch leaves its place on this instance to others, or takes it back."""
        if place is not None:
            self.loop.call_soon_threadsafe(self.post, InstanceWaits(*place, change))

    def _request(self, work: Work, lo: int, hi: int, keeps: bool) -> Request | None:
        query, i = self.queries.get(work.run), work.primitive
        if query is None:
            return None
        p = query.plan.primitives[i]
        inputs = query.store.resolve(i, lo, hi) if p.batchable else query.store.resolve(i)
        if query.watcher:
            query.watch(i, hi - lo, "started")
        key = f"{work.run}/{p.id}/{lo}"
        keep = query.plan.keepable[i] if keeps else NOTHING
        return Request(p.op, p.params, inputs, query.context, key, keep)

    def _outcome(
        self, work: Work, lo: int, hi: int, result: Result | Exception, told: bool
    ) -> Outcome:
        """What has become of a slice. told: some of its text has left for the client."""
        query, i = self.queries.get(work.run), work.primitive
        if query is None:
            return Cause(result) if isinstance(result, Exception) else {}
        p = query.plan.primitives[i]
        if not isinstance(result, Exception):
            shown = query.plan.shown[i] if type(p.params) is ToolParams else NOTHING
            result = misshapen(p, hi - lo, result, shown) or result
        if isinstance(result, Exception):
            return query.failed(
                i, lo, result, self.loop.time(), again=not told and may_try_again(p, result)
            )
        counts = query.store.put_slice(i, lo, hi, work.total, result)
        if query.store.held_bytes > query.terms.most_bytes:
            return query.failed(i, lo, too_much(query.terms.most_bytes), self.loop.time())
        query.trace.ended(i, lo, self.loop.time())
        if query.watcher:
            query.watch(i, hi - lo, "finished")
        return counts

    def _measure(self, run: str, i: int) -> int | Size | None:
        spec = self.queries[run].plan.specs[i]
        later = self._sizing.takes(spec, self.core.queues[spec.engine].placing.by_keys)
        return None if later else super()._measure(run, i)

    def measure(self, command: Measure, now: float) -> None:
        self._sizing.measure(self.queries[command.run], command.primitive)

    # --- Conditions -----------------------------------------------------------------------

    def ponder(
        self, query: LiveQuery, i: int, work: Coroutine[Any, Any, Mapping[str, Any]]
    ) -> None:
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

    async def _call(self, host: LocalHost, command: Dispatch, work: Work) -> None:
        i, query = work.primitive, self.queries.get(work.run)
        if query is None:
            self._end(command, work, Cause(GONE))
            return
        calling.set(None)
        query.watch(i, work.total, "started")
        generated = LiveCall(command, query, i, self.post, self.loop.time, self._told)
        outcome: Outcome = {}
        try:
            reads = self.reads(query, i) if host.looks_ahead else ()
            call = call_of(query, i, host.instance, work.priority, reads)
            with self.sequences.reading(host, call):
                if work.spec.members:
                    await generated.run(host, call)
                else:
                    outcome = await self.sequences.prefill(host, query, i, call)
                    query.trace.ended(i, 0, self.loop.time())
        except asyncio.CancelledError:
            outcome = query.failed(i, 0, QueryCancelled("aborted"), self.loop.time())
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            again = isinstance(error, TeolaError) and error.retryable and not generated.sent
            outcome = query.failed(i, 0, error, self.loop.time(), again=again)
        else:
            query.watch(i, work.total, "finished")
        self._end(command, work, outcome, generated.cached, generated.generated)

    def _told(self, part: LiveQuery, port: str, item: Any) -> None:
        self.parts.told(part, port, item, self.loop.time())
        self._wake()

    def _end(self, sent: Dispatch, work: Work, outcome: Outcome, *told: int | None) -> None:
        run, i, batch = work.run, work.primitive, sent.batch
        self._tasks.pop((run, i, batch), None)
        self.post(CallEnded(sent.engine, batch, run, i, outcome, *told))
