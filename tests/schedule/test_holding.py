"""What a routing policy holds: nobody is told of it, and it goes in time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from teola.policies import batching
from teola.policies.asker import Asker
from teola.policies.routing import ANY, RoutingPolicy
from teola.policies.routing.base import HELD, MOST_HELD_S, Left, Paused, holdable
from teola.policies.work import Work
from teola.schedule import validate
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    CallEnded,
    Cancelled,
    Cause,
    Dispatch,
    Failed,
    InstanceDown,
    InstanceUp,
    ProgramPaused,
    SetTimer,
    Tell,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.instances import Limits
from teola.schedule.placing import Placing
from teola.schedule.waiting_line import WaitingLine
from tests.planted import catches, edited
from tests.schedule.plans import call as call_of_a_plan
from tests.schedule.plans import plan, tool
from tests.schedule.test_core import START
from tests.schedule.test_core import queue as batch_engine
from tests.schedule.test_placing import LOST, call, queue_of, sent


class Gate(RoutingPolicy):
    """Holds what is called so, until it is let go."""

    observes = (Left, Paused)

    def __init__(self) -> None:
        self.holds, self.gone = set[str](), list[Work]()
        self.told, self.wake = list[Any](), None

    def place(self, work: Work, now: float) -> int:
        return HELD if work.run in self.holds else ANY

    def free(self, now: float) -> Iterable[Work]:
        gone, self.gone = self.gone, []
        return gone

    def wake_at(self, now: float) -> float | None:
        return self.wake

    def observe(self, event: Any, now: float) -> None:
        self.told.append(event)


def holding(*runs: str, instances: int = 2) -> tuple[EngineQueue, Gate]:
    gate = Gate()
    gate.holds |= set(runs)
    queue = queue_of(gate, instances)
    for run in runs:
        queue.submit(call(run), 0.0)
    return queue, gate


def timers(queue: EngineQueue, now: float = 0.0) -> list[float]:
    return [c.at for c in queue.dispatch(now) if isinstance(c, SetTimer)]


def let_go(queue: EngineQueue, gate: Gate, run: str) -> None:
    gate.holds.discard(run)
    gate.gone.append(queue.works[run, 0])


@catches(
    "held-is-sent",
    "what is held is queued like anything else",
    edited(Placing.bind, "return held", "return False"),
)
def test_what_is_held_is_not_sent_though_there_is_room() -> None:
    queue, _ = holding("a")
    assert sent(queue) == []
    assert queue.queued == 1
    queue.submit(call("b"), 0.0)
    assert sent(queue) == [(0, ["b"])]


@catches(
    "nobody-is-freed",
    "what its policy lets go is not asked about",
    edited(Placing._free_held, "self._no_longer_held(now)", "()"),
)
def test_what_is_let_go_is_sent_in_the_policys_order() -> None:
    queue, gate = holding("a", "b", "c", instances=1)
    let_go(queue, gate, "c")
    let_go(queue, gate, "a")
    assert sent(queue, 1.0) == [(0, ["c", "a"])]
    assert list(queue.line.held) == [("b", 0)]


def test_what_is_asked_about_may_be_held_again() -> None:
    queue, gate = holding("a")
    gate.gone.append(queue.works["a", 0])
    assert sent(queue, 1.0) == []
    assert list(queue.line.held) == [("a", 0)]


@catches(
    "held-for-ever",
    "what is held is not asked about after its time",
    edited(Placing._free_held, "takewhile(", "takewhile(lambda _: False, ()) or ("),
    edited(Placing.round_at, "due = next", "due = MOST_HELD_S + next"),
)
def test_nothing_is_held_for_more_than_its_time() -> None:
    queue, _ = holding("a")
    assert timers(queue) == [MOST_HELD_S]
    assert sent(queue, MOST_HELD_S - 1) == []
    queue.woken(None, MOST_HELD_S)  # type: ignore[arg-type]
    assert sent(queue, MOST_HELD_S) == [(0, ["a"])]


@catches(
    "no-wake",
    "nobody asks when the policy wants to be asked",
    edited(Placing.round_at, "(due, declined_until, wanted)", "(due, declined_until)"),
)
def test_the_policy_is_asked_when_it_wants_to_be() -> None:
    queue, gate = holding("a")
    gate.wake = 7.0
    assert timers(queue) == [7.0]


def test_what_was_tried_or_is_bound_is_not_held() -> None:
    assert holdable(call("a", arrival=0.0), 299.0)
    assert not holdable(call("a", arrival=0.0), MOST_HELD_S)
    assert not holdable(call("a", tries=1), 0.0)
    assert not holdable(call("a", affinity=1), 0.0)


def test_what_failed_is_not_held_again() -> None:
    gate = Gate()
    queue = queue_of(gate)
    queue.submit(call("a"), 0.0)
    ((at, _),) = sent(queue)
    gate.holds.add("a")
    queue.call_ended(CallEnded("e", 0, "a", 0, LOST, None, None), 1.0)
    assert sent(queue, 1.0) == [(1 - at, ["a"])]


@catches(
    "held-and-withdrawn",
    "what is withdrawn goes on being held",
    edited(WaitingLine.remove, "self.held.pop(", "self.held.get("),
)
def test_what_is_held_can_be_withdrawn() -> None:
    queue, gate = holding("a")
    queue.withdraw("a", 0, 1.0)
    assert [type(event) for event in gate.told] == [Left]
    assert not queue.line.held
    assert queue.idle
    validate.validate_queue(queue, 1.0)


def test_what_is_held_fails_when_no_instance_is_left() -> None:
    queue, _ = holding("a", instances=1)
    queue.down(InstanceDown("e", 0, healing=False), 1.0)
    (told,) = queue.give_up(1.0)
    assert isinstance(told, Tell)
    assert isinstance(told.event, Failed)
    assert isinstance(told.event.cause, Cause)
    assert queue.idle


def test_what_is_held_stays_so_while_instances_come_and_go() -> None:
    queue, gate = holding("a", instances=2)
    queue.down(InstanceDown("e", 0), 1.0)
    assert sent(queue, 1.0) == []
    queue.up(InstanceUp("e", 0), 2.0)
    assert sent(queue, 2.0) == []
    let_go(queue, gate, "a")
    assert len(sent(queue, 3.0)) == 1


@catches(
    "nobody-hears-of-programs",
    "policies are not told what programs do",
    edited(Placing.paused, "Paused in self._observed", "False"),
)
def test_policies_hear_of_programs() -> None:
    queue, gate = holding()
    queue.paused(ProgramPaused("e", "p", "tool"), 0.0)
    queue.paused(ProgramPaused("e", "p", ended=True), 1.0)
    assert gate.told == [Paused("p", "tool", False), Paused("p", "", True)]


@pytest.mark.parametrize("dropped", [False, True])
def test_what_the_end_of_a_program_lets_go_is_sent_at_once(dropped: bool) -> None:
    """Though the program ended at another engine, and nothing happens at this one. dropped: it
    cannot go on."""
    gate = Gate()
    gate.holds.add("a")
    llm = EngineQueue("llm", [Limits(100, 8, 1, True)], batching.make("fifo"), gate)
    core = Core({"python": batch_engine("python", False), "llm": llm}, lambda run, i: 10)
    for run, primitives in (("a", call_of_a_plan("m")), ("p", [tool("t")])):
        core.add(GraphRun(run, plan(*primitives)))
        core.tell(run, START, 0.0)
        core.flush(0.0)
    assert list(llm.line.held) == [("a", 0)]
    let_go(llm, gate, "a")
    if dropped:
        core.drop("p", 1.0)
    else:
        core.tell("p", Cancelled(), 1.0)
    assert gate.told == [Paused("p", "", True)]
    sent_to = [command.engine for command in core.flush(1.0) if isinstance(command, Dispatch)]
    assert sent_to == ["llm"]


def test_a_program_goes_on_when_a_query_inside_of_it_ends() -> None:
    gate = Gate()
    llm = EngineQueue("llm", [Limits(100, 8, 1, True)], batching.make("fifo"), gate)
    core = Core({"llm": llm}, lambda run, i: 10)
    asker = Asker(app="a", program="p", admitted=0.0)
    core.add(GraphRun("inner", plan(*call_of_a_plan("m")), asker=asker))
    core.tell("inner", Cancelled(), 1.0)
    assert gate.told == []


def test_a_held_work_that_is_bound_is_found_out() -> None:
    queue, _ = holding("a")
    queue.works["a", 0].affinity = 1
    with pytest.raises(AssertionError, match="is held, and bound to 1"):
        validate.validate_queue(queue, 0.0)
