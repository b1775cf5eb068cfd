"""GraphRun: what may begin before its branch is decided, and what becomes of it then."""

from __future__ import annotations

from teola.schedule.graph_run import GraphRun
from tests.planted import catches, edited
from tests.schedule.plans import Guard, Ref, aggregate, condition, tool
from tests.schedule.told import Told, guarded, told


def guessing() -> Told:
    """x may run before the condition has decided for it; y only when it has decided against it."""
    return told(
        condition("if"),
        tool("x", guards=(Guard("if", "then", speculative=True),)),
        guarded("y", "otherwise"),
        aggregate("z", "x", "y"),
    )


WITHDRAWING = edited(GraphRun._skip, "self._ask(Withdraw(self.id, i))", "pass")


@catches("wrong-guess-kept", "what was begun on a wrong guess runs on", WITHDRAWING)
def test_what_runs_on_a_wrong_guess_is_withdrawn() -> None:
    t = guessing()
    assert t.start() == [("control", "if"), ("submit", "x")]
    found = t.done("if", branch="otherwise")
    assert {("withdraw", "x"), ("skipped", "x"), ("submit", "y")} <= set(found)
    assert t.done("x") == [], "it comes too late"
    assert t.done("y") == [("control", "z")]
    assert t.done("z")[-1] == ("finish", "ok")


@catches(
    "wrong-guess-counted",
    "what a wrong guess delivered is read",
    edited(GraphRun._skip, "self._absence.counts.pop(i, None)", "pass"),
)
def test_what_was_delivered_on_a_wrong_guess_counts_as_absent() -> None:
    t = told(
        condition("if"),
        tool("x", guards=(Guard("if", "then", speculative=True),)),
        tool("y"),
        tool("z", "x", "y"),
    )
    t.start()
    t.done("x")
    assert ("skipped", "z") in t.done("if", branch="otherwise")
    assert not t.run.delivered(Ref("x", "out"))
    t.done("y")
    assert t.run.delivered(Ref("y", "out"))


def test_a_right_guess_runs_once() -> None:
    t = guessing()
    t.start()
    found = t.done("if", branch="then")
    assert ("skipped", "y") in found
    assert not {what for what, _ in found} & {"withdraw", "submit"}
    assert t.done("x") == [("control", "z")]
