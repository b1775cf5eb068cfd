"""GraphRun: what stands behind a condition, and what becomes of it when that is decided."""

from __future__ import annotations

from dataclasses import replace

from tests.schedule.plans import (
    Guard,
    Ref,
    aggregate,
    call,
    condition,
    tool,
)
from tests.schedule.told import guarded, told


def test_only_the_branch_taken_runs() -> None:
    t = told(
        condition("if"), guarded("a", "then"), guarded("b", "otherwise"), aggregate("c", "a", "b")
    )
    assert t.start() == [("control", "if")]
    assert t.done("if", branch="otherwise") == [
        ("skipped", "a"),
        ("release", "if"),
        ("submit", "b"),
    ]
    assert t.done("b") == [("control", "c")]


def test_the_other_branch_is_skipped_although_it_still_waits_for_data() -> None:
    t = told(
        condition("if"),
        aggregate("slow", "work"),
        tool("work"),
        guarded("a", "then", "slow"),
        tool("c"),
    )
    t.start()
    assert ("skipped", "a") in t.done("if", branch="otherwise")


def test_what_only_the_other_branch_would_have_read_is_withdrawn_at_once() -> None:
    """A prefix computed ahead for a call that is not wanted, running or waiting for its engine."""
    prefix, head, text = call("m", ahead=True)
    wanted = [replace(p, guards=(Guard("if", "then"),)) for p in (head, text)]
    other = [replace(p, guards=(Guard("if", "otherwise"),)) for p in call("n")]
    t = told(prefix, condition("if"), *wanted, *other, aggregate("z", "m", "n"))
    assert t.start() == [("submit", "m.ahead"), ("control", "if")]
    found = t.done("if", branch="otherwise")
    assert found.index(("withdraw", "m.ahead")) < found.index(("skipped", "m.ahead"))
    assert ("submit", "n.prefill") in found
    t.done("n.prefill")
    t.done("n")
    assert t.done("z") == [("release", "n"), ("finish", "ok")]


def test_a_prefix_that_is_done_is_released_with_the_branch_that_would_have_read_it() -> None:
    prefix, head, text = call("m", ahead=True)
    wanted = [replace(p, guards=(Guard("if", "then"),)) for p in (head, text)]
    t = told(prefix, condition("if"), *wanted, tool("z", "m", optional=("x0",)))
    t.start()
    assert t.done("m.ahead") == []
    assert ("release", "m.ahead") in t.done("if", branch="otherwise")


def test_a_condition_that_decides_on_nothing_any_more_is_skipped() -> None:
    """What it guards cannot run: it would read an item that does not come."""
    t = told(
        tool("a"),
        tool("slow"),
        condition("if", Ref("slow", "out")),
        guarded("b", "then", "c"),
        tool("c", Ref("a", "out", (4, 5))),
        outputs={"b": Ref("b", "out")},
    )
    t.start()
    found = t.done("a")
    assert {("skipped", "c"), ("skipped", "b"), ("skipped", "if")} <= set(found)


def test_what_reads_only_the_branch_not_taken_is_skipped() -> None:
    t = told(condition("if"), guarded("a", "then"), tool("b", "a"), tool("c"))
    t.start()
    found = t.done("if", branch="otherwise")
    assert found == [("skipped", "a"), ("release", "if"), ("skipped", "b")]


def test_a_skipped_condition_skips_both_branches() -> None:
    t = told(
        tool("a"),
        condition("if", Ref("a", "out", (4, 5))),
        guarded("b", "then"),
        guarded("c", "otherwise"),
        outputs={"b": Ref("b", "out"), "c": Ref("c", "out")},
    )
    t.start()
    found = t.done("a")
    assert {("skipped", "if"), ("skipped", "b"), ("skipped", "c")} <= set(found)
    assert found[-1] == ("finish", "ok")


def test_nested_guards_must_all_hold() -> None:
    inner = condition("inner", guards=(Guard("if", "then"),))
    deep = tool("a", guards=(Guard("if", "then"), Guard("inner", "otherwise")))
    t = told(condition("if"), inner, deep)
    t.start()
    assert t.done("if", branch="then") == [("release", "if"), ("control", "inner")]
    assert ("skipped", "a") in t.done("inner", branch="then")


def test_of_two_that_decide_on_the_same_the_second_need_not_any_more() -> None:
    for first, second in (("if", "then_if"), ("then_if", "if")):
        guards = Guard("if", "then"), Guard("then_if", "then")
        t = told(condition("if"), condition("then_if"), tool("x", guards=guards), tool("z"))
        t.start()
        told_of = t.done(first, branch="otherwise")
        assert told_of[0] == ("skipped", "x")
        assert ("skipped", second) in told_of
