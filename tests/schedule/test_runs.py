"""A run need not be a graph: a core knows runs by what it needs of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import pytest

from teola.graph import Op
from teola.policies import batching, routing
from teola.policies.asker import Asker
from teola.policies.batching.topology import Topology
from teola.policies.routing.base import EngineView
from teola.policies.work import Work, WorkSpec
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    BatchCompleted,
    Cancelled,
    Cause,
    Completed,
    Dispatch,
    Failed,
    Finish,
    Outbox,
    RunEvent,
    Started,
    State,
    Submit,
    Withdraw,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.instances import Limits
from teola.schedule.run import AskQueues, Run
from tests.planted import catches, edited
from tests.schedule.plans import plan, tool

WINDOW = 3
"""Rows that are out at once."""


@dataclass(frozen=True)
class Rows:
    """The same work for each of `count` rows."""

    count: int

    @property
    def specs(self) -> list[WorkSpec]:
        spec = WorkSpec("e", Op.TOOL_CALL, "row", Op.TOOL_CALL, False, 0, retries=1, measured=False)
        return [spec] * self.count


@dataclass
class RowsRun:
    """Rows of a table: no graph, no store; a window of them is out at a time."""

    id: str
    plan: Rows
    asker: Asker
    began: float = 0.0
    admitted: float = 0.0
    deadline: float = inf
    behind_s: float = 0.0
    longer_s: float = 0.0
    state: State | None = None
    ended: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    out: set[int] = field(default_factory=set)
    next: int = 0

    def attach(self, out: Outbox, ask: AskQueues) -> None:
        self._out, self._ask = out, ask

    def handle(self, event: RunEvent, now: float) -> None:
        if self.state is not None:
            return
        if isinstance(event, Cancelled):
            for row in sorted(self.out):
                self._ask(Withdraw(self.id, row))
            self._finish(State.CANCELLED)
            return
        if isinstance(event, (Completed, Failed)):
            self.out.discard(event.primitive)
            (self.ended if isinstance(event, Completed) else self.failed).append(event.primitive)
        while self.next < self.plan.count and len(self.out) < WINDOW:
            self.out.add(self.next)
            self._ask(Submit(self.id, self.next, -1))
            self.next += 1
        if not self.out:
            self._finish(State.PARTIAL if self.failed else State.OK)

    def _finish(self, state: State) -> None:
        self.state = state
        self._out.append(Finish(self.id, state, None, ()))


def bed(rows: int, policy: Topology | None = None) -> tuple[Core, RowsRun]:
    limits = Limits(2, 8, 1, False)
    least = routing.make("least_loaded")
    queue = EngineQueue("e", [limits], policy or batching.make("fifo"), least)
    core = Core({"e": queue}, lambda run, i: 1)
    run = RowsRun("table", Rows(rows), Asker("t", "tables", "table"))
    core.add(run)
    return core, run


def test_rows_run_beside_graphs_through_the_same_queue() -> None:
    core, run = bed(5)
    known: Run = run
    assert core.tell(run.id, Started({}), 0.0) == []
    sent: list[list[int]] = []
    commands = core.flush(0.0)
    while core.runs:
        (dispatch,) = commands
        assert isinstance(dispatch, Dispatch)
        assert all(piece.work.asker is known.asker for piece in dispatch.slices)
        sent.append([piece.work.primitive for piece in dispatch.slices])
        bad = Cause(ValueError("no such row"))
        outcomes = [bad if row == 3 else {"out": 1} for row in sent[-1]]
        finished = core.handle(BatchCompleted("e", dispatch.batch, outcomes), 1.0)
        commands = core.flush(1.0)
    assert sent == [[0, 1], [2, 3], [4]]
    assert finished == [Finish("table", State.PARTIAL, None, ())]
    assert (run.ended, run.failed) == ([0, 1, 2, 4], [3])


def test_what_such_a_run_withdraws_is_aborted() -> None:
    core, run = bed(5)
    core.tell(run.id, Started({}), 0.0)
    (dispatch,) = core.flush(0.0)
    aborted = [AbortRequest("e", 0, dispatch.batch, "table", row) for row in (0, 1)]
    finish = Finish("table", State.CANCELLED, None, ())
    assert core.tell(run.id, Cancelled(), 0.5) == [*aborted, finish]
    assert not core.runs


class Looking(Topology):
    """Wants no keys, and looks at its engine all the same."""

    view: EngineView

    def attach(self, view: EngineView) -> None:
        self.view = view

    def add(self, work: Work, now: float) -> None:
        super().add(work, now)
        self.seen = [instance.running for instance in self.view.instances(now)]


@catches(
    "keys-only",
    "a batching policy sees its engine only if it wants keys",
    edited("teola.schedule.placing:Placing.__init__", "isinstance(line.policy, Attached)", "False"),
)
def test_a_batching_policy_sees_its_engine_without_wanting_keys() -> None:
    policy = Looking()
    core, run = bed(3, policy)
    core.tell(run.id, Started({}), 0.0)
    assert len(policy.view) == 1
    assert policy.view.limits[0].max_batch == 2
    assert policy.seen == [0]


@pytest.mark.parametrize("admitted", [None, 0.0, 1.0, 5.0])
def test_a_run_is_as_old_as_its_query_even_if_that_came_at_time_0(admitted: float | None) -> None:
    run = GraphRun("q/part", plan(tool("a")), began=5.0, admitted=admitted)
    assert run.admitted == (5.0 if admitted is None else admitted)
