"""What both drivers share: the main loop (`Driver.run_once`), how each command is performed, and
how queries grow.

A driver owns time and the engines. It feeds events to the core, performs the commands that come
back until there are none, and then lets the core hold a scheduling round. docs/main-loop.md tells a
query's way through it. Growth is one of these commands: the driver begins the parts of a primitive
that grows, which are queries of its own, and tells the primitive when they end.

Long because each command has its place here, for both drivers. In this order: the main loop;
queries; how commands are performed; growth; what is logged; what a driver does its own way.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from teola.engine import NextRead
from teola.errors import BudgetSpent, QueryFailed
from teola.graph import Grow, GrowParams, Growth, Op, Ref, StopsShort, WaitParams
from teola.graph.ops import PREFILLS
from teola.learning import Learner
from teola.policies.work import Size, Work, WorkKey
from teola.runtime.asked_rows import AskedRows
from teola.runtime.billing import Billing
from teola.runtime.in_flight import Growing, Place, Query, grows, may_feed, told_port
from teola.runtime.next_reads import next_reads
from teola.runtime.observe.noting import note
from teola.runtime.values import bytes_of
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    AbortRows,
    Cancelled,
    Cause,
    Command,
    Completed,
    Control,
    DeadlineReached,
    Dispatch,
    Ejected,
    Failed,
    Finish,
    FirstToken,
    FirstTokenLate,
    Fused,
    Joined,
    Measure,
    QueueEvent,
    Recovered,
    Release,
    RestExpected,
    Retried,
    Retuned,
    RowsOver,
    RowsWanted,
    RunEvent,
    SetTimer,
    Sized,
    Skipped,
    Started,
    State,
    Waits,
)
from teola.schedule.faults import PolicyFailed
from teola.schedule.feeding import Feeding
from teola.schedule.plan import Plan

log = logging.getLogger(__name__)


Q = TypeVar("Q", bound=Query)
FEED: Final = ""
"""What stands for the key of a part where what is told was not written by one."""


class Driver(ABC, Generic[Q]):
    """Runs a Core. Subclasses know the time and reach the engines. Q: what they know of a query.
    learner: who is told what happens."""

    def __init__(self, queues: Mapping[str, EngineQueue], learner: Learner | None = None) -> None:
        self.core = Core(queues, self._measure)
        self.learner = learner
        self.queries: dict[str, Q] = {}
        self.rows: dict[str, AskedRows[Any]] = {}
        """Runs of rows in flight, by id."""
        self.refusals: dict[str, dict[WorkKey, str]] = {}
        """Why works wait that a server refused, by query, and in it by run and primitive."""
        self.billing = Billing(self.sized, self.passes_on)
        self._todo: deque[Command] = deque()
        self._performing = False

    # --- the main loop ----------------------------------------------------------------------

    def run_once(self, now: float) -> None:
        """One turn of the main loop. Both drivers call it: `live` when something has come in, up to
        64 times or 2 ms in one turn of its event loop; `sim` for each moment at which something
        happens."""
        # 1. What has come in. `live` has events of engines in an inbox, `sim` what its heap has for
        #    this moment. Each event goes through `handle` (an engine's) or `tell` (a run's): the
        #    core changes its state and answers with commands, which are performed at once. A
        #    primitive that becomes ready by that is queued at its engine and not yet sent.
        self.receive(now)
        # 2. A scheduling round at each engine that something happened to. It comes after all that
        #    came in together, so that what became ready at once can share a batch.
        core = self.core
        while core.unsettled:
            try:
                commands = core.flush(now)
            except Exception as error:  # noqa: BLE001 - the driver's edge: see `broke`
                self.broke([*self.queries, *self.rows], error, now)
                continue
            # 3. Dispatches go to instances. What ends at once is in the inbox when this returns,
            #    and comes in with the next turn; a run that a broken policy has failed may make
            #    another round due, hence the loop.
            self._perform(commands, now)

    @abstractmethod
    def receive(self, now: float) -> None:
        """Give the core what has come in by now, event by event."""

    def handle(self, event: QueueEvent, now: float) -> None:
        """Give the core an event of an engine and perform what follows."""
        try:
            commands = self.core.handle(event, now)
        except Exception as error:  # noqa: BLE001 - the driver's edge: see `broke`
            self.broke(self._using(event.engine), error, now)
            return
        self._perform(commands, now)

    def tell(self, run: str, event: RunEvent, now: float) -> None:
        """Give the core an event of a run and perform what follows."""
        try:
            commands = self.core.tell(run, event, now)
        except Exception as error:  # noqa: BLE001 - as above
            self.broke([run], error, now)
            return
        self._perform(commands, now)

    def _perform(self, commands: Sequence[Command], now: float) -> None:
        """Perform commands, each as `_PERFORM` has it, in the order in which they were given. What
        is given meanwhile comes after them."""
        if not commands:
            return
        todo = self._todo
        todo.extend(commands)
        if self._performing:
            return
        self._performing = True
        try:
            while todo:
                command = todo.popleft()
                try:
                    _PERFORM[type(command)](self, command, now)
                except Exception as error:  # noqa: BLE001 - as above
                    self.broke(_concerned(command), error, now)
        finally:
            self._performing = False

    def broke(self, runs: Sequence[str], error: Exception, now: float) -> None:
        """Handling an event or performing a command raised `error`, a bug; `runs` may have lost
        something by it. To be called while it is handled."""
        raise error

    # --- queries ----------------------------------------------------------------------------

    def begin(self, query: Q, now: float) -> None:
        """Start a query."""
        self.queries[query.id] = query
        self.core.add(query.run)
        self.tell(query.id, Started(query.store.counts()), now)

    def begin_rows(self, asked: AskedRows[Any], now: float) -> None:
        """Start a run of rows."""
        self.rows[asked.id] = asked
        self.core.add(asked.run)
        self.tell(asked.id, Started({}), now)

    def end(self, run: str, event: Cancelled | DeadlineReached, now: float) -> None:
        """End a run from outside. Its trace keeps what waited until then."""
        if (query := self.queries.get(run)) is not None:
            for work in self.waiting(query):
                instances = self.core.queues[query.plan.specs[work.primitive].engine].instances
                limited_s = instances.limited_s(now) - work.limited_from
                for lo, hi in work.spans:
                    query.trace.unsent(
                        work.primitive, lo, hi, work.arrival, work.affinity, limited_s
                    )
        if isinstance(event, DeadlineReached):
            event = DeadlineReached(self._waited(run, now))
        self.tell(run, event, now)

    def _waited(self, run: str, now: float) -> str:
        """Which server a query waits for that takes nothing now; empty if none."""
        if refused := self.refusals.get(run):
            return next(iter(refused.values()))
        if not any(queue.instances.limited_s(now) for queue in self.core.queues.values()):
            return ""
        for id, query in self.queries.items():
            for work in self.waiting(query) if id.partition("/")[0] == run else ():
                engine = query.plan.specs[work.primitive].engine
                seconds = self.core.queues[engine].instances.limited_s(now) - work.limited_from
                if seconds > 0:
                    return f"it waited for the rate limit of engine {engine!r}, {seconds:.0f} s"
        return ""

    def waiting(self, query: Query) -> Iterator[Work]:
        """What is ready and has not been sent yet, wholly or in part."""
        queues = self.core.queues
        for i, p in enumerate(query.plan.primitives):
            work = queues[p.engine].works.get((query.id, i)) if p.engine else None
            if work is not None and work.queued:
                yield work

    def wrote(
        self, query: Q, head: int, place: tuple[str, int, int], k: int, item: Any, now: float
    ) -> None:
        """The call that `head` leads has written item `k` of its list. place: the engine, instance
        and batch of this try. Where that is used from now on, there can be no other."""
        engine, instance, batch = place
        work = self.core.queues[engine].source(query.id, head)
        if work is None or (instance, batch) not in work.flying.values():
            return  # of an instance that is gone
        if self.item_written(query, head, k, item, now):
            self.handle(FirstToken(engine, instance, query.id, head, to_client=True), now)

    def _using(self, engine: str) -> list[str]:
        """The queries that have something to do at an engine."""
        return [
            id
            for id, query in self.queries.items()
            if any(p.engine == engine for p in query.plan.primitives)
        ] + [id for id, asked in self.rows.items() if asked.run.engine == engine]

    def _measure(self, run: str, i: int) -> int | Size | None:
        """See `Measuring`."""
        query = self.queries[run]
        store = query.store
        if store.plan.primitives[i].op not in PREFILLS:
            return store.items(i)
        tokens = query.prompt_tokens(i)
        if query.run.asker.budget is None or self.admitted(query, i, Size(tokens)):
            return tokens
        return None

    def admitted(self, query: Q, i: int, size: Size) -> bool:
        """Whether a query with a budget may make a call that is ready, by now."""
        return True

    def reads(self, query: Query, i: int) -> tuple[NextRead, ...]:
        """When the prompt of call `i`, which is about to begin, is read again, by its parts."""
        works = self.core.queues[query.plan.specs[i].engine].works

        def sent(reader: int) -> bool:
            work = works.get((query.id, reader))
            return work is not None and bool(work.flying)

        return next_reads(query.run, i, sent)

    # --- how commands are performed ---------------------------------------------------------

    def _traced(self, command: Dispatch, now: float) -> None:
        instance, batch, slices = command.instance, command.batch, command.slices
        size, queries = len(slices), self.queries
        if self.refusals:
            for work, _, _ in slices:
                self._forget_refusals(work.run, work.primitive)
        instances = self.core.queues[command.engine].instances
        limited_s = instances.limited_s(now) if instances.has_limited else 0.0
        for work, lo, hi in slices:
            query = queries.get(work.run)
            if query is not None:
                query.trace.sent(work.primitive, lo, hi, work.arrival, now, instance, batch, size)
                if limited_s > work.limited_from:
                    query.trace.limited(limited_s - work.limited_from)
                if work.reason is not None:
                    query.trace.explained(work.reason)

    def _dispatch(self, command: Dispatch, now: float) -> None:
        self._traced(command, now)
        if self.rows:
            for work, lo, hi in command.slices:
                if work.row_tokens and (asked := self.rows.get(work.run)) is not None:
                    asked.sent(work.primitive, lo, hi)
        self.dispatch(command, now)

    def _release(self, command: Release, now: float) -> None:
        query = self.queries.get(command.run)
        if query is not None:
            self.forgotten(query.store.release(command.primitive))

    def _skipped(self, command: Skipped, now: float) -> None:
        query = self.queries[command.run]
        if query.run.asker.budget is not None:
            self.billing.dropped(command.run, command.primitive)
        self.forgotten(query.store.drop(command.primitive))
        query.trace.ended(command.primitive, -1, now, "skipped")
        if query.growing and (growing := query.growing.pop(command.primitive, None)) is not None:
            self._stop_growth(growing, now)
        if type(query.plan.primitives[command.primitive].params) is WaitParams:
            self.unask(query, command.primitive)

    def _fused(self, command: Fused, now: float) -> None:
        self.queries[command.run].trace.ended(command.primitive, -1, now, "fused")

    def _forget_refusals(self, run: str, primitive: int | None = None) -> None:
        """Nothing refuses a primitive any more, or any of its run."""
        query_id = run.partition("/")[0]
        if (refused := self.refusals.get(query_id)) is None:
            return
        if primitive is not None:
            refused.pop((run, primitive), None)
        elif run == query_id:
            refused.clear()
        else:
            for key in [key for key in refused if key[0] == run]:
                del refused[key]
        if not refused:
            del self.refusals[query_id]

    def _finish(self, command: Finish, now: float) -> None:
        if self.refusals:
            self._forget_refusals(command.run)
        if (asked := self.rows.pop(command.run, None)) is not None:
            asked.finished(command, now)
            self.rows_ended(asked, command, now)
            return
        query = self.queries.pop(command.run)
        if query.run.asker.budget is not None:
            self.billing.over(command.run, len(query.plan))
        try:
            query.trace.finish(command.state.value, now)
            while query.growing:
                self._stop_growth(query.growing.popitem()[1], now)
            self.finished(query, command, now)
        except Exception:
            self.queries[command.run] = query  # `broke` has to find it
            raise
        if self.learner is not None:
            self.learner.publish(now)

    def _wanted(self, command: RowsWanted, now: float) -> None:
        if (asked := self.rows.get(command.run)) is not None:
            self.want(asked, now)

    def _rows_over(self, command: RowsOver, now: float) -> None:
        if (asked := self.rows.get(command.run)) is not None:
            self.rows_over(asked, command, now)

    def _nothing(self, command: Retried, now: float) -> None:
        """For traces, which know it by the try's failure."""

    def _control(self, command: Control, now: float) -> None:
        query = self.queries.get(command.run)
        if query is None:
            return
        i = command.primitive
        if i in query.run.known:
            query.trace.sent(i, 0, 1, now, now)
            self.recall(query, i, now)
            return
        params = type(query.plan.primitives[i].params)
        if params is GrowParams:
            self._grow(query, i, now)
            return
        query.trace.sent(i, 0, 1, now, now)
        if params is WaitParams:
            self.ask(query, i, now)
            return
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
        self, query: Q, i: int
    ) -> Mapping[str, Any] | Coroutine[Any, Any, Mapping[str, Any]]:
        """Outputs of a control primitive; what is to be awaited for them goes to `ponder`."""
        return query.store.control(i)

    def decided(self, query: Q, i: int, result: Mapping[str, Any], now: float) -> None:
        """A control primitive gave its outputs. They are kept first if the query's steps are."""
        if not self.keeps_first(query, i, result):
            self.settle(query, i, result, now)

    def keeps_first(self, query: Q, i: int, result: Mapping[str, Any]) -> bool:
        """Whether these outputs are kept before anybody reads them; `settle` follows then."""
        return False

    def settle(self, query: Q, i: int, result: Mapping[str, Any], now: float) -> None:
        """The outputs of a control primitive may be read from now on."""
        query.trace.ended(i, 0, now)
        p = query.plan.primitives[i]
        branch = result["branch"] if p.op is Op.CONDITION else None
        if branch is not None and self.learner is not None:
            self.learner.habits.decided(query.run.asker.app, p.component, branch)
        self.tell(query.id, Completed(i, query.store.put(i, result), branch), now)

    def undecided(self, query: Q, i: int, error: Exception, now: float) -> None:
        """A control primitive failed."""
        query.trace.failed(i, 0, now, error)
        self.tell(query.id, Failed(i, Cause(error)), now)

    def forgotten(self, outputs: Mapping[str, Any] | None) -> None:
        """A store holds these outputs of a primitive no longer."""

    # --- growth -----------------------------------------------------------------------------

    def _grow(self, query: Q, i: int, now: float) -> None:
        """Primitive `i` has all that it reads: it begins to grow, unless it does already."""
        if self._has_whole(query, i, now):
            return
        query.trace.sent(i, 0, 1, now, now)
        try:
            growth = self.growth(query, i)
        except Exception as error:  # noqa: BLE001 - as above
            self.undecided(query, i, error, now)
            return
        self.begin_growth(query, i, growth, now)

    def begin_growth(self, query: Q, i: int, growth: Growth, now: float) -> None:
        """Primitive `i` grows from now on."""
        growing = grows(query, i, growth)
        self._follow(growing, growth.begin, now)

    def item_written(self, query: Q, head: int, k: int, item: Any, now: float) -> bool:
        """The call that `head` leads has written item `k` of its list. Whether anything has come
        of that, so that the call must not be begun anew."""
        used = False
        if place := query.place:
            port = told_port(query, head)
            if port and not place.growing.over:
                growing, key, used = place.growing, place.key, True
                self._follow(growing, partial(growing.growth.told, key, port, item), now)
        if feedings := query.plan.feeding.get(head):
            items = query.written.setdefault(head, [])
            del items[k:]  # of a try that came to nothing
            items.append(item)
            for feeding in feedings:
                used |= self._feed(query, feeding, items, now)
        return used

    def _feed(self, query: Q, feeding: Feeding, items: list[Any], now: float) -> bool:
        """Tell a primitive of what is new of the list that it grows over, if all else is there that
        it reads. Whether it has begun."""
        i, giver = feeding
        growing = query.growing.get(i)
        if growing is None:
            if not may_feed(query, i, giver):
                return False
            try:
                growing = grows(query, i, self.growth(query, i))
            except Exception as error:  # noqa: BLE001 - the developer's own code may raise anything
                self.undecided(query, i, error, now)
                return True
            growing.fed = 0
            query.trace.sent(i, 0, 1, now, now)
            self._follow(growing, growing.growth.begin, now)
        fed, port = growing.fed, growing.params.feeds
        if fed is not None:
            growing.fed = len(items)
            for item in items[fed:]:
                if not growing.over:
                    self._follow(growing, partial(growing.growth.told, FEED, port, item), now)
        return True

    def _has_whole(self, query: Q, i: int, now: float) -> bool:
        """All that primitive `i` reads is there. Whether it grows already."""
        growing = query.growing.get(i)
        if growing is None:
            return False
        growing.fed, port = None, growing.params.feeds
        ref = query.plan.primitives[i].input(port)
        assert isinstance(ref, Ref)
        given_list = {port: query.store.read(ref)}
        self._follow(growing, partial(growing.growth.ended, FEED, given_list), now)
        return True

    def part_ended(
        self,
        part: Q,
        finish: Finish,
        outputs: Mapping[str, Any],
        error: Exception | None,
        now: float,
    ) -> None:
        """A part has ended. error: why, if it failed, as its developer is to see it."""
        place = part.place
        assert place is not None
        growing, key = place.growing, place.key
        del growing.open[key]
        query = growing.query
        query.tally.shrink(len(part.plan))
        if not place.recorded:
            query.trace.leave_out(part.trace)
        query.trace.take_remarks(part.trace)
        if growing.over:
            return
        if place.grow.answers:
            query.grown_ends[growing.i] = part.trace.ends
        if growing.spends is not None:
            trace = part.trace
            growing.spends.spent(key, trace.prompt_tokens, trace.completion_tokens)
        if finish.state in (State.OK, State.PARTIAL):
            for component, cause in zip(finish.missing, finish.reasons, strict=True):
                growing.missing.setdefault(component, cause)
            if finish.reasons and any(map(_is_spent, finish.reasons)):
                growth = growing.growth
                if isinstance(growth, StopsShort):
                    self._follow(growing, partial(growth.stopped, key), now)
                    return
            self._follow(growing, partial(_part_gave, growing, key, outputs), now)
        else:
            assert error is not None, "no run stops without a cause"
            self._follow(growing, partial(growing.growth.failed, key, error), now)

    def _follow(self, growing: Growing, step: Callable[[], Iterable[Grow]], now: float) -> None:
        """Take a step of a growth: begin the parts that follow from it, as far as there is room;
        if nothing runs, waits or is to come, the primitive has ended."""
        waiting, running = growing.waiting, growing.open
        try:
            waiting.append(iter(step()))
            while waiting and len(running) < growing.at_once and not growing.over:
                grow = next(waiting[0], None)
                if grow is None:
                    waiting.popleft()
                    continue
                plan = growing.plan_of(grow)
                if running and not growing.query.tally.fits(len(plan)):
                    waiting[0] = chain((grow,), waiting[0])  # when one of those that run has ended
                    break
                self._begin_part(growing, grow, plan, now)
            if growing.over or running or waiting or growing.fed is not None:
                return
            result, remarks = growing.growth.result(), growing.growth.remarks()
            if remarks.cut:
                growing.missing.setdefault(growing.component, Cause(BudgetSpent(remarks.cut)))
        except Exception as error:  # noqa: BLE001 - the developer's own code may raise anything
            self._fail_growth(growing, error, now)
            return
        query, i = growing.query, growing.i
        query.growing.pop(i, None)
        growing.close()
        self._expect(growing, growing.turns, now)
        if not remarks.cut:
            self.turned(query.run.asker.app, growing.component, growing.turns)
        query.trace.remark(growing.component, remarks)
        query.trace.ended(i, 0, now)
        counts = query.store.put_slice(i, 0, 1, 1, result)
        self.tell(query.id, Completed(i, counts, None, -1, growing.missing), now)

    def _begin_part(self, growing: Growing, grow: Grow, plan: Plan, now: float) -> None:
        """Begin a part. Raises QueryFailed where it would be one too many."""
        query, key, component = growing.query, grow.key, growing.component
        depth = 1 if query.place is None else 1 + query.place.depth
        if key in growing.open:
            raise QueryFailed(f"{component!r} has two parts called {key!r}")
        query.tally.grow(component, len(plan), depth)
        repeats = grow.body in growing.params.grower.repeated.counts
        growing.turns += repeats
        coming = 0.0
        if growing.estimate is not None:
            coming = growing.coming()
            if repeats:
                self._expect(growing, growing.turns + coming, now)
        place = Place(growing, key, depth, grow, coming)
        id = f"{query.id}/{component}/{key}"
        part = self.made_part(query, id, plan, place, now)  # type: ignore[arg-type]  # one of ours
        growing.open[key] = part
        self.begin(part, now)

    def _expect(self, growing: Growing, times: float, now: float) -> None:
        """So many of the parts that it repeats are expected by now: what its query does later on
        counts as a part of so much."""
        estimate, more = growing.estimate, times - growing.expected
        if estimate is not None and more:
            growing.expected = times
            if more_s := more * estimate.part_total_s:
                self.tell(growing.query.id, RestExpected(more_s), now)

    def turned(self, app: str, component: str, count: int) -> None:
        """A component has grown so many of the parts that it repeats, and has ended well."""
        if self.learner is not None:
            self.learner.habits.turned(app, component, count)

    def _fail_growth(self, growing: Growing, error: Exception, now: float) -> None:
        """A growth raised `error`: its primitive has failed."""
        query, i = growing.query, growing.i
        if query.growing.pop(i, None) is None:
            return
        self._stop_growth(growing, now)
        query.trace.failed(i, 0, now, error)
        self.tell(query.id, Failed(i, Cause(error)), now)

    def _stop_growth(self, growing: Growing, now: float) -> None:
        """What a primitive has grown so far is kept if somebody asks for it; its parts end."""
        query, i = growing.query, growing.i
        primitive = query.plan.ids[i]
        is_output = any(ref.producer == primitive for ref in query.plan.graph.outputs.values())
        if is_output or growing.spends is not None:
            with suppress(Exception):  # the developer's own code may raise anything
                query.left[i] = growing.growth.result()
        if growing.spends is not None and (steps := query.left.get(i, {}).get("steps")):
            query.trace.steps += tuple(steps)
        growing.close()
        for part in [*growing.open.values()]:
            self.end(part.id, Cancelled(), now)

    # --- what is logged ---------------------------------------------------------------------

    def refused(self, command: Waits, now: float) -> None:
        """A server refused a work, which waits for it or goes elsewhere."""
        refused = self.refusals.setdefault(command.run.partition("/")[0], {})
        refused[command.run, command.primitive] = str(command.cause.error)
        message = (
            "engine %(engine)s: instance %(instance)d refuses (%(error_type)s); "
            "the call waits for %(for_s).1f s"
        )
        note(
            log,
            logging.INFO,
            "engine_refuses",
            message,
            engine=command.engine,
            instance=command.instance,
            for_s=round(max(0.0, command.until - now), 1),
            error_type=type(command.cause.error).__name__,
        )

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

    def late(self, command: FirstTokenLate, now: float) -> None:
        """A call's first token is overdue."""
        message = "engine %(engine)s: instance %(instance)d gave no token for %(after_s).0f s"
        told = asdict(command) | {"after_s": round(command.after_s, 1)}
        note(log, logging.WARNING, "engine_late", message, **told)

    def recovered(self, command: Recovered, now: float) -> None:
        """An instance that was left alone works again."""
        message = "engine %(engine)s: instance %(instance)d works again"
        note(log, logging.INFO, "engine_recovered", message, **asdict(command))

    def retuned(self, command: Retuned, now: float) -> None:
        """Options of a policy have changed, or were refused."""
        options = ", ".join(f"{name}={value}" for name, value in command.options.items())
        message = "engine %(engine)s: %(kind)s policy tuned: %(options)s"
        level = logging.INFO
        if command.refused:
            message, level = f"{message} refused (%(refused)s)", logging.WARNING
        note(
            log,
            level,
            "policy_tuned",
            message,
            engine=command.engine,
            kind=command.kind,
            options=options,
            refused=command.refused,
        )

    def policy_failed(self, command: PolicyFailed, now: float) -> None:
        """What was queued at an engine has failed, because of a policy."""
        cause = command.error.__cause__
        trace = (type(cause), cause, cause.__traceback__) if cause is not None else None
        log.error("%s; what was queued there has failed", command.error, exc_info=trace)

    # --- what a driver does its own way -----------------------------------------------------

    def want(self, asked: AskedRows[Any], now: float) -> None:
        """A run of rows has room for a window; tell it RowsCame when one is there."""
        raise NotImplementedError

    def abort_rows(self, command: AbortRows, now: float) -> None:
        """Stop the rows of a slice; each of them comes back nevertheless."""
        raise NotImplementedError

    def rows_over(self, asked: AskedRows[Any], command: RowsOver, now: float) -> None:
        """Rows were answered, or will not be."""
        raise NotImplementedError

    def rows_ended(self, asked: AskedRows[Any], command: Finish, now: float) -> None:
        """A run of rows has ended."""
        raise NotImplementedError

    def unask(self, query: Q, i: int) -> None:
        """Nobody wants to know any more what primitive `i` asks."""

    def joined(self, command: Joined, now: float) -> None:
        """A work follows another one, which is in flight."""

    def recall(self, query: Q, i: int, now: float) -> None:
        """Take what is known of primitive `i`, which is not to be done again."""
        raise NotImplementedError

    def ponder(self, query: Q, i: int, work: Coroutine[Any, Any, Mapping[str, Any]]) -> None:
        """Await the outputs of control primitive `i`."""
        raise NotImplementedError

    def passes_on(self, then: Callable[[], None]) -> bool:
        """Leave this to the driver's own thread, if it is called in another; whether it did."""
        return False

    def sized(self, event: Sized) -> None:
        """What becomes of a call that had to wait for its query's budget."""
        raise NotImplementedError

    def _measured(self, command: Measure, now: float) -> None:
        if self.billing.waits(command.run, command.primitive):
            self.billing.parked(command.run, command.primitive)
        else:
            self.measure(command, now)

    def measure(self, command: Measure, now: float) -> None:
        """Work out the size of a primitive for which `_measure` gave None, and send Sized."""
        raise NotImplementedError

    @abstractmethod
    def ask(self, query: Q, i: int, now: float) -> None:
        """Ask what primitive `i` wants to know."""

    @abstractmethod
    def growth(self, query: Q, i: int) -> Growth:
        """How primitive `i` grows in this query."""

    @abstractmethod
    def made_part(self, around: Q, id: str, plan: Plan, place: Place, now: float) -> Q:
        """A query for a part of the query `around`."""

    @abstractmethod
    def dispatch(self, command: Dispatch, now: float) -> None:
        """Send a batch to an instance."""

    @abstractmethod
    def abort(self, command: AbortRequest, now: float) -> None:
        """Stop a slice if that is possible; its terminal event must come in either case."""

    @abstractmethod
    def set_timer(self, command: SetTimer, now: float) -> None:
        """Send Timer at the given time."""

    @abstractmethod
    def finished(self, query: Q, command: Finish, now: float) -> None:
        """A query has ended; its outputs can be read from the store now."""


def _part_gave(growing: Growing, key: str, outputs: Mapping[str, Any]) -> Iterable[Grow]:
    """What follows from what a part gave, which is held from now on, or until the next."""
    if growing.query.store.weighs:
        size = 0
        for value in outputs.values():
            size += bytes_of(value)
        more_bytes = size if growing.params.grower.gathers else size - growing.held_bytes
        growing.held_bytes += more_bytes
        growing.query.tally.hold(growing.component, more_bytes)
    return growing.growth.ended(key, outputs)


def _is_spent(cause: Cause) -> bool:
    """Whether something was not begun because its query's budget is spent."""
    return isinstance(cause.error, BudgetSpent)


def _concerned(command: Command) -> list[str]:
    """The queries that a command is for."""
    if type(command) is Dispatch:
        return [work.run for work, _, _ in command.slices]
    run = getattr(command, "run", None)
    return [] if run is None else [run]


_PERFORM: Final[Mapping[type, Callable[[Any, Any, float], None]]] = {
    Dispatch: Driver._dispatch,
    Release: Driver._release,
    Control: Driver._control,
    Skipped: Driver._skipped,
    Fused: Driver._fused,
    Finish: Driver._finish,
    RowsWanted: Driver._wanted,
    RowsOver: Driver._rows_over,
    AbortRequest: lambda driver, command, now: driver.abort(command, now),
    AbortRows: lambda driver, command, now: driver.abort_rows(command, now),
    Measure: Driver._measured,
    SetTimer: lambda driver, command, now: driver.set_timer(command, now),
    Joined: lambda driver, command, now: driver.joined(command, now),
    Waits: lambda driver, command, now: driver.refused(command, now),
    Ejected: lambda driver, command, now: driver.ejected(command, now),
    FirstTokenLate: lambda driver, command, now: driver.late(command, now),
    Recovered: lambda driver, command, now: driver.recovered(command, now),
    Retried: Driver._nothing,
    Retuned: lambda driver, command, now: driver.retuned(command, now),
    PolicyFailed: lambda driver, command, now: driver.policy_failed(command, now),
}
"""How each command is performed."""
