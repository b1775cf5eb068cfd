"""Simulated servers that refuse, are away, hang and turn slow; queries wait, or go elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from teola.profile import EngineProfile, Profile, StepTime, paper
from teola.runtime.sim import Sim
from teola.runtime.sim.llm import Stepper
from teola.runtime.sim.outcome import Planned
from teola.runtime.sim.troubles import Trouble
from teola.runtime.values import Tokens
from teola.schedule.events import CallEnded, Cause, Dispatch, State
from teola.schedule.quota import Refusal
from tests.parity.test_replay import plain
from tests.planted import catches, edited
from tests.recording import RecordingCore, fresh, replayed
from tests.schedule.plans import call, plan

TIMES = paper("7b")


def sim(llms: int = 2, **more: Any) -> Sim:
    made = Sim(TIMES, instances={"llm": llms}, **more)
    made.core = RecordingCore({}, made._measure, made.queries)
    return made


def asks(made: Sim, number: int = 12, every: float = 0.1, deadline_s: float = 60.0) -> None:
    p = plan(*call("m"))
    for k in range(number):
        made.submit(p, {"question": Tokens(100)}, at=every * k, deadline_s=deadline_s)


def dispatched(made: Sim, since: float = 0.0) -> list[int]:
    """Where calls were sent since then."""
    return [
        command.instance
        for _, _, now, said in made.core.log.calls  # type: ignore[attr-defined]
        for command in said
        if isinstance(command, Dispatch) and now >= since
    ]


def states(made: Sim) -> set[State | None]:
    return {result.state for result in made.run()}


def repeats(made: Sim) -> None:
    """A fresh core, told the same, decides the same."""
    queues = {name: fresh(queue, "critical_path") for name, queue in made.core.queues.items()}
    log = made.core.log  # type: ignore[attr-defined]
    for one, again in zip(log.calls, replayed(log, queues), strict=True):
        assert plain(again) == plain(one[3]), one[:2]


def test_one_that_refuses_is_left_alone_and_nothing_fails() -> None:
    made = sim()
    made.refuse("llm", 0, at=0.5, lasts_s=20.0, after_s=5.0)
    asks(made)
    assert states(made) == {State.OK}
    places = dispatched(made, since=0.6)
    assert places.count(0) <= 5, "one call each time when it opens"
    repeats(made)


def test_the_only_one_is_waited_for_and_the_trace_says_so() -> None:
    waited: list[float] = []

    def look(query: Any, _: object) -> None:
        waited.extend(span.limited_s for span in query.trace.spans if span.limited_s)

    made = sim(1, on_finish=look, explains=True)
    made.refuse("llm", 0, at=0.0, lasts_s=10.0, after_s=12.0)
    asks(made, 3)
    assert states(made) == {State.OK}
    assert max(waited) == pytest.approx(12.0, abs=0.5)
    repeats(made)


def test_a_deadline_holds_while_nobody_is_there() -> None:
    made = sim(1)
    made.refuse("llm", 0, at=0.0, lasts_s=100.0, away=True)
    asks(made, 3, deadline_s=8.0)
    results = made.run()
    assert {one.state for one in results} == {State.DEADLINE}
    assert all(one.latency_s <= 8.01 for one in results)
    assert "nobody is there" in str(results[0].error)
    repeats(made)


def test_calls_on_one_that_hangs_go_elsewhere() -> None:
    made = sim()
    made.hang("llm", 0, at=0.05, lasts_s=1e6)
    asks(made, 6)
    results = made.run()
    assert {one.state for one in results} == {State.OK}
    assert max(one.latency_s for one in results) < 30.0
    assert made.core.queues["llm"].retries > 0
    repeats(made)


def test_the_only_one_that_hangs_goes_on() -> None:
    made = sim(1)
    made.hang("llm", 0, at=0.3, lasts_s=20.0)
    asks(made, 3)
    assert states(made) == {State.OK}
    assert made.core.queues["llm"].retries == 0
    repeats(made)


def test_a_slow_one_takes_longer_and_is_quick_again() -> None:
    def lasts(factor: float) -> float:
        made = sim(1)
        made.slow("llm", 0, at=0.0, lasts_s=1.0, factor=factor)
        asks(made, 1)
        (result,) = made.run()
        return result.latency_s

    quick = lasts(1.0)
    assert lasts(4.0) > quick
    assert lasts(4.0) < quick + 1.0, "after a second it is as it was"


@catches(
    "hung-and-done",
    "an instance that hangs has done in the end what it would have done meanwhile",
    edited(Stepper._interrupt, "elif self._hung:", "elif False:"),
)
@pytest.mark.parametrize("at", [0.3, 0.6])
def test_a_trouble_that_begins_in_the_middle_takes_what_it_takes_from_then_on(at: float) -> None:
    for kind in ("slow", "hang"):
        in_the_middle(kind, at)


def in_the_middle(kind: str, at: float) -> None:
    """A step takes 10 ms, so each end is right to about that. What is slow does a quarter.
    Meanwhile another call comes."""

    def lasts(until: float) -> float:
        profile = Profile("p", {"llm": EngineProfile(step=StepTime(base_s=0.01))})
        made = Sim(profile, outcomes=Planned(answer_tokens=100))
        if kind == "slow":
            made.slow("llm", 0, at=at, lasts_s=until - at, factor=4.0)
        else:
            made.hang("llm", 0, at=at, lasts_s=until - at)
        asks(made, 2, every=at + 0.1)
        return made.run()[0].latency_s

    quick = lasts(at)
    share = 0.75 if kind == "slow" else 1.0
    assert quick == pytest.approx(1.0, abs=0.05)
    assert lasts(at + 0.2) == pytest.approx(quick + 0.2 * share, abs=0.06)
    if kind == "slow":
        assert lasts(100.0) == pytest.approx(at + 4 * (quick - at), abs=0.06)


def test_as_many_as_it_takes_at_once_are_taken_and_one_more_is_not() -> None:
    trouble = Trouble(refuses_until=10.0, at_once=2, after_s=3.0, slow_until=5.0, factor=4.0)
    assert [trouble.refusal(calls, 9.9) is None for calls in (1, 2, 3)] == [True, True, False]
    assert trouble.refusal(3, 10.0) is None, "it is over"
    cause = trouble.refusal(3, 0.0)
    assert cause is not None
    assert cause.refused == Refusal("busy", 3.0)
    assert [trouble.stretch(now) for now in (4.9, 5.0)] == [4.0, 1.0]
    trouble.away = True
    away = trouble.refusal(9, 0.0)
    assert away is not None
    assert away.refused == Refusal("away")


@pytest.mark.parametrize("at_once", range(4))
@pytest.mark.parametrize("calls", [1, 2, 3, 6])
def test_of_calls_that_come_together_as_many_are_taken(at_once: int, calls: int) -> None:
    made = sim(1)
    made.refuse("llm", 0, at=0.0, lasts_s=1e6, at_once=at_once, after_s=1.0)
    asks(made, calls, every=0.0)
    refused: list[str] = []
    made.run(until=0.5)
    for what, event, _, _ in made.core.log.calls:  # type: ignore[attr-defined]
        if what == "handle" and isinstance(event, CallEnded):
            assert isinstance(event.outcome, Cause)
            assert event.outcome.refused == Refusal("busy", 1.0)
            refused.append(event.run)
    assert len(set(refused)) == len(refused) == max(0, calls - at_once)


def straggling(hedge: float | None) -> tuple[Sim, list[float], int]:
    """Four instances, the first of which turns slow. The simulation, the seconds of its queries,
    and how many tries were ended because the other one was sooner."""
    ended = 0

    def look(query: Any, _: object) -> None:
        nonlocal ended
        whole_s = query.trace.finished - query.trace.admitted
        spans = [span for span in query.trace.spans if span.state == "cancelled"]
        ended += sum(span.end < whole_s for span in spans)

    made = sim(4, hedge={} if hedge is None else {"llm": hedge}, on_finish=look)
    made.slow("llm", 0, at=10.0, lasts_s=1e6, factor=20.0)
    asks(made, 100, every=0.2)
    results = made.run()
    assert {one.state for one in results} == {State.OK}
    return made, sorted(one.latency_s for one in results), ended


@catches(
    "backups-leave-no-trace",
    "the trace of a simulated query does not say which of two tries was ended",
    edited(Sim.abort, "if self.outrun(", "if not self.outrun("),
)
def test_late_calls_run_twice_in_simulated_time_and_a_log_of_that_replays() -> None:
    made, seconds, ended = straggling(0.1)
    _, without, _ = straggling(None)
    queue = made.core.queues["llm"]
    assert queue.hedging is not None
    assert 2 <= queue.hedging.made == ended <= 10
    assert seconds[-1] < without[-1] / 2
    repeats(made)
