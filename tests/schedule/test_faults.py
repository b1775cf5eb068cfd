"""A policy that is wrong is told at once, by its name, and nothing waits for it in vain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from teola.policies import batching, routing
from teola.policies.batching.fifo import Fifo
from teola.policies.routing.base import Loads, RoutingPolicy
from teola.policies.work import Slice, Slots, Work
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import Dispatch, Finish, Started, State
from teola.schedule.faults import PolicyFailed
from teola.schedule.graph_run import GraphRun
from teola.schedule.instances import Limits
from tests.schedule.ends import ended
from tests.schedule.plans import plan, tool

START = Started({"question": 1, "notes": 2})


class Once(Fifo):
    """Wrong in the method `at` as often as `wrong` says, and well again afterwards."""

    def __init__(self, at: str, wrong: int = 1) -> None:
        super().__init__()
        self.at, self.wrong = at, wrong

    @property
    def eager(self) -> bool:
        return False

    def _raise(self, at: str) -> None:
        if at == self.at and self.wrong:
            self.wrong -= 1
            raise KeyError("oops")

    def add(self, work: Work, now: float) -> None:
        super().add(work, now)
        self._raise("add")

    def remove(self, work: Work, now: float) -> None:
        super().remove(work, now)
        self._raise("remove")

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        self._raise("choose")
        found = super().choose(slots, now)
        if self.wrong and self.at == "twice":
            self.wrong -= 1
            return found * 2
        return [] if self.wrong and self.at == "never" else found

    def wake_at(self, now: float) -> float | None:
        return None


class Lost(RoutingPolicy):
    """Names an instance that is not, by the method `at`, or raises there."""

    def __init__(self, at: str, gives: int | None) -> None:
        self.at, self.gives = at, gives

    def _given(self) -> int:
        if self.gives is None:
            raise KeyError("oops")
        return self.gives

    def order(self, loads: Loads, now: float) -> Iterable[int]:
        return [self._given()] if self.at == "order" else super().order(loads, now)

    def place(self, work: Work, now: float) -> int:
        return self._given() if self.at == "place" else super().place(work, now)


def core(policy: batching.BatchingPolicy, router: RoutingPolicy, instances: int, runs: int) -> Core:
    queue = EngineQueue("python", [Limits(4, 8, 1, False)] * instances, policy, router)
    queue.faults.batching, queue.faults.routing = "b", "r"
    made = Core({"python": queue}, lambda run, i: 1)
    for k in range(runs):
        made.add(GraphRun(f"q{k}", plan(tool("a"))))
        made.tell(f"q{k}", START, 0.0)
    return made


def ends(commands: list[Any]) -> list[tuple[str, State, str]]:
    found = [c for c in commands if isinstance(c, Finish)]
    return [(c.run, c.state, str(c.cause.error) if c.cause else "") for c in found]


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("add", "KeyError('oops')"),
        ("choose", "KeyError('oops')"),
        ("never", "2 wait, every instance is idle, and it chooses none of them"),
    ],
)
def test_a_batching_policy_that_is_wrong_once(at: str, told: str) -> None:
    c = core(Once(at), routing.make("least_loaded"), 1, 2)
    commands = c.flush(0.0)
    why = f"engine 'python': batching policy 'b' failed: {told}"
    assert ends(commands) == [("q0", State.FAILED, why), ("q1", State.FAILED, why)]
    assert [str(c.error) for c in commands if isinstance(c, PolicyFailed)] == [why]
    if at == "never":
        c.queues["python"].line.policy.wrong = 0  # type: ignore[attr-defined]
    well(c)


@pytest.mark.parametrize("at", ["twice", "remove"])
def test_what_was_sent_before_the_fault_goes_on(at: str) -> None:
    """The second half of the choice is not sent, and the first half is not lost."""
    c = core(Once(at), routing.make("least_loaded"), 1, 5)
    commands = c.flush(0.0)
    (sent,) = [c for c in commands if isinstance(c, Dispatch)]
    assert len(sent.slices) == 4
    ((run, state, why),) = ends(commands)
    assert (run, state) == ("q4", State.FAILED)
    assert why.startswith("engine 'python': batching policy 'b' failed: ")
    assert {state for _, state, _ in ends(c.handle(ended(sent, *[{"out": 1}] * 4), 1.0))} == {
        State.OK
    }
    well(c)


@pytest.mark.parametrize("at", ["order", "place"])
@pytest.mark.parametrize("gives", [99, -7, None])
def test_a_routing_policy_that_names_no_instance(at: str, gives: int | None) -> None:
    c = core(batching.make("fifo"), Lost(at, gives), 2, 2)
    why = f"engine 'python': routing policy 'r' failed: {'' if gives else 'KeyError'}"
    found = ends(c.flush(0.0))
    assert [run for run, _, _ in found] == ["q0", "q1"]
    assert all(state is State.FAILED and told.startswith(why) for _, state, told in found)
    assert all(gives is None or str(gives) in told for _, _, told in found)


def well(c: Core) -> None:
    """A later query runs as if nothing had been."""
    c.flush(1.0)
    c.add(GraphRun("later", plan(tool("a"))))
    c.tell("later", START, 2.0)
    (sent,) = [x for x in c.flush(2.0) if isinstance(x, Dispatch)]
    assert ends(c.handle(ended(sent, {"out": 1}), 3.0)) == [("later", State.OK, "")]
    assert c.queues["python"].idle


def test_it_is_no_fault_to_wait_for_what_is_in_flight() -> None:
    policy = Once("never", wrong=0)
    c = core(policy, routing.make("least_loaded"), 1, 1)
    (sent,) = [x for x in c.flush(0.0) if isinstance(x, Dispatch)]
    policy.wrong = 1
    c.add(GraphRun("q9", plan(tool("a"))))
    c.tell("q9", START, 0.0)
    assert c.flush(0.0) == []
    policy.wrong = 0
    c.handle(ended(sent, {"out": 1}), 1.0)
    assert [type(x) for x in c.flush(1.0)] == [Dispatch]
