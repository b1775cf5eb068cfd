"""The `live` driver: the core on an asyncio loop, with real engines behind hosts.

Everything here runs on one loop. Events that arrive in one turn of the loop are handled together
before any engine's scheduling round, so primitives that become ready at once can share a batch.

Long because it is one driver, whose every command has its place here. In this order: queries; time
and events; dispatching; control primitives; people; what was done before; rows; LLM calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from typing import Any, Final, NamedTuple, Protocol, cast

from teola.engine import EngineResult, QueryContext, Request, Usage
from teola.errors import EngineError, QueryCancelled, TeolaError
from teola.graph import DecodeParams, Growth, Inquiry, Op, ToolParams, WaitParams
from teola.graph.inquiry import UNKNOWN, WAIT_S
from teola.learning import Learner
from teola.policies.asker import Asker
from teola.policies.ledger import Reservation
from teola.policies.work import Size, Work, WorkKey
from teola.runtime.asked_rows import AskedRows
from teola.runtime.collector import LIVE, seldom_collecting
from teola.runtime.driver import Driver
from teola.runtime.hosts.call import CallOutput
from teola.runtime.hosts.local import LocalHost
from teola.runtime.in_flight import Place, is_heard
from teola.runtime.live.accounts import AccountWatch
from teola.runtime.live.batch import GONE, as_retryable, results_of
from teola.runtime.live.call import NO_USAGE, LiveCall, Lives, call_of, own_copy
from teola.runtime.live.entering import entered
from teola.runtime.live.equal_work import EqualWork
from teola.runtime.live.memory import MemoryWatch
from teola.runtime.live.nesting import Caller, Terms, calling
from teola.runtime.live.outcomes import cut_off, keeps_steps, outcome_of, results_kept
from teola.runtime.live.paying import Paying, whole_prompt
from teola.runtime.live.people import People
from teola.runtime.live.prefixes import PrefixWatch
from teola.runtime.live.query import (
    Ending,
    LiveQuery,
    Watcher,
    ending_of,
    failure_of,
    growth_of,
    part_of,
    query_of,
)
from teola.runtime.live.sent_rows import LiveRows, SentRows
from teola.runtime.live.sequences import KeptSequences
from teola.runtime.live.sizing import Sizing
from teola.runtime.live.steps import SLICE, Steps
from teola.runtime.live.unknown_ends import (
    about_call,
    outputs_taken,
    schema_of_answer,
    unknown_end_question,
)
from teola.runtime.observe.noting import working_for
from teola.runtime.observe.trace import Trace
from teola.runtime.outputs import NO_PORTS, misnumbered, misshapen
from teola.runtime.rows import Row, RowsEnd
from teola.schedule.events import (
    AbortRequest,
    AbortRows,
    Again,
    BatchCompleted,
    CallEnded,
    Cancelled,
    Cause,
    Completed,
    DeadlineMoved,
    DeadlineReached,
    Dispatch,
    Failed,
    Finish,
    InstanceDraining,
    InstanceWaits,
    Joined,
    Measure,
    Outcome,
    Parted,
    QueueEvent,
    RowsOver,
    SetTimer,
    Sized,
    State,
    Timer,
)
from teola.schedule.plan import Plan

log = logging.getLogger(__name__)

ON_ITS_OWN: Final = Terms()
ROUNDS, ROUNDS_S = 64, 0.002
"""Scheduling rounds in one turn of the loop, which others wait for."""


class Listens(Protocol):
    """Hears of queries."""

    def began(self, id: str, asker: Asker, now: float) -> None:
        """One was admitted."""

    def ended(self, id: str, trace: Trace, well: bool, now: float) -> None:
        """One has ended, with an answer or without."""


class Landed(NamedTuple):
    """Items lo to hi of a work have come back."""

    work: Work
    lo: int
    hi: int
    result: EngineResult


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
        self._called: dict[WorkKey, LiveCall] = {}
        """LLM calls under way, by run and primitive; of two tries at once, one."""
        self._memory = MemoryWatch(loop, self.post)
        self.prefixes = PrefixWatch(loop, self.post)
        self.accounts = AccountWatch(loop, self.post)
        self.paying = Paying(self.hosts, self.billing)
        self._sizing = Sizing(loop, self.hosts, self._was_sized, self.wake)
        self.sequences = KeptSequences()
        self.asking: set[People] = set()
        """People who have been asked something."""
        self.equal = EqualWork()
        self._joinable: dict[WorkKey, LiveCall] = {}
        """Calls under way that equal ones may join."""
        self._landed: dict[tuple[str, int], list[Landed]] = {}
        """Slices of works that others may follow which have come back, by engine and batch, until
        the core knows."""
        self._lives = Lives(self.post, loop.time, self._wrote)
        self._at_once = self._lives._replace(post=lambda event: self.handle(event, loop.time()))
        self._batches: dict[tuple[str, int], asyncio.Task[None]] = {}
        self.listeners: list[Listens] = []
        """They hear which queries come and end, besides those inside others."""
        self.asked_rows = SentRows(self)

    # --- queries --------------------------------------------------------------------------

    async def execute(
        self,
        plan: Plan,
        inputs: Mapping[str, Any],
        context: QueryContext,
        asker: Asker,
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
        done: asyncio.Future[Ending] = self.loop.create_future()
        query = query_of(context, asker, plan, inputs, trace, done, watcher, streams, terms)
        if context.deadline != float("inf"):
            query.late = partial(self._late, id, DeadlineReached())
            query.timer = self.loop.call_at(context.deadline, query.late)
        self.outermost += not terms.depth
        if not terms.depth:
            for listener in self.listeners:
                listener.began(id, asker, self.loop.time())
        self._enter(query)
        with seldom_collecting(LIVE):
            self.begin(query, self.loop.time())
            self.wake()
            try:
                return await done
            except asyncio.CancelledError:
                self._late(id, Cancelled())
                raise

    async def ask_rows(self, asked: LiveRows) -> RowsEnd:
        """Ask rows to their end, as far as answers were given. Cancelling this cancels them."""
        self.outermost += 1
        if asked.deadline < inf:
            asked.timer = self.loop.call_at(asked.deadline, self._late, asked.id, DeadlineReached())
        self.begin_rows(asked, self.loop.time())
        self.wake()
        try:
            return await asked.done
        except asyncio.CancelledError:
            self._late(asked.id, Cancelled())
            raise

    def cancel_rows(self, id: str) -> None:
        """Nobody wants these rows any more."""
        self._late(id, Cancelled())

    @property
    def busy(self) -> int:
        """Queries in flight that are in no other and do not wait for people."""
        return self.outermost - sum(people.waits for people in self.asking)

    def _late(self, id: str, event: Cancelled | DeadlineReached) -> None:
        if id in self.queries or id in self.rows:
            self.end(id, event, self.loop.time())
            self.wake()

    def broke(self, runs: Sequence[str], error: Exception, now: float) -> None:
        """Nothing waits in vain: the queries end now, as failed, with all that they are part of."""
        log.error("queries end that %s may concern", type(error).__name__, exc_info=error)
        for id in runs:
            if (query := self.queries.get(id)) is not None:
                self._break(query.outermost, error, now)
            elif (asked := self.rows.pop(id, None)) is not None:
                asked.run.state = State.FAILED
                self._perform(self.core.drop(id, now), now)
                finish = Finish(id, State.FAILED, Cause(error), ())
                asked.finished(finish, now)
                self.rows_ended(asked, finish, now)
                self.wake()

    def _break(self, query: LiveQuery, error: Exception, now: float) -> None:
        """End a query and its parts, of which nothing is certain any more."""
        if query.done is not None and not query.done.done():
            query.done.set_result(Ending(State.FAILED, {}, error, (), query.trace, None))
        self.outermost -= not query.terms.depth
        for part in [part for part in self.queries.values() if part.outermost is query]:
            del self.queries[part.id]
            part.run.state = State.FAILED
            self._perform(self.core.drop(part.id, now), now)
            self.billing.over(part.id, len(part.plan))
            part.left_alone()
            part.trace.finish(State.FAILED.value, now)
            part.store.close()
        if query.terms.people is not None:
            query.terms.people.left(query)
        self.wake()

    def growth(self, query: LiveQuery, i: int) -> Growth:
        return growth_of(query, i, self.hosts, self.paying.dearest)

    def made_part(
        self, around: LiveQuery, id: str, plan: Plan, place: Place, now: float
    ) -> LiveQuery:
        self.wake()
        query = part_of(around, id, plan, place, now)
        self._enter(query)
        return query

    def _enter(self, query: LiveQuery) -> None:
        query.postponed = self._postponed
        if query.terms.steps is not None:  # it is not to do again what is known of it
            query.run.known = query.terms.steps.known(query.run)
        if query.terms.people is not None:
            query.terms.people.queries.add(query)

    def _postponed(self, query: LiveQuery, by_s: float) -> None:
        self.tell(query.id, DeadlineMoved(by_s), self.loop.time())

    def finished(self, query: LiveQuery, command: Finish, now: float) -> None:
        if query.place is None and not query.terms.depth:
            self.outermost -= 1
            well = command.state in (State.OK, State.PARTIAL)
            for listener in self.listeners:
                listener.ended(query.id, query.trace, well, now)
        query.left_alone()
        if query.terms.people is not None:
            query.terms.people.left(query)
        graph = query.plan.graph
        outputs = {name: query.store.read(ref) for name, ref in graph.outputs.items()}
        if query.left:
            outputs |= query.left_over()
        if command.state is State.OK and query.place is None:
            query.tell_whole(outputs)
        query.trace.ends = query.answer_ends()
        query.trace.finish_reasons = query.finish_reasons()
        if command.state is not State.OK:
            for i in query.trace.open:
                query.store.keep_pieces(i)
        for values in query.store.values.values():
            self.forgotten(values)
        query.store.close()
        if query.place is not None:
            query.tell_step("failed" if command.cause is not None else "finished", outputs)
            self.part_ended(query, command, outputs, failure_of(query, command), now)
            self.wake()
        elif query.done is not None and not query.done.done():
            query.done.set_result(ending_of(query, command, outputs))

    def forgotten(self, outputs: Mapping[str, Any] | None) -> None:
        if outputs and "sequence" in outputs:
            self.sequences.let_go(outputs)

    async def drain(self, engine: str, instance: int) -> None:
        """Send an instance nothing more, and wait until what it has is done."""
        self.post(InstanceDraining(engine, instance))
        if self._entries(engine, instance):
            place = engine, instance
            if place not in self._draining:
                self._draining[place] = self.loop.create_future()
            await asyncio.shield(self._draining[place])

    def _entries(self, engine: str, instance: int) -> int:
        return self.core.queues[engine].instances[instance].entries

    async def stop(self) -> None:
        """Stop all work that was dispatched, when no query wants it any more."""
        tasks = [*self._tasks.values(), *self._batches.values(), *self._memory.tasks()]
        tasks += self.asked_rows.tasks()
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
            self.wake()
        else:
            self.turn()

    def turn(self) -> None:
        """Handle what has come in, now, unless that is to be soon anyway."""
        if not self._scheduled:
            self._scheduled = True
            self._drain()

    def context(self) -> Context:
        """What a task is to be entered in; a copy."""
        return self._context.copy()

    def came(self, event: QueueEvent) -> None:
        """Something has come in, for the next turn of the main loop."""
        self._inbox.append(event)

    def wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._drain)

    def receive(self, now: float) -> None:
        inbox, handle = self._inbox, self.handle
        while inbox:
            event = inbox.popleft()
            handle(event, now)
            if self._joinable and type(event) is CallEnded:
                call = self._joinable.get((event.run, event.primitive))
                if call is not None and call.batch == event.batch:
                    del self._joinable[event.run, event.primitive]
            elif self._landed and type(event) is BatchCompleted:
                self._landed.pop((event.engine, event.batch), None)

    def _drain(self) -> None:
        """The main loop, until nothing has come in. What was dispatched may have ended at once, and
        is in the inbox then; but this goes on for a while only, as others use the event loop."""
        began, inbox = self.loop.time(), self._inbox
        now = began
        try:
            for _ in range(ROUNDS):
                self.run_once(now)
                if not inbox:
                    break
                now = self.loop.time()
                if now > began + ROUNDS_S:
                    break
            for place in [p for p in self._draining if not self._entries(*p)]:
                self._draining.pop(place).set_result(None)
            if self.asking:
                self.asking = {people for people in self.asking if people.changed()}
        finally:
            self._scheduled = False
            if inbox:
                self.wake()

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
            for piece in slices:
                work = piece.work
                if work.row_tokens:
                    self.asked_rows.begin(host, command, piece)
                else:
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
        key = command.run, command.primitive
        task = self._tasks.get((*key, command.batch))
        if task is not None:
            task.cancel()
        called = self._called.get(key)
        if called is not None and called.batch == command.batch:
            self._leaves(key, called)

    async def _batch(self, host: LocalHost, command: Dispatch) -> None:
        slices = command.slices
        caller = self._caller(command) if len(slices) == 1 else None
        calling.set(caller)
        far = host.keeps
        results: Sequence[EngineResult | Exception]
        try:
            requests = [self._request(work, lo, hi, far) for work, lo, hi in slices]
            around = self.queries.get(slices[0].work.run) if caller is not None else None
            if around is not None and keeps_steps(around, slices[0].work.primitive):
                results = await results_kept(host, requests[0], around, *slices[0])
            else:
                results = await results_of(host, requests)
            if wrong := misnumbered(command.engine, results, len(slices)):
                raise wrong
        except asyncio.CancelledError:
            results = [QueryCancelled("aborted")] * len(slices)
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            results = [as_retryable(error, len(slices))] * len(slices)
        if caller is not None:
            caller.end()
        streamed = caller is not None and caller.told
        queries, now = self.queries, self.loop.time()
        outcomes = [
            outcome_of(
                queries.get(work.run), work.primitive, work.total, lo, hi, result, streamed, now
            )
            if work.same is None
            else self._outcome_for_all(command.engine, command.batch, work, lo, hi, result, now)
            for (work, lo, hi), result in zip(slices, results, strict=True)
        ]
        first = slices[0].work
        self._tasks.pop((first.run, first.primitive, command.batch), None)
        self._batches.pop((command.engine, command.batch), None)
        self.post(BatchCompleted(command.engine, command.batch, outcomes))

    def _outcome_for_all(
        self,
        engine: str,
        batch: int,
        work: Work,
        lo: int,
        hi: int,
        result: EngineResult | Exception,
        now: float,
    ) -> Outcome:
        """What has become of a slice that is done for several queries, each of which keeps it; who
        follows between now and the core's knowing is told by `joined`."""
        query, total = self.queries.get(work.run), work.total
        followers = self.core.queues[engine].followers.of(work)
        if query is not None or isinstance(result, Exception) or not followers:
            outcome = outcome_of(query, work.primitive, total, lo, hi, result, False, now)
            if isinstance(outcome, Cause):
                return outcome
        else:
            outcome = {}
        if not isinstance(result, Exception):
            landed = self._landed.setdefault((engine, batch), [])
            landed.append(Landed(work, lo, hi, result))
        for follower in followers:
            follower_query, i = self.queries.get(follower.run), follower.primitive
            if follower_query is not None and not isinstance(result, Exception):
                mine = own_copy(result)
                own_outcome = outcome_of(
                    follower_query, i, total, lo, hi, mine, False, now, "shared"
                )
                if isinstance(own_outcome, Cause):
                    self._fails_alone(follower_query, i, own_outcome, now)
                else:
                    outcome = outcome or own_outcome
        return outcome

    def _fails_alone(self, query: LiveQuery, i: int, cause: Cause, now: float) -> None:
        """What several have is too much, or no output, for one of them."""
        self.tell(query.id, Failed(i, cause), now)
        self.wake()

    def joined(self, command: Joined, now: float) -> None:
        query, i = self.queries.get(command.run), command.primitive
        if query is None:
            return
        if query.plan.members[i]:
            self.billing.dropped(query.id, i)
            call = self._joinable.get(command.leader)
            if call is not None:  # else it did not begin, and will be made for the follower
                call.join(query, i, self._at_once)
            self.wake()
            return
        for landed in self._landed.values():
            for work, lo, hi, result in landed:
                if (work.run, work.primitive) == command.leader:
                    mine = own_copy(result)
                    own_outcome = outcome_of(
                        query, i, work.total, lo, hi, mine, False, now, "shared"
                    )
                    if isinstance(own_outcome, Cause):
                        self._fails_alone(query, i, own_outcome, now)
                        return

    def _caller(self, command: Dispatch) -> Caller | None:
        """On whose behalf a batch of one piece runs. One of several runs on nobody's alone."""
        work = command.slices[0].work
        query = self.queries.get(work.run)
        if query is None:
            return None
        return Caller(query, work.primitive, self.lend, (command.engine, command.instance))

    def lend(self, place: tuple[str, int] | None, change: int) -> None:
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
        keep = query.plan.keepable[i] if keeps else NO_PORTS
        context = query.context if work.same is None else _for_all(query.context)
        return Request(p.op, p.params, inputs, context, key, keep)

    def _measure(self, run: str, i: int) -> int | Size | None:
        query = self.queries[run]
        spec = query.plan.specs[i]
        same = self.equal.of(query, i)
        if same is not None:
            return self._measure_equal(query, i, same)
        exactly = query.run.asker.budget is not None
        exactly = exactly or self.core.queues[spec.engine].placing.by_keys
        later = self._sizing.takes(spec, exactly)
        return None if later else super()._measure(run, i)

    def _measure_equal(self, query: LiveQuery, i: int, same: bytes) -> int | Size | None:
        """The size of a primitive that may be equal to another one."""
        spec = query.plan.specs[i]
        queue = self.core.queues[spec.engine]
        if not query.plan.members[i]:
            return Size(query.store.items(i), (), same)
        if (answer := self.equal.find(query, same, self.loop.time())) is not None:
            query.answers[i] = answer
            return None
        if queue.followers.leader(same) is not None:
            return Size(query.prompt_tokens(i), (), same)
        exactly = query.run.asker.budget is not None or queue.placing.by_keys
        if self._sizing.takes(spec, exactly):
            query.same[i] = same
            return None
        size = Driver._measure(self, query.id, i)
        if type(size) is not int or self._is_lowered(query, i):
            return size
        return Size(size, (), same)

    def admitted(self, query: LiveQuery, i: int, size: Size) -> bool:
        whole_prompt(query, i)  # what it reads may be gone when it is wanted
        call = self.paying.billed(query, i, size)
        return call is None or self.billing.admitted(call)

    def passes_on(self, then: Callable[[], None]) -> bool:
        try:
            if asyncio.get_running_loop() is self.loop:
                return False
        except RuntimeError:  # no loop runs here
            pass
        with suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(then)
        return True

    def sized(self, event: Sized) -> None:
        self._inbox.append(event)
        self.wake()

    def _was_sized(self, event: Sized) -> None:
        """A prompt is measured; if its query has a budget, it may have to wait for that."""
        query = self.queries.get(event.run)
        if query is not None and (same := query.same.pop(event.primitive, None)) is not None:
            event.size = event.size._replace(same=same)
        bounded = query is not None and query.run.asker.budget is not None
        if query is not None and bounded and not self.admitted(query, event.primitive, event.size):
            self.billing.parked(event.run, event.primitive)
        else:
            equal = query is not None and event.size.same is not None
            if query is not None and equal and self._is_lowered(query, event.primitive):
                event.size = event.size._replace(same=None)
            self._inbox.append(event)

    def _is_lowered(self, query: LiveQuery, i: int) -> bool:
        return self.billing.lowered(query.id, i, _asks_for(query, i))

    def measure(self, command: Measure, now: float) -> None:
        query, i = self.queries[command.run], command.primitive
        if i in query.answers:
            engine = query.plan.specs[i].engine
            self.sized(Sized(engine, query.id, i, Size(0), known=True))
        else:
            self._sizing.measure(query, i)

    # --- control primitives -----------------------------------------------------------------

    def ponder(
        self, query: LiveQuery, i: int, work: Coroutine[Any, Any, Mapping[str, Any]]
    ) -> None:
        self._aside(query, self._ponder(query, i, work))

    async def _ponder(
        self, query: LiveQuery, i: int, work: Coroutine[Any, Any, Mapping[str, Any]]
    ) -> None:
        caller = Caller(query, i, self.lend)
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
        self.wake()

    def keeps_first(self, query: LiveQuery, i: int, result: Mapping[str, Any]) -> bool:
        steps, op = query.terms.steps, query.plan.primitives[i].op
        if steps is None or op not in (Op.CONDITION, Op.WAIT):
            return False
        self._aside(query, self._keep_first(query, i, steps, result))
        return True

    async def _keep_first(
        self, query: LiveQuery, i: int, steps: Steps, result: Mapping[str, Any]
    ) -> None:
        """Keep what primitive `i` gave, then let it be read."""
        try:
            await steps.keep(steps.key(query.run, i), {"gives": result})
        except Exception as error:  # noqa: BLE001 - as above
            self.undecided(query, i, error, self.loop.time())
        else:
            self.settle(query, i, result, self.loop.time())
        self.wake()

    def _aside(self, query: LiveQuery, work: Coroutine[Any, Any, None]) -> None:
        """Work for a query, which ends with it."""
        task = self.loop.create_task(work)
        query.deciding.add(task)
        task.add_done_callback(query.deciding.discard)

    # --- people -----------------------------------------------------------------------------

    def ask(self, query: LiveQuery, i: int, now: float) -> None:
        p = query.plan.primitives[i]
        params = p.params
        assert isinstance(params, WaitParams)
        try:
            question, schema, about = params.words(query.store.resolve(i))
            about = query.first_about(i, about)
            inquiry = query.inquiry(i, params.kind, question, schema, about)
        except Exception as error:  # noqa: BLE001 - a component's own code
            self.undecided(query, i, error, now)
            return
        port = p.outputs[0]

        def then(answer: Any) -> None:
            query.asking.pop(i, None)
            output = params.read(answer, inquiry.about) if params.read else answer
            self.decided(query, i, {port: output}, self.loop.time())
            self.wake()

        self._ask_people(query, i, inquiry, params.wait_s, then)

    def _ask_people(
        self,
        query: LiveQuery,
        i: int,
        inquiry: Inquiry,
        wait_s: float,
        then: Callable[[Any], None],
    ) -> None:
        people = query.terms.people
        assert people is not None

        def fail(error: Exception) -> None:
            query.asking.pop(i, None)
            self.undecided(query, i, error, self.loop.time())
            self.wake()

        query.asking[i] = inquiry.id
        self.asking.add(people)
        people.ask(inquiry, query, wait_s, then, fail)

    def unask(self, query: LiveQuery, i: int) -> None:
        if query.terms.people is not None:
            query.terms.people.withdraw(query, i)

    # --- what was done before ---------------------------------------------------------------

    def recall(self, query: LiveQuery, i: int, now: float) -> None:
        """Primitive `i` gives what an equal call gave, or what it gave itself before the query went
        on here; where that is not known, people are asked."""
        if (equal := query.answers.pop(i, None)) is not None:
            query.trace.shares(i)
            self._answer(query, i, equal.text, equal.end, now)
            return
        self.paying.recalled(query, i)
        steps, p = query.terms.steps, query.plan.primitives[i]
        assert steps is not None
        try:
            if query.plan.members[i]:
                step = steps.result(steps.key(query.run, i))
                self._answer(query, i, step["text"], step["end"], now)
            elif p.op in (Op.TOOL_CALL, Op.CONDITION, Op.WAIT):
                self._recall_step(query, i, steps, now)
            else:
                self.settle(query, i, {"sequence": query.uncomputed(i)}, now)
        except Exception as error:  # noqa: BLE001 - what was kept may not fit any more
            self.undecided(query, i, error, now)

    def _answer(self, query: LiveQuery, head: int, text: str, end: str, now: float) -> None:
        """The call that `head` leads gives this text, which is known, and ends as `end` says."""
        plan = query.plan
        if end:
            query.ends[head] = end
        query.finishes[head] = end if end in ("length", "refusal") else "stop"
        self.settle(query, head, {"sequence": True}, now)
        members = plan.members[head]

        def deliver(k: int, result: Mapping[str, Any]) -> None:
            if query.run.state is None and not query.run.ended(members[k]):
                counts = query.store.put(members[k], result)
                query.trace.ended(members[k], 0, now, "known")
                self.tell(query.id, Completed(members[k], counts), now)

        places = count()

        def wrote(item: Any) -> None:
            self.item_written(query, head, next(places), item, now)

        heard = wrote if is_heard(query, head) else None
        output = CallOutput([plan.primitives[m] for m in members], deliver, heard)
        output.cut = end == "length"
        if query.streams and any(map(query.run.answers, members)):
            query.tell_written(plan.primitives[members[0]], text)
        output.feed(text)
        output.close()

    def _recall_step(self, query: LiveQuery, i: int, steps: Steps, now: float) -> None:
        p = query.plan.primitives[i]
        key = steps.key(query.run, i)
        result = steps.result(key)
        if result is None and p.batchable and (outputs := steps.joined(key, query.store.items(i))):
            result = {"gives": outputs}
        if result is None:
            self._ask_what_became(query, i, steps, now)
        elif "answer" in result and p.op is Op.WAIT:
            output = query.read_answer(i, result["answer"])
            self.settle(query, i, {p.outputs[0]: output}, now)
        elif "answer" in result:
            self._resolved(query, i, steps, result["answer"])
        elif "error" in result:
            self.undecided(query, i, EngineError(result["error"]), now)
        else:
            self.settle(query, i, result["gives"], now)

    def _ask_what_became(self, query: LiveQuery, i: int, steps: Steps, now: float) -> None:
        """What primitive `i` does may have been done, or not: it is repeated if that does no harm,
        fails if its query wants that, and else people are asked."""
        p, key = query.plan.primitives[i], steps.key(query.run, i)
        params = p.params
        assert isinstance(params, ToolParams)
        inputs = query.store.resolve(i)
        cut = any(step_key.startswith(key + SLICE) for step_key in steps.found)
        if not cut and params.repeatable is not None and params.repeatable(inputs):
            self.tell(query.id, Again(i), now)
            return
        if steps.on_unknown == "fail":
            raise cut_off(p.component)
        about = about_call(p, inputs, query.terms.secrets.hidden)
        schema = schema_of_answer(p, query.store.items(i))
        inquiry = query.inquiry(i, UNKNOWN, unknown_end_question(p, about), schema, about)

        def then(answer: Any) -> None:
            query.asking.pop(i, None)
            self._resolved(query, i, steps, answer)

        self._ask_people(query, i, inquiry, WAIT_S, then)

    def _resolved(self, query: LiveQuery, i: int, steps: Steps, answer: Mapping[str, Any]) -> None:
        """People have said what is to become of primitive `i`."""
        p, now = query.plan.primitives[i], self.loop.time()
        if answer["do"] == "repeat":
            self.tell(query.id, Again(i), now)
        elif answer["do"] == "fail":
            self.undecided(query, i, EngineError("it was cut off, and is not done again"), now)
        else:
            result = outputs_taken(p, query.store.resolve(i), answer.get("result"))
            wrong = misshapen(p, query.store.items(i), result)
            if wrong is None:
                self._aside(query, self._keep_first(query, i, steps, result))
            else:  # an answer that an older version accepted
                self.undecided(query, i, wrong, now)
        self.wake()

    # --- rows -----------------------------------------------------------------------------

    def want(self, asked: AskedRows[Row], now: float) -> None:
        self.asked_rows.want(cast("LiveRows", asked))

    def abort_rows(self, command: AbortRows, now: float) -> None:
        self.asked_rows.abort(command)

    def rows_over(self, asked: AskedRows[Row], command: RowsOver, now: float) -> None:
        cast("LiveRows", asked).give(command)

    def rows_ended(self, asked: AskedRows[Row], command: Finish, now: float) -> None:
        self.outermost -= 1
        cast("LiveRows", asked).end(now)

    # --- LLM calls --------------------------------------------------------------------------

    async def _call(self, host: LocalHost, command: Dispatch, work: Work) -> None:
        i, query = work.primitive, self.queries.get(work.run)
        if query is None:
            self._end(command, work, Cause(GONE))
            return
        calling.set(None)
        place = command.engine, command.instance
        query.watch(i, work.total, "started")
        key, same = (work.run, i), work.same
        generated = LiveCall(command, query, i, self._lives, shared=same is not None)
        if (hedging := self.core.queues[command.engine].hedging) is not None:
            first = self._called.setdefault(key, generated)
            if first is not generated and hedging.is_backup(key, command.batch):
                generated.races(first)
            else:
                self._called[key] = generated
        outcome: Outcome = {}
        reserved: Reservation | None = None
        try:
            most = None
            if query.run.asker.budget is not None and work.spec.members:
                reserved = self.paying.begins(query, i, generated, place)
                most = reserved.answer_tokens
                if same is not None and most < _asks_for(query, i):
                    same = None  # nobody else is answered with what this budget cuts off
                    generated.is_shared = False
                    self.post(Parted(command.engine, *key))
            if same is not None:
                self._joinable[key] = generated
                for follower in self.core.queues[command.engine].followers.of(work):
                    if (follower_query := self.queries.get(follower.run)) is not None:
                        self.billing.dropped(follower.run, follower.primitive)
                        generated.join(follower_query, follower.primitive, self._at_once)
            reads = self.reads(query, i) if host.looks_ahead else ()
            call = call_of(
                query, i, host.instance, work.priority, reads, most, by_text=host.by_text
            )
            if same is not None:
                call = replace(call, context=_for_all(call.context))
            if (kept_values := query.store.kept) is not None:
                kept_values.prompted(i, call.prefix.parts if call.prefix else (), call.parts)
            with self.sequences.reading(host, call):
                if work.spec.members:
                    await generated.run(host, call)
                    self.paying.settled(query, i, generated, place, reserved)
                    self._bill(query, work, generated.usage)
                    if isinstance(same, bytes):
                        self.equal.keep(query, same, *generated.answer, self.loop.time())
                else:
                    outcome = await self.sequences.prefill(host, query, i, call)
                    self._bill(query, work, NO_USAGE)
                    query.trace.ended(i, 0, self.loop.time())
        except asyncio.CancelledError as error:
            self.paying.failed(query, i, generated, place, reserved, error)
            alone = not (generated.lost or generated.leaves())
            cancelled = QueryCancelled("aborted")
            outcome = query.failed(i, 0, cancelled, self.loop.time(), traced=alone)
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            self.paying.failed(query, i, generated, place, reserved, error)
            again = isinstance(error, TeolaError) and error.retryable
            alone = not (generated.lost or generated.leaves())
            outcome = query.failed(i, 0, error, self.loop.time(), again=again, traced=alone)
        else:
            query.watch(i, work.total, "finished")
        self._leaves(key, generated)
        self._end(command, work, outcome, generated.cached, generated.generated)

    def _bill(self, query: LiveQuery, work: Work, usage: Usage) -> None:
        """Learn what a prompt is charged for, against its plan."""
        if self.learner is not None:
            spec = work.spec
            charged = usage.prompt_tokens, usage.cached_tokens
            planned = spec.planned_tokens + work.fused_tokens
            app = query.run.asker.app
            self.learner.habits.billed(app, spec.component, planned, *charged)

    def _leaves(self, key: WorkKey, called: LiveCall) -> None:
        """This try is over, or nobody wants it: what comes for the same call is no second one."""
        if self._called.get(key) is called:
            del self._called[key]
            if (other := called.rival) is not None:
                self._called[key] = other

    def _wrote(self, query: LiveQuery, head: int, sent: Dispatch, k: int, item: Any) -> None:
        self.wake()
        place = sent.engine, sent.instance, sent.batch
        self.wrote(query, head, place, k, item, self.loop.time())

    def _end(self, sent: Dispatch, work: Work, outcome: Outcome, *told: int | None) -> None:
        run, i, batch = work.run, work.primitive, sent.batch
        self._tasks.pop((run, i, batch), None)
        self.post(CallEnded(sent.engine, batch, run, i, outcome, *told))


def _for_all(context: QueryContext) -> QueryContext:
    """Context of work that is done for several queries. It has no deadline: each query leaves the
    work when its own one comes, and the last to leave stops it."""
    return replace(context, deadline=inf)


def _asks_for(query: LiveQuery, i: int) -> int:
    """Tokens that the call which primitive `i` leads may write by itself."""
    decode = query.plan.primitives[query.plan.members[i][0]].params
    assert isinstance(decode, DecodeParams)
    return decode.max_tokens
