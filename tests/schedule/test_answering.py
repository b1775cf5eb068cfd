"""Which decoding of a query writes its answer, as far as its run knows by now."""

from __future__ import annotations

import pytest

from teola.errors import EngineError
from teola.schedule.events import Cause, Completed, Failed, Started
from teola.schedule.graph_run import GraphRun
from tests.planted import catches, edited
from tests.runtime.live.test_live_answers import refining

ROUNDS = ("generate.1.decode", "generate.2.decode", "generate.3.decode")


def begun(notes: int, *, optional: bool = False) -> GraphRun:
    """A query that refines its answer in three rounds, whose instruction is worth computing ahead;
    it has so many of the three notes."""
    run = GraphRun("q", refining(3, optional=optional, instruction="Answer with care. " * 40))
    run.handle(Started({"question": 1, "notes": notes}), 0.0)
    return run


def answering(run: GraphRun) -> list[bool]:
    return [run.answers(run.plan.index[id]) for id in ROUNDS]


def deliver(run: GraphRun, *ids: str) -> None:
    for id in ids:
        outputs = run.plan.primitives[run.plan.index[id]].outputs
        run.handle(Completed(run.plan.index[id], dict.fromkeys(outputs, 1)), 1.0)


def test_the_last_round_always_does() -> None:
    assert answering(begun(3)) == [False, False, True]


@catches(
    "hope-for-nothing",
    "a round that has nothing to read is waited for",
    edited(GraphRun._hopeless, "self._absence.skips(i, self.ended)", "False"),
)
def test_a_round_does_as_soon_as_no_later_one_can_have_anything_to_read() -> None:
    assert answering(begun(2)) == [False, True, True]
    assert answering(begun(1)) == [True, True, True]


@catches(
    "prefix-not-looked-at",
    "only the last link of a call is looked at",
    edited(GraphRun._hopeless, "i = self.plan.sequence_of[i]", "return False"),
)
@catches(
    "all-must-answer",
    "any later round that is hopeless is enough",
    edited(GraphRun.answers, "all(map", "any(map"),
)
def test_one_that_may_still_come_is_enough_to_wait() -> None:
    run = begun(2)
    assert answering(run)[0] is False
    deliver(run, "generate.1.prefill", "generate.1.decode")
    assert answering(run) == [False, True, True]


@catches(
    "ended-is-hopeless",
    "a later round that has delivered counts as if it had not",
    edited(GraphRun._hopeless, "return self.status[i] != DONE", "return True"),
)
def test_a_round_after_which_another_has_delivered_does_not() -> None:
    run = begun(2)
    deliver(run, "generate.1.prefill", "generate.1.decode")
    deliver(run, "generate.2.prefill.ahead1", "generate.2.prefill", "generate.2.decode")
    assert answering(run)[0] is False


@pytest.mark.parametrize(("notes", "certain"), [(2, True), (3, False)])
def test_a_round_does_once_a_later_one_has_failed_and_none_is_left(
    notes: int, certain: bool
) -> None:
    """They are optional. With a third note the third round may still write."""
    run = begun(notes, optional=True)
    deliver(run, "generate.1.prefill", "generate.1.decode")
    assert answering(run)[0] is False
    head = run.plan.index["generate.2.prefill"]
    run.handle(Failed(head, Cause(EngineError("it broke"))), 1.0)
    assert answering(run) == [certain, certain, True]
