"""A run of rows: which windows it wants, and how it ends, beside a slow count."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest

from teola.errors import BudgetSpent, DeadlineExceeded, QueryCancelled
from teola.graph import Op
from teola.policies.asker import Asker
from teola.policies.batching.critical_path import LENGTH
from teola.policies.work import Estimate, WorkSpec
from teola.schedule.events import (
    Cancelled,
    Cause,
    Completed,
    DeadlineReached,
    Failed,
    Finish,
    RowsBegan,
    RowsCame,
    RowsWanted,
    SourceEnded,
    Started,
    State,
    Submit,
    Withdraw,
)
from teola.schedule.row_run import LEFT_S, OPEN, RETRIES, RowRun, RowSpecs, windows
from tests.planted import catches, edited

ENDS = {
    State.CANCELLED: Cancelled(),
    State.DEADLINE: DeadlineReached(),
    State.FAILED: SourceEnded(ValueError("no such file")),
    State.PARTIAL: SourceEnded(BudgetSpent("spent")),
}


class Bed:
    """said: what the run said since it was told something last."""

    def __init__(self, most: int, *, warm: bool) -> None:
        specs = RowSpecs("llm", "rows", interactive=False, output=8)
        self.run = RowRun("r", specs, Asker(), most=most, warm=warm)
        self.said: list[Any] = []
        self.run.attach(self.said, self.ask)

    def ask(self, command: Any) -> bool:
        self.said.append(command)
        return True

    def tell(self, event: Any) -> list[Any]:
        self.said.clear()
        self.run.handle(event, 1.0)
        return [*self.said]


def lives(seed: int) -> State:
    """Windows come, begin and end, until the source has or the run is stopped."""
    draw = Random(seed)
    most, warm = draw.choice([1, 3, 5]), draw.random() < 0.5
    bed = Bed(most, warm=warm)
    said = bed.tell(Started({}))
    wanted, open_, failed, came, over = 0, list[int](), False, 0, False
    while True:
        new = sum(isinstance(one, RowsWanted) for one in said)
        wanted += new
        room = (1 if warm else most) - len(open_)
        assert wanted == (0 if over else max(room, wanted - new)), "as many as there is room for"
        assert [*bed.run.open] == open_
        assert len(bed.run.plan) == came
        assert [*bed.run.plan.specs[0:came]] == [bed.run.plan[i] for i in open_]
        ends = over and not open_
        if ends:
            state = State.PARTIAL if failed else State.OK
            assert said[-1] == Finish("r", state, None, ())
            assert bed.tell(Completed(0, {"failed": 1})) == [], "it has ended"
            return state
        assert not any(isinstance(one, Finish) for one in said)
        kind = draw.choice(["came", "came", "began", "over", "over", "ends", "stop"])
        if kind == "came" and wanted:
            event = RowsCame(draw.randint(1, 9), 10)
            said = bed.tell(event)
            wanted -= 1
            open_.append(came)
            assert said[0] == Submit("r", came, -1, rows=event)
            came += 1
        elif kind == "began" and open_:
            said, warm = bed.tell(RowsBegan(open_[0])), False
        elif kind == "over" and open_:
            i, wrong = open_.pop(draw.randrange(len(open_))), draw.random() < 0.1
            said, warm = bed.tell(Completed(i, {"failed": int(wrong)})), False
            failed |= wrong
        elif kind == "ends" and came > 4 and not over:
            over, wanted = True, 0
            said = bed.tell(SourceEnded())
        elif kind == "stop" and draw.random() < 0.1 and not over:
            state, event_ = draw.choice([*ENDS.items()])
            said = bed.tell(event_)
            assert said[:-1] == [Withdraw("r", i) for i in open_]
            assert isinstance(said[-1], Finish)
            assert said[-1].state is state
            assert bed.tell(RowsCame(3, 10)) == [], "it has ended"
            return state
        else:
            said = []


@catches(
    "one-window-more",
    "a window more is wanted than there is room for",
    edited(RowRun._want, "self._wanted < most", "self._wanted <= most"),
)
@catches(
    "wanted-for-ever",
    "what was wanted counts still when it has come",
    edited(RowRun._came, "self._wanted -= 1", "pass"),
)
@catches(
    "last-window-decides",
    "a run is partial only if its last window has errors",
    edited(RowRun._completed, "self.failed |= bool", "self.failed = bool"),
)
@catches(
    "ends-with-its-source",
    "a run ends with its source, whatever is open",
    edited(RowRun._finish_if_over, " and not self.open", ""),
)
@catches(
    "warm-for-ever",
    "one window at a time, also when the first has begun",
    edited(RowRun._began, "self.warming = False", "pass"),
)
def test_windows_are_wanted_and_runs_end_as_a_slow_count_says() -> None:
    assert {lives(seed) for seed in range(80)} == {State.OK, *ENDS}


def test_a_window_that_fails_whole_fails_its_run_and_withdraws_the_others() -> None:
    bed = Bed(3, warm=False)
    bed.tell(Started({}))
    for _ in range(3):
        bed.tell(RowsCame(2, 10))
    cause = Cause(ValueError("all gone"))
    said = bed.tell(Failed(1, cause))
    assert said == [Withdraw("r", 0), Withdraw("r", 2), Finish("r", State.FAILED, cause, ())]


@pytest.mark.parametrize(
    ("event", "error", "words"),
    [
        (Cancelled(), QueryCancelled, "rows r were cancelled"),
        (DeadlineReached(), DeadlineExceeded, "rows r did not finish before their deadline"),
        (
            DeadlineReached("the server refuses"),
            DeadlineExceeded,
            "rows r did not finish before their deadline: the server refuses",
        ),
    ],
)
def test_it_says_why_it_was_stopped(event: Any, error: type[Exception], words: str) -> None:
    bed = Bed(3, warm=False)
    (finish,) = bed.tell(event)
    assert isinstance(finish.cause.error, error)
    assert str(finish.cause.error) == words


def test_there_is_a_window_more_than_instances_and_three_at_least() -> None:
    assert [windows(instances) for instances in (1, 2, 3, 8)] == [3, 3, 4, 9]


@pytest.mark.parametrize(
    ("interactive", "age_s", "total_s"),
    [
        (True, 0.0, 0.0),
        (True, 50.0, 0.0),
        (False, 0.0, LEFT_S),
        (False, 50.0, 50 / LENGTH + LEFT_S),
    ],
)
def test_a_window_counts_as_long_as_its_run_may_yet_be(
    interactive: bool, age_s: float, total_s: float
) -> None:
    """One that goes like any other query has no length, and leaves no places to those."""
    specs = RowSpecs("llm", "rows", interactive=interactive, output=8)
    assert [specs.add(10, age_s), specs.add(20, age_s)] == [0, 1]
    expected = WorkSpec(
        "llm",
        Op.PREFILLING,
        "rows",
        None,
        True,
        0,
        retries=RETRIES,
        estimate=Estimate(total_s=total_s),
        planned_tokens=10,
        planned_output=8,
        most_output=8,
        rows=True,
        yields=not interactive,
    )
    assert [*specs] == [expected, replace(expected, planned_tokens=20)]
    specs.drop(0)
    assert (len(specs), specs[1].planned_tokens, specs[0:2]) == (2, 20, [specs[1]])


def test_a_run_of_rows_is_as_old_as_it_is_said_to_be_and_nothing_is_behind_it() -> None:
    specs = RowSpecs("llm", "rows", interactive=False, output=8)
    made = RowRun("r", specs, asker := Asker(), began=5.0)
    assert (made.id, made.engine, made.asker, made.plan) == ("r", "llm", asker, specs)
    assert (made.began, made.admitted, made.deadline) == (5.0, 5.0, inf)
    assert (made.behind_s, made.longer_s, made.state, made.open) == (0.0, 0.0, None, {})
    assert (made.most, made.warming, made.failed) == (OPEN, False, False)
    assert RowRun("r", specs, asker, deadline=9.0).deadline == 9.0
    made.handle(RowsCame(3, 10), 45.0)
    assert specs[0].estimate.total_s == 40 / LENGTH + LEFT_S, "by its age"
