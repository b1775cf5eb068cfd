"""Core: events from drivers become commands for drivers; runs and queues only meet here."""

from __future__ import annotations

from typing import Any

import pytest

from teola.errors import EngineError
from teola.graph import QUERY, Ref
from teola.policies import batching, routing
from teola.policies.work import Size
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    Cancelled,
    Cause,
    Command,
    Completed,
    Control,
    Dispatch,
    Finish,
    FirstToken,
    InstanceDown,
    InstanceUp,
    Joined,
    Measure,
    MemberCompleted,
    Release,
    Retried,
    SetTimer,
    Sized,
    Started,
    State,
    Timer,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.instances import Limits
from teola.schedule.plan import Plan
from tests.planted import catches, edited
from tests.schedule.ends import Ended, ended
from tests.schedule.plans import aggregate, call, plan, tool

START = Started({"question": 1, "notes": 2})


def queue(name: str, continuous: bool, instances: int = 1, **options: Any) -> EngineQueue:
    policy = batching.make(options.pop("policy", "topology"), **options)
    limits = Limits(100 if continuous else 4, 8, 1, continuous)
    return EngineQueue(name, [limits] * instances, policy, routing.make("least_loaded"))


def core(p: Plan, *, instances: int = 1, runs: int = 1, **options: Any) -> Core:
    queues = {
        "python": queue("python", False, instances, **options),
        "llm": queue("llm", True, instances),
    }
    made = Core(queues, lambda run, i: 10 if p.primitives[i].engine == "llm" else 1)
    for k in range(runs):
        made.add(GraphRun(f"q{k}", p))
    return made


def only(commands: list[Command], kind: type) -> list[Any]:
    return [command for command in commands if isinstance(command, kind)]


def finished(d: Dispatch, **counts: int) -> Ended:
    return ended(d, *[counts or {"out": 1}] * len(d.slices))


def test_a_query_from_start_to_end() -> None:
    c = core(plan(tool("a"), aggregate("b", "a")))
    assert c.tell("q0", START, 0.0) == []
    (dispatch,) = c.flush(0.0)
    assert isinstance(dispatch, Dispatch)
    assert c.flush(0.0) == []
    assert c.handle(finished(dispatch), 1.0) == [Control("q0", 1)]
    commands = c.tell("q0", Completed(1, {"out": 1}), 1.0)
    assert commands == [Release("q0", 0), Finish("q0", State.OK, None, ())]
    assert c.runs == {}
    assert c.flush(1.0) == []
    assert all(q.idle for q in c.queues.values())


def test_what_becomes_ready_together_shares_a_batch() -> None:
    c = core(plan(tool("a")), runs=3)
    for k in range(3):
        c.tell(f"q{k}", START, 0.0)
    (dispatch,) = c.flush(0.0)
    assert [piece.work.run for piece in dispatch.slices] == ["q0", "q1", "q2"]  # type: ignore[union-attr]


def test_a_call_runs_as_one() -> None:
    c = core(plan(*call("m", 2), tool("x", "m.0"), tool("y", "m.1"), aggregate("z", "x", "y")))
    c.tell("q0", START, 0.0)
    (dispatch,) = only(c.flush(0.0), Dispatch)
    assert c.handle(FirstToken("llm", 0, "q0", 0), 1.0) == []
    both = {"out": 1, "sequence": 1}
    assert only(c.handle(MemberCompleted("llm", 0, "q0", 0, 1, both), 2.0), Finish) == []
    (x,) = only(c.flush(2.0), Dispatch)
    assert x.engine == "python"
    c.handle(MemberCompleted("llm", 0, "q0", 0, 2, both), 3.0)
    c.handle(finished(dispatch), 3.0)
    c.handle(finished(x), 3.0)
    (y,) = only(c.flush(3.0), Dispatch)
    assert only(c.handle(finished(y), 4.0), Control) == [Control("q0", 5)]
    assert c.queues["llm"].idle


def test_cancelling_aborts_and_frees() -> None:
    c = core(plan(tool("a"), *call("m"), tool("b", "a", "m")))
    c.tell("q0", START, 0.0)
    sent = {d.engine: d for d in only(c.flush(0.0), Dispatch)}
    commands = c.tell("q0", Cancelled(), 1.0)
    assert {a.engine for a in only(commands, AbortRequest)} == {"python", "llm"}
    (finish,) = only(commands, Finish)
    assert finish.state is State.CANCELLED
    gone = Cause(EngineError("aborted"))
    for d in sent.values():
        assert c.handle(ended(d, gone), 2.0) == []
    assert all(q.idle for q in c.queues.values())


def test_a_cancelled_query_leaves_the_queue_to_others() -> None:
    c = core(plan(tool("a", batchable=False)), runs=6)
    for k in range(6):
        c.tell(f"q{k}", START, 0.0)
    (first,) = only(c.flush(0.0), Dispatch)
    assert [p.work.run for p in first.slices] == ["q0", "q1", "q2", "q3"]
    c.tell("q4", Cancelled(), 0.5)
    c.handle(finished(first), 1.0)
    (second,) = only(c.flush(1.0), Dispatch)
    assert [p.work.run for p in second.slices] == ["q5"]


def test_a_lost_instance_is_survived() -> None:
    p = plan(*call("m"))
    c = core(p, instances=2)
    c.tell("q0", START, 0.0)
    (dispatch,) = only(c.flush(0.0), Dispatch)
    (retried,) = c.handle(InstanceDown("llm", dispatch.instance), 1.0)
    assert isinstance(retried, Retried)
    assert "is gone" in str(retried.cause.error)
    (again,) = only(c.flush(1.0), Dispatch)
    assert again.instance != dispatch.instance
    assert c.handle(InstanceUp("llm", dispatch.instance), 2.0) == []


def test_a_function_is_repeated_only_if_it_is_pure() -> None:
    c = core(plan(tool("a")), instances=2)
    c.tell("q0", START, 0.0)
    (dispatch,) = only(c.flush(0.0), Dispatch)
    (finish,) = c.handle(InstanceDown("python", dispatch.instance), 1.0)
    assert isinstance(finish, Finish)
    assert (finish.state, finish.failed) == (State.FAILED, 0)


@catches(
    "not-given-up",
    "what is queued waits for instances that never come back",
    edited(Core.flush, "queue.instances.lost", "False"),
)
def test_what_no_instance_is_left_for_fails() -> None:
    c = core(plan(tool("a"), *call("m"), tool("b", "a", "m")), runs=2)
    c.tell("q0", START, 0.0)
    sent = {d.engine: d for d in only(c.flush(0.0), Dispatch)}
    assert c.handle(InstanceDown("llm", 0, healing=False), 1.0)  # what ran there is tried again
    c.tell("q1", START, 1.0)
    aborted, *finished = c.flush(1.0)
    assert aborted == AbortRequest("python", 0, sent["python"].batch, "q0", 0)
    assert [(f.run, f.state) for f in finished] == [("q0", State.FAILED), ("q1", State.FAILED)]  # type: ignore[union-attr]
    assert not c.runs


def test_work_waits_while_one_instance_may_come_back() -> None:
    """And fails at once when the last of these has been given up."""
    c = core(plan(*call("m")), runs=2, instances=2)
    c.handle(InstanceDown("llm", 0), 0.0)
    c.handle(InstanceDown("llm", 1), 0.0)
    c.tell("q0", START, 0.0)
    assert c.flush(0.0) == []
    c.handle(InstanceDown("llm", 0, healing=False), 100.0)
    assert c.flush(100.0) == []
    c.handle(InstanceUp("llm", 1), 110.0)
    (dispatch,) = only(c.flush(110.0), Dispatch)
    assert (dispatch.instance, dispatch.slices[0].work.run) == (1, "q0")
    c.handle(InstanceDown("llm", 1), 111.0)  # what was sent there is tried again
    c.tell("q1", START, 111.0)
    assert c.flush(111.0) == []
    c.handle(InstanceDown("llm", 1, healing=False), 120.0)
    assert [f.run for f in only(c.flush(120.0), Finish)] == ["q0", "q1"]


def test_a_timer_wakes_its_queue() -> None:
    c = core(plan(tool("a")), policy="fifo", max_wait_s=0.1)
    c.tell("q0", START, 0.0)
    assert c.flush(0.0) == [SetTimer("python", 0.1)]
    assert c.handle(Timer("python"), 0.1) == []
    assert len(only(c.flush(0.1), Dispatch)) == 1


def test_events_for_a_query_that_has_ended_are_ignored() -> None:
    c = core(plan(tool("a")))
    c.tell("q0", START, 0.0)
    c.flush(0.0)
    c.tell("q0", Cancelled(), 0.5)
    assert c.tell("q0", Completed(0, {"out": 1}), 1.0) == []
    assert c.tell("nobody", START, 1.0) == []


def test_a_run_that_is_dropped_leaves_nothing_at_its_engines() -> None:
    a, b = call("a"), call("b")
    both = {"a": Ref(a[-1].id, "out"), "b": Ref(b[-1].id, "out")}
    c = core(plan(*a, *b, outputs=both), runs=2)
    for run in ("q0", "q1"):
        c.tell(run, START, 0.0)
    slices = [one for d in only(c.flush(0.0), Dispatch) for one in d.slices]
    own = {(one.work.run, one.work.primitive) for one in slices if one.work.run == "q0"}
    assert (len(slices), len(own)) == (4, 2)
    dropped = c.drop("q0", 1.0)
    assert {type(command) for command in dropped} == {AbortRequest}
    assert {(abort.run, abort.primitive) for abort in only(dropped, AbortRequest)} == own
    assert [*c.runs] == ["q1"]
    left = [work for work in c.queues["llm"].works.values() if not work.withdrawn]
    assert [work.run for work in left] == ["q1", "q1"]
    assert "llm" in c.unsettled, "what it took is free for others"


@pytest.mark.parametrize("later", [False, True])
def test_who_follows_what_is_in_flight_is_told_to_its_driver(later: bool) -> None:
    """Whether it is measured at once or afterwards."""
    p = plan(tool("a", Ref(QUERY, "notes"), batchable=True))
    size = Size(3, (), b"same")
    made = Core({"python": queue("python", False)}, lambda run, i: None if later else size)
    said = list[Command]()
    for k in range(2):
        made.add(GraphRun(f"q{k}", p))
        said += made.tell(f"q{k}", START, 0.0)
        if later:
            assert only(said, Measure) == [Measure(f"q{j}", 0) for j in range(k + 1)]
            said += made.handle(Sized("python", f"q{k}", 0, size), 0.0)
        said += made.flush(0.0)
    assert len(only(said, Dispatch)) == 1
    assert only(said, Joined) == [Joined("python", "q1", 0, ("q0", 0))]
