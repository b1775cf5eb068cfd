"""A core with rows and calls mixed, on instances that fail in every way, for property tests.

What is in flight ends as chance decides: rows one by one or together, answered, failed, refused, or
not at all, until their instance is gone. The world keeps its own books of which row is where, and
compares them with each command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any

from teola.errors import EngineError
from teola.graph import Op
from teola.policies import batching, routing
from teola.policies.asker import Asker
from teola.policies.work import Size, WorkSpec, ranges
from teola.profile import EngineProfile, StepTime
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    AbortRows,
    CallEnded,
    Cause,
    Completed,
    Dispatch,
    Failed,
    Finish,
    InstanceDown,
    InstanceDraining,
    InstanceUp,
    Outbox,
    QueueEvent,
    RowFailure,
    RowsCame,
    RowsEnded,
    RowsOver,
    RowsWanted,
    RunEvent,
    SetTimer,
    SourceEnded,
    Started,
    State,
    Submit,
    Timer,
)
from teola.schedule.faults import PolicyFailed
from teola.schedule.instances import Limits
from teola.schedule.overdue import Overdue
from teola.schedule.quota import Refusal
from teola.schedule.row_run import RowRun, RowSpecs
from teola.schedule.run import AskQueues

WRONG = Cause(ValueError("no such thing"))
BROKEN = Cause(EngineError("it broke", retryable=True), retryable=True)
BUSY = Cause(EngineError("429", retryable=True), retryable=True, refused=Refusal("busy"))
AWAY = Cause(EngineError("502", retryable=True), retryable=True, refused=Refusal("away"))
CALL = WorkSpec("llm", Op.PREFILLING, "call", None, False, 0, retries=2, planned_tokens=20)


@dataclass
class Calls:
    """A run of `count` calls that are no rows."""

    id: str
    asker: Asker
    count: int
    began: float = 0.0
    admitted: float = 0.0
    deadline: float = inf
    behind_s: float = 0.0
    longer_s: float = 0.0
    state: State | None = None
    left: set[int] = field(default_factory=set)

    @property
    def plan(self) -> Calls:
        return self

    @property
    def specs(self) -> Sequence[WorkSpec]:
        return [CALL] * self.count

    def attach(self, out: Outbox, ask: AskQueues) -> None:
        self._out, self._ask = out, ask

    def handle(self, event: RunEvent, now: float) -> None:
        if isinstance(event, Started):
            self.left = set(range(self.count))
            for i in range(self.count):
                self._ask(Submit(self.id, i, -1))
        elif isinstance(event, (Completed, Failed)):
            self.left.discard(event.primitive)
            if not self.left and self.state is None:
                self.state = State.OK
                self._out.append(Finish(self.id, State.OK, None, ()))


@dataclass
class Flight:
    """A slice of rows, or a call, on an instance. out: rows that have not come back; silent: those
    without a token. Of what the core does not know any more nothing is told."""

    instance: int
    batch: int
    run: str
    primitive: int
    lo: int
    out: set[int]
    silent: set[int]
    rows: bool
    hangs: bool = False
    stopped: bool = False


class World:
    """rows: by run of rows, how many. batch, route, options: names of the policies, and options of
    the first. window: rows of a window, at most. troubles: whether something fails that is no row.
    overdue: whether calls may hang, and somebody notices."""

    def __init__(
        self,
        seed: int,
        rows: dict[str, int],
        *,
        batch: str = "critical_path",
        route: str = "least_loaded",
        instances: int = 2,
        window: int = 40,
        troubles: bool = True,
        overdue: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.random, self.now, self.window = Random(seed), 0.0, window
        limits = [Limits(200, 8, 1, True, 400, 4)] * instances
        profile = EngineProfile(max_batch=200, max_sequences=8, step=StepTime(0.01, 0, 0, 1e-4))
        policy = batching.make(batch, **options or {})
        router = routing.make(route)
        self.queue = EngineQueue("llm", limits, policy, router, [profile] * instances)
        if overdue:
            self.queue.overdue, self.queue.rows.overdue = Overdue(), Overdue()
        self.core = Core({"llm": self.queue}, lambda run, i: Size(20, _keys(5, run, i)))
        self.troubles = troubles
        self.flights: list[Flight] = []
        self.timers: list[float] = []
        self.over: dict[str, Counter[tuple[int, int]]] = {}
        self.failed: dict[str, int] = {}
        self.sent: Counter[tuple[str, int, int]] = Counter()
        self.ended: dict[str, Finish] = {}
        self.wanted: Counter[str] = Counter()
        self.left = dict(rows)
        self.down: set[int] = set()
        self.calls = 0
        for name in rows:
            specs = RowSpecs("llm", "rows", interactive=False, output=8)
            run = RowRun(name, specs, Asker(name.partition(":")[0], "tables", name))
            self.over[name], self.failed[name] = Counter(), 0
            self.core.add(run)
            self.perform(self.core.tell(name, Started({}), self.now))

    # --- what the core says -----------------------------------------------------------------

    def perform(self, commands: Sequence[Any]) -> None:
        for command in commands:
            if isinstance(command, Dispatch):
                self.dispatched(command)
            elif isinstance(command, RowsOver):
                rows = [*(command.given or ()), *(row for row, _ in command.failed)]
                self.failed[command.run] += len(command.failed)
                self.over[command.run].update((command.primitive, row) for row in rows)
            elif isinstance(command, RowsWanted):
                self.wanted[command.run] += 1
            elif isinstance(command, PolicyFailed):
                raise command.error
            elif isinstance(command, Finish):
                self.ended[command.run] = command
            elif isinstance(command, SetTimer):
                heappush(self.timers, command.at)
            elif isinstance(command, AbortRequest):
                self.flights = [
                    one
                    for one in self.flights
                    if (one.run, one.primitive, one.batch)
                    != (command.run, command.primitive, command.batch)
                ]
            elif isinstance(command, AbortRows):
                (found,) = [
                    one
                    for one in self.flights
                    if (one.run, one.primitive, one.batch, one.lo)
                    == (command.run, command.primitive, command.batch, command.lo)
                ]
                found.stopped, found.hangs = True, False
                if self.random.random() < 0.5:
                    self.flights.remove(found)
                    self.aborted(found)

    def aborted(self, one: Flight) -> None:
        """An abort ends at once; what comes of it may come for nobody."""
        cause = Cause(EngineError("aborted"))
        failed = [RowFailure(row, cause, row not in one.silent) for row in sorted(one.out)]
        self.told(RowsEnded("llm", one.batch, one.run, one.primitive, one.lo, (), failed))

    def dispatched(self, command: Dispatch) -> None:
        for work, lo, hi in command.slices:
            rows = set(range(lo, hi)) if work.row_tokens else {0}
            one = Flight(
                command.instance,
                command.batch,
                work.run,
                work.primitive,
                lo,
                rows,
                set(rows),
                bool(work.row_tokens),
            )
            if one.rows:
                self.check_sent(one)
            self.flights.append(one)

    def check_sent(self, one: Flight) -> None:
        """None of these rows is over, or out somewhere else where it may yet be answered."""
        for row in sorted(one.out):
            where = f"row {row} of window {one.primitive} of {one.run}"
            assert not self.over[one.run][one.primitive, row], f"{where} is asked again"
            self.sent[one.run, one.primitive, row] += 1
        for other in self.flights:
            same = (other.run, other.primitive) == (one.run, one.primitive)
            twice = same and other.rows and not other.stopped and other.out & one.out
            assert not twice, f"{twice} of window {one.primitive} of {one.run} are out twice"
        instance = self.queue.instances[one.instance]
        assert instance.entries <= 8

    # --- what happens -----------------------------------------------------------------------

    def told(self, event: QueueEvent) -> None:
        self.perform(self.core.handle(event, self.now))

    def flush(self) -> None:
        while self.core.unsettled:
            self.perform(self.core.flush(self.now))

    def step(self) -> None:
        """Something happens."""
        self.now += self.random.uniform(0, 0.05)
        if self.timers and all(one.hangs for one in self.flights):
            self.now = max(self.now, self.timers[0])
        while self.timers and self.timers[0] <= self.now:
            heappop(self.timers)
            self.told(Timer("llm"))
        if self.wanted and self.random.random() < 0.7:
            self.source()
        self.random.choices(
            (self.rows_end, self.call_ends, self.call_comes, self.trouble), (8, 4, 1, 0.5)
        )[0]()
        self.flush()

    def source(self) -> None:
        run = self.random.choice(sorted(self.wanted))
        self.wanted -= Counter({run: 1})
        count = min(self.left[run], self.random.randint(1, self.window))
        self.left[run] -= count
        tokens = self.random.randint(1, 60)
        found = min(tokens - 1, self.random.choice((0, 8)))
        came = RowsCame(count, tokens, found, _keys(tokens // 4, run))
        event = came if count else SourceEnded()
        if run in self.core.runs:
            self.perform(self.core.tell(run, event, self.now))

    def rows_end(self) -> None:
        flying = [one for one in self.flights if one.rows and not one.hangs]
        if not flying:
            return
        one = self.random.choice(flying)
        some = sorted(one.out)
        if self.random.random() < 0.6:
            some = self.random.sample(some, self.random.randint(1, len(some)))
        tokens = {row for row in one.silent if self.random.random() < 0.5}
        ended, failed, begun = list[int](), list[RowFailure](), set(tokens)
        weights = (30, 4, 1, 2, 1) if self.troubles else (30, 2, 0, 0, 0)
        for row in sorted(some):
            cause = self.random.choices((None, BROKEN, WRONG, BUSY, AWAY), weights)[0]
            if cause is None:
                ended.append(row)
                begun |= {row} & one.silent
            else:
                failed.append(RowFailure(row, cause, row not in one.silent or row in tokens))
        one.out -= set(some)
        one.silent -= begun | set(some)
        if not one.out:
            self.flights.remove(one)
        place = "llm", one.batch, one.run, one.primitive, one.lo
        told = RowsEnded(*place, ranges(ended), failed, len(begun), 1, 3, ended)
        self.told(told)

    def call_ends(self) -> None:
        flying = [one for one in self.flights if not (one.rows or one.hangs)]
        if not flying:
            return
        one = self.random.choice(flying)
        self.flights.remove(one)
        outcome: Any = self.random.choices(({"sequence": 1}, BROKEN, BUSY), (8, 1, 1))[0]
        if not self.troubles:
            outcome = {"sequence": 1}
        self.told(CallEnded("llm", one.batch, one.run, one.primitive, outcome, 0, 5))

    def call_comes(self) -> None:
        if self.over.keys() <= self.ended.keys():
            return
        self.calls += 1
        run = Calls(f"c{self.calls}", Asker("t", "chat", f"c{self.calls}"), 2, began=self.now)
        self.core.add(run)
        self.perform(self.core.tell(run.id, Started({}), self.now))

    def trouble(self) -> None:
        if not self.troubles:
            return
        if self.queue.overdue is not None and self.flights and self.random.random() < 0.5:
            one = self.random.choice(self.flights)
            one.hangs = not one.hangs
            return
        count = len(self.queue.instances)
        i = self.random.randrange(count)
        if i in self.down:
            self.down.discard(i)
            self.told(InstanceUp("llm", i))
        elif len(self.down) < count - 1:
            self.down.add(i)
            if self.random.random() < 0.5:
                self.told(InstanceDraining("llm", i))
                return
            gone = [one for one in self.flights if one.instance == i]
            self.flights = [one for one in self.flights if one.instance != i]
            self.told(InstanceDown("llm", i))
            for one in gone:  # what comes from there afterwards comes for nobody
                if one.rows and self.random.random() < 0.3:
                    rows = sorted(one.out)
                    place = "llm", one.batch, one.run, one.primitive, one.lo
                    self.told(RowsEnded(*place, ranges(rows), (), len(one.silent), 1, 1, rows))

    def run(self, steps: int = 4000) -> None:
        """Until all rows are over and nothing is in flight."""
        for _ in range(steps):
            if self.over.keys() <= self.ended.keys() and self.queue.idle:
                return
            self.step()
        raise AssertionError(f"rows do not end: {self.left}, {len(self.flights)} in flight")


def _keys(blocks: int, *prompt: object) -> tuple[Hashable, ...]:
    """Of a prompt of so many blocks; each says what stands before it, too."""
    return tuple((*prompt, k) for k in range(blocks))
