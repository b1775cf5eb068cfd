"""What both drivers do with commands, with errors, and with what grows: in virtual time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from teola import App, Each, Generate
from teola.errors import BudgetSpent, EngineError
from teola.graph import Grow, Growth, Op, Remarks
from teola.learning import Learner
from teola.profile import Cost, EngineProfile, Profile
from teola.runtime.in_flight import Query
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.sim.outcome import Planned
from teola.runtime.sim.sim_rows import SimRow
from teola.runtime.values import Tokens
from teola.schedule.events import (
    Cause,
    Dispatch,
    Ejected,
    Finish,
    FirstTokenLate,
    Recovered,
    Retuned,
    SetTimer,
    Skipped,
    State,
    Timer,
    Waits,
)
from teola.schedule.faults import PolicyFailed
from tests.runtime.sim.test_sim import one_call
from tests.runtime.sim.test_weights import BODY, CALL_S, LLM, PROFILE, TOKENS
from tests.schedule.plans import plan, tool

# --- what is logged -------------------------------------------------------------------------

SECRET = "text of a document"
WHY = Cause(ValueError(SECRET))


@pytest.mark.parametrize(
    ("command", "level", "event", "message", "fields"),
    [
        (
            Ejected("llm", 1, 31.26, WHY),
            "WARNING",
            "engine_ejected",
            "engine llm: instance 1 is sent nothing for 30 s: ValueError",
            {"engine": "llm", "instance": 1, "for_s": 30.3, "error_type": "ValueError"},
        ),
        (
            FirstTokenLate("llm", 1, 7.26, elsewhere=True),
            "WARNING",
            "engine_late",
            "engine llm: instance 1 gave no token for 7 s",
            {"engine": "llm", "instance": 1, "after_s": 7.3, "elsewhere": True},
        ),
        (
            Recovered("llm", 1),
            "INFO",
            "engine_recovered",
            "engine llm: instance 1 works again",
            {"engine": "llm", "instance": 1},
        ),
        *(
            (
                Waits("llm", 1, "q", 2, until, WHY),
                "INFO",
                "engine_refuses",
                f"engine llm: instance 1 refuses (ValueError); the call waits for {for_s} s",
                {"engine": "llm", "instance": 1, "for_s": for_s, "error_type": "ValueError"},
            )
            for until, for_s in ((3.26, 2.3), (1.0, 0.0), (0.5, 0.0))
        ),
        (
            Retuned("llm", "batching", {"gap": 0.5, "name": "x"}),
            "INFO",
            "policy_tuned",
            "engine llm: batching policy tuned: gap=0.5, name=x",
            {"engine": "llm", "kind": "batching", "options": "gap=0.5, name=x", "refused": ""},
        ),
        (
            Retuned("llm", "routing", {"gap": -1}, "too small"),
            "WARNING",
            "policy_tuned",
            "engine llm: routing policy tuned: gap=-1 refused (too small)",
            {"engine": "llm", "kind": "routing", "options": "gap=-1", "refused": "too small"},
        ),
    ],
)
def test_an_engines_fate_is_told_in_a_sentence_and_in_fields_without_what_it_said(
    caplog: pytest.LogCaptureFixture,
    command: Any,
    level: str,
    event: str,
    message: str,
    fields: Mapping[str, Any],
) -> None:
    with caplog.at_level(logging.INFO, "teola.runtime.driver"):
        Sim(PROFILE)._perform([command], 1.0)
    (record,) = caplog.records
    assert (record.levelname, record.event) == (level, event)  # type: ignore[attr-defined]
    assert record.getMessage() == message
    assert record.fields == fields  # type: ignore[attr-defined]
    assert SECRET not in record.getMessage()


@pytest.mark.parametrize("cause", [None, ZeroDivisionError("oops")])
def test_a_policys_failure_is_told_with_where_it_was_raised(
    caplog: pytest.LogCaptureFixture, cause: Exception | None
) -> None:
    error = EngineError("policy 'x' failed")
    error.__cause__ = cause
    Sim(PROFILE)._perform([PolicyFailed("llm", error)], 1.0)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == "policy 'x' failed; what was queued there has failed"
    told = None if cause is None else (ZeroDivisionError, cause, None)
    assert record.exc_info == told


# --- errors ---------------------------------------------------------------------------------


class Broken(Sim):
    """Keeps what broke."""

    def __init__(self) -> None:
        slow = EngineProfile(costs={Op.TOOL_CALL: Cost(base_s=1.0)})
        super().__init__(Profile("two", {"llm": LLM, "python": slow}))
        self.told: list[tuple[list[str], Exception, float]] = []

    def broke(self, runs: Sequence[str], error: Exception, now: float) -> None:
        self.told.append((list(runs), error, now))


def of_two_engines() -> Broken:
    """A query at either engine, and rows at the model's."""
    sim = Broken()
    sim.submit(one_call(), {"question": Tokens(10)}, id="asks")
    sim.submit(plan(tool("t")), {}, id="works")
    sim.ask_rows([SimRow(Tokens(9), 900)] * 2, id="rows")
    sim.run(until=0.0)
    assert {*sim.queries, *sim.rows} == {"asks", "works", "rows"}
    return sim


ERROR = KeyError("lost")


def raises(*_: Any) -> Any:
    raise ERROR


@pytest.mark.parametrize(
    ("where", "act", "runs"),
    [
        ("handle", lambda sim: sim.handle(Timer("llm"), 3.5), ["asks", "rows"]),
        ("handle", lambda sim: sim.handle(Timer("python"), 3.5), ["works"]),
        ("tell", lambda sim: sim.tell("works", Skipped("works", 0), 3.5), ["works"]),
        ("flush", lambda sim: sim.run_once(3.5), ["asks", "works", "rows"]),
    ],
)
def test_an_error_of_the_core_concerns_whom_the_event_was_of(
    where: str,
    act: Callable[[Sim], None],
    runs: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an error of a round the other engines still have theirs."""
    sim = of_two_engines()
    method, count = getattr(sim.core, where), 0

    def once(*given: Any) -> Any:
        nonlocal count
        count += 1
        return raises() if count == 1 else method(*given)

    monkeypatch.setattr(sim.core, where, once)
    sim.core.unsettled.update(sim.core.queues)
    act(sim)
    assert sim.told == [(runs, ERROR, 3.5)]
    if where == "flush":
        assert not sim.core.unsettled


def test_an_error_of_a_command_concerns_whom_the_command_is_for_and_those_behind_it_go_on() -> None:
    sim = of_two_engines()
    done: list[Any] = []

    def fails(command: Any, now: float) -> None:
        done.append(command)
        sim._perform([Recovered("llm", 7)], now)
        raise ERROR

    sim.dispatch = sim.abort = sim.set_timer = fails  # type: ignore[method-assign]
    sim.recovered = lambda command, now: done.append(command)  # type: ignore[method-assign]
    work = sim.core.queues["llm"].works["asks", 0]
    batch = Dispatch("llm", 0, 1, ((work, 0, 1),))
    timer = SetTimer("llm", 9.0)
    sim._perform([batch, timer, Recovered("llm", 1)], 3.5)
    assert sim.told == [(["asks"], ERROR, 3.5), ([], ERROR, 3.5)]
    later = [Recovered("llm", 1), Recovered("llm", 7), Recovered("llm", 7)]
    assert done == [batch, timer, *later], "what is given meanwhile comes after all"
    sim.told.clear()
    sim._perform([Skipped("works", 99)], 4.5)
    ((runs, error, now),) = sim.told
    assert (runs, type(error), now) == (["works"], IndexError, 4.5)


# --- growth ---------------------------------------------------------------------------------

MAP = App(
    "map",
    Each(BODY, over="rows", item="row", gives={"notes": "answer"}, at_once=2)
    >> Generate(name="last", inputs={"context": "notes"}),
    inputs={"question": "text", "rows": "texts"},
    outputs={"end": "answer"},
)
Heard = tuple[str, ...]


@dataclass
class Script:
    """A growth. steps: what it does when it hears something: keys of parts that follow, or an
    error that it raises. heard: all that it was told."""

    steps: Mapping[Heard, Iterable[str] | Exception]
    said: Remarks = field(default_factory=Remarks)
    heard: list[Heard] = field(default_factory=list)

    def hear(self, *told: str) -> Iterable[Grow]:
        self.heard.append(told)
        step = self.steps.get(told, ())
        if isinstance(step, Exception):
            raise step
        return (Grow("item", key, {"row": Tokens(9)}) for key in step)

    def begin(self) -> Iterable[Grow]:
        return self.hear("begin")

    def told(self, key: str, port: str, item: Any) -> Iterable[Grow]:
        return self.hear("told", key, port)

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Iterable[Grow]:
        return self.hear("ended", key)

    def failed(self, key: str, error: Exception) -> Iterable[Grow]:
        return self.hear("failed", key)

    def result(self) -> Mapping[str, Any]:
        self.hear("result")
        return {"notes": [Tokens(3)]}

    def remarks(self) -> Remarks:
        self.hear("remarks")
        return self.said


class Scripted(Planned):
    def __init__(self, script: Script) -> None:
        super().__init__(answer_tokens=TOKENS)
        self.script = script

    def growth(self, query: Query, i: int) -> Growth:
        return self.script


class Bed(Sim):
    """Simulates one query that grows by a script. begun: keys of its parts, and when they
    began. causes: why the query is a partial one."""

    def __init__(self, script: Script, primitives: float, learner: Learner | None = None) -> None:
        super().__init__(PROFILE, outcomes=Scripted(script), learner=learner)
        self.primitives = primitives
        self.begun: list[tuple[str, float]] = []
        self.causes: list[tuple[str, Exception]] = []
        self.outer: Query

    def begin(self, query: Query, now: float) -> None:
        if query.place is None:
            self.outer = query
            query.tally.primitives = self.primitives
        else:
            self.begun.append((query.place.key, round(now / CALL_S, 6)))
        super().begin(query, now)

    def finished(self, query: Query, command: Finish, now: float) -> None:
        if query is self.outer:
            causes = (cause.error for cause in command.reasons)
            self.causes += zip(command.missing, causes, strict=True)
        super().finished(query, command, now)


def grown(
    steps: Mapping[Heard, Iterable[str] | Exception],
    primitives: float = 100,
    said: Remarks | None = None,
    app: App = MAP,
    learner: Learner | None = None,
    **more: Any,
) -> tuple[Bed, Script]:
    script = Script(steps, said or Remarks())
    bed = Bed(script, primitives, learner)
    made = Optimiser(app.builder, PROFILE).plan({}, {"rows": 4})
    given = {"question": Tokens(9), "rows": [Tokens(9)] * 4}
    bed.submit(made, {name: given[name] for name in made.graph.inputs}, app="map", **more)
    bed.run()
    assert not bed.queries
    assert not bed.outer.growing
    assert bed.outer.tally.primitives == primitives, "what has ended makes room"
    return bed, script


SIZE = 2
"""Primitives of a part."""


@pytest.mark.parametrize(
    ("primitives", "beside"), [(SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (9 * SIZE, 2)]
)
def test_as_many_parts_run_as_may_and_as_there_is_room_for_in_the_order_of_what_they_follow(
    primitives: int, beside: int
) -> None:
    """What follows the end of a part comes after what waits; two at once at most."""
    steps = {("begin",): "abcd", ("ended", "a"): "fg", ("ended", "c"): "e"}
    bed, script = grown(steps, primitives)
    keys = "abcdfge"
    assert bed.begun == [(key, pytest.approx(k // beside)) for k, key in enumerate(keys)]
    ends = [("ended", key) for key in keys]
    assert script.heard == [("begin",), *ends, ("result",), ("remarks",)]
    assert bed.results[0].state is State.OK


def spans(bed: Bed) -> dict[str, tuple[str, float, float]]:
    """Of the query around: state, begin and end of each primitive, in calls."""
    return {
        span.primitive: (span.state, round(span.start / CALL_S, 6), round(span.end / CALL_S, 6))
        for span in bed.outer.trace.spans
    }


@pytest.mark.parametrize("parts", ["", "a", "abc"])
def test_a_primitive_grows_until_nothing_runs_and_nothing_follows(parts: str) -> None:
    learner = Learner()
    bed, script = grown({("begin",): parts}, learner=learner)
    ends = -(-len(parts) // 2)
    assert spans(bed)["each.grow"] == ("done", 0.0, ends)
    assert spans(bed)["last.decode"][2] == ends + 1
    assert script.heard[-2:] == [("result",), ("remarks",)]
    part_traces = [part.query_id for part in bed.outer.trace.inner]
    assert part_traces == [f"q0/each/{key}" for key in parts]
    assert {part.parent for part in bed.outer.trace.inner} <= {("q0", "each.grow")}
    habit = learner.snapshot().habits["map", "each"]
    assert habit.turns == (1,) * (1 + len(parts)), "none, one and so on were exceeded by one run"


def test_what_had_to_stop_is_a_part_of_an_answer_and_says_nothing_of_how_often_it_repeats() -> None:
    learner = Learner()
    said = Remarks(notices=("stopped early",), cut="its budget is spent")
    bed, _ = grown({("begin",): "ab"}, said=said, learner=learner)
    (result,) = bed.results
    assert result.state is State.PARTIAL
    assert bed.outer.trace.notices == ["each: stopped early"]
    assert [component for component, _ in bed.causes] == ["each"]
    assert repr(bed.causes[0][1]) == repr(BudgetSpent("its budget is spent"))
    assert ("map", "each") not in learner.snapshot().habits


@pytest.mark.parametrize(
    ("at", "heard", "parts"),
    [
        (("begin",), 1, []),
        (("ended", "a"), 2, ["ok", "cancelled"]),
        (("ended", "b"), 3, ["ok", "ok", "cancelled"]),
        (("result",), 6, ["ok"] * 4),
        (("remarks",), 7, ["ok"] * 4),
    ],
)
def test_a_growth_that_raises_fails_once_with_that_and_its_parts_end(
    at: Heard, heard: int, parts: list[str]
) -> None:
    """Whatever of it ends by that is not told."""
    steps = {("begin",): "abcd", at: KeyError("lost")}
    bed, script = grown(steps)
    (result,) = bed.results
    assert (result.state, repr(result.error)) == (State.FAILED, "KeyError('lost')")
    assert (script.heard[-1], len(script.heard)) == (at, heard)
    assert [part.state for part in bed.outer.trace.inner] == parts
    state, _, _ = spans(bed)["each.grow"]
    assert state == "failed"
