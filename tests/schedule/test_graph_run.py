"""GraphRun: events in, commands out."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from teola.errors import DeadlineExceeded, QueryCancelled
from teola.graph import Aggregation, Graph, ToolParams
from teola.schedule.events import (
    Cancelled,
    Completed,
    Control,
    DeadlineReached,
    Failed,
    Finish,
    Release,
    Skipped,
    State,
    Submit,
    Withdraw,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Absence, Plan
from tests.planted import catches, edited
from tests.schedule.plans import (
    QUERY,
    Order,
    Ref,
    aggregate,
    call,
    condition,
    heard,
    plan,
    run,
    status,
    tool,
)
from tests.schedule.told import CAUSE, START, Told, guarded, told

# --- readiness ------------------------------------------------------------------------------


def test_a_primitive_is_submitted_when_its_last_parent_is_done() -> None:
    t = told(tool("a"), tool("b"), tool("c", "a", "b"))
    assert t.start() == [("submit", "a"), ("submit", "b")]
    assert t.done("b") == []
    assert t.done("a") == [("submit", "c")]
    assert t.done("c") == [("release", "a"), ("release", "b"), ("finish", "ok")]


def test_order_edges_hold_back_like_data() -> None:
    late = tool("b", after=(Order("a", "an effect", effect=True),))
    t = told(tool("a"), late)
    assert t.start() == [("submit", "a")]
    assert t.done("a") == [("release", "a"), ("submit", "b")]


def test_control_primitives_need_no_engine() -> None:
    t = told(tool("a"), aggregate("c", "a"))
    t.start()
    assert t.done("a") == [("control", "c")]
    assert t.done("c") == [("release", "a"), ("finish", "ok")]


def test_an_empty_graph_ends_at_once() -> None:
    t = told(outputs={"answer": Ref(QUERY, "question")})
    assert t.start() == [("finish", "ok")]


def test_nothing_changes_after_the_end() -> None:
    t = told(tool("a"))
    t.start()
    assert t.done("a") == [("finish", "ok")]
    assert t.done("a") == []
    assert t.fail("a") == []
    assert t.tell(Cancelled()) == []


def test_a_second_completion_is_ignored() -> None:
    t = told(tool("a"), tool("b", "a"), tool("c", "b"))
    t.start()
    assert t.done("a") == [("submit", "b")]
    assert t.done("a") == []
    assert t.done("b") == [("release", "a"), ("submit", "c")]


# --- groups ---------------------------------------------------------------------------------


def test_a_call_is_submitted_once_for_all_its_members() -> None:
    t = told(*call("m", 2), tool("x", "m.0"), tool("y", "m.1"), aggregate("z", "x", "y"))
    assert t.start() == [("submit", "m.prefill")]
    assert t.done("m.prefill") == []
    assert t.done("m.0") == [("release", "m.prefill"), ("submit", "x")]
    assert t.done("m.1")[-1] == ("submit", "y")


def test_a_call_goes_to_the_instance_that_holds_its_prefix() -> None:
    t = told(tool("late"), *call("m", ahead=True, late="late"))
    assert t.start() == [("submit", "late"), ("submit", "m.ahead")]
    t.done("late")
    i = t.run.plan.index["m.ahead"]
    (submit,) = heard(t.run, Completed(i, {"sequence": 1}, None, 3), 1.0)
    assert submit == Submit("q", t.run.plan.index["m.prefill"], affinity=3)


def test_what_a_call_reads_is_kept_until_it_is_over() -> None:
    """The call may have to be repeated, on another instance, from the beginning."""
    t = told(
        *call("m", 2, ahead=True), tool("x", "m.0"), tool("y", "m.1"), aggregate("z", "x", "y")
    )
    t.start()
    t.done("m.ahead")
    assert t.done("m.prefill") == []
    assert ("release", "m.ahead") not in t.done("m.0")
    assert ("release", "m.ahead") in t.done("m.1")


def test_all_that_a_call_reads_is_let_go_when_it_is_over() -> None:
    t = told(tool("late"), *call("m", ahead=True, late="late"))
    t.start()
    for id in ("late", "m.ahead", "m.prefill"):
        assert not [what for what, _ in t.done(id) if what == "release"]
    released = {id for what, id in t.done("m") if what == "release"}
    assert released >= {"late", "m.ahead"}


def test_a_call_ends_with_the_last_item_that_somebody_reads() -> None:
    t = told(*call("m", 3), tool("x", "m.1"))
    assert t.start() == [("skipped", "m.2"), ("submit", "m.prefill")]
    assert t.done("m.prefill") == []
    assert ("withdraw", "m.prefill") not in t.done("m.0")
    assert ("withdraw", "m.prefill") in t.done("m.1")


def test_a_call_that_fails_while_it_streams_ends_the_query() -> None:
    t = told(*call("m", 2), tool("x", "m.0"), tool("y", "m.1"))
    t.start()
    t.done("m.prefill")
    t.done("m.0")
    commands = heard(t.run, Failed(t.run.plan.index["m.prefill"], CAUSE), 1.0)
    finish = commands[-1]
    assert isinstance(finish, Finish)
    assert (finish.state, finish.cause) == (State.FAILED, CAUSE)
    assert t.run.plan.ids[finish.failed] == "m.1", "the part of the call that did not end"
    assert Withdraw("q", t.run.plan.index["x"]) in commands


def test_an_optional_call_that_fails_while_it_streams_is_done_without() -> None:
    primitives = call("m", 2, optional=True)
    t = told(*primitives, tool("x", "m.0"), tool("y", "m.1"), aggregate("z", "x", "y"))
    t.start()
    t.done("m.prefill")
    t.done("m.0")
    t.fail("m.prefill")
    assert status(t.run)["m.1"] == "failed"
    assert status(t.run)["y"] == "skipped"
    t.done("x")
    assert t.done("z")[-1] == ("finish", "partial")
    assert t.run.missing == ["m"]


def test_a_failure_after_everything_was_delivered_changes_nothing() -> None:
    t = told(*call("m"), tool("x", "m"))
    t.start()
    t.done("m.prefill")
    t.done("m")
    assert t.fail("m.prefill") == []


# --- absence --------------------------------------------------------------------------------


def test_a_reader_of_an_item_that_does_not_exist_is_skipped() -> None:
    first = tool("x", Ref("a", "out", (0, 1)))
    second = tool("y", Ref("a", "out", (1, 2)))
    t = told(tool("a"), first, second, aggregate("z", "x", "y"))
    t.start()
    assert t.done("a", 1) == [("submit", "x"), ("skipped", "y")]
    assert t.done("x")[-1] == ("control", "z")


def test_absence_propagates_through_all_that_need_it() -> None:
    t = told(tool("a"), tool("b", Ref("a", "out", (5, None))), tool("c", "b"), tool("d", "c"))
    t.start()
    assert t.done("a", 2) == [
        ("skipped", "b"),
        ("release", "a"),
        ("skipped", "c"),
        ("skipped", "d"),
        ("finish", "ok"),
    ]


def test_an_optional_input_may_be_absent() -> None:
    lone = tool("c", "b", "a", optional=("x0",))
    t = told(tool("a"), tool("b", Ref("a", "out", (5, 6))), lone)
    t.start()
    assert t.done("a", 2) == [("skipped", "b"), ("submit", "c")]


def test_an_empty_list_is_no_work_for_what_goes_item_by_item() -> None:
    t = told(tool("a"), tool("b", "a", batchable=True), tool("c", "a"))
    t.start()
    assert t.done("a", 0) == [("skipped", "b"), ("submit", "c")]


def test_an_absent_query_input_skips_its_readers() -> None:
    t = told(tool("a", Ref(QUERY, "notes")), tool("b"), aggregate("c", "a", "b"))
    assert t.start(notes=-1) == [("skipped", "a"), ("submit", "b")]


def test_an_aggregate_is_skipped_only_if_all_its_parts_are_absent() -> None:
    parts = [tool(f"p{k}", Ref("a", "out", (k, k + 1))) for k in range(2)]
    t = told(tool("a"), *parts, aggregate("z", "p0", "p1", mode=Aggregation.CONCAT))
    t.start()
    assert t.done("a", 0) == [
        ("skipped", "p0"),
        ("skipped", "p1"),
        ("skipped", "z"),
        ("release", "a"),
        ("finish", "ok"),
    ]


def test_a_chain_of_500_skipped_primitives_ends_in_one_event() -> None:
    chain = [tool("p1", Ref("p0", "out", (9, None)))]
    chain += [tool(f"p{k}", f"p{k - 1}") for k in range(2, 500)]
    t = told(tool("p0"), *chain)
    t.start()
    commands = t.done("p0")
    assert [c for c in commands if c[0] == "skipped"] == [
        ("skipped", f"p{k}") for k in range(1, 500)
    ]
    assert commands[-1] == ("finish", "ok")


def test_a_chain_of_500_done_primitives_releases_each_output() -> None:
    t = told(tool("p0"), *(tool(f"p{k}", f"p{k - 1}") for k in range(1, 500)))
    t.start()
    released = []
    for k in range(500):
        released += [id for what, id in t.done(f"p{k}") if what == "release"]
    assert released == [f"p{k}" for k in range(499)], "all but the answer, in order"


# --- release --------------------------------------------------------------------------------


def test_an_output_is_released_after_its_last_reader_and_not_before() -> None:
    t = told(tool("a"), tool("b", "a"), tool("c", "a"), aggregate("d", "b", "c"))
    t.start()
    t.done("a")
    assert ("release", "a") not in t.done("b")
    assert ("release", "a") in t.done("c")


def test_what_an_effect_gives_is_released_at_once_if_nobody_reads_it() -> None:
    t = told(tool("a"), tool("b"))
    t.start()
    assert t.done("a") == [("release", "a")]


def test_an_answer_is_kept_although_it_was_read() -> None:
    t = told(tool("a"), tool("b", "a"), outputs={"a": Ref("a", "out"), "b": Ref("b", "out")})
    t.start()
    t.done("a")
    assert t.done("b") == [("finish", "ok")]


# --- ends -----------------------------------------------------------------------------------


def test_a_query_ends_when_its_outputs_and_effects_are_done() -> None:
    """`pure` is read by a call whose other input does not come."""
    pure = replace(tool("pure"), params=ToolParams(len, pure=True))
    t = told(tool("a"), pure, tool("b", Ref("a", "out", (4, 5)), "pure"), tool("effect"), tool("z"))
    assert t.start() == [("submit", "a"), ("submit", "pure"), ("submit", "effect"), ("submit", "z")]
    found = t.done("a")
    assert found[0] == ("skipped", "b")
    assert found[-2:] == [("withdraw", "pure"), ("skipped", "pure")]
    assert t.done("z") == []
    assert t.done("effect") == [("release", "effect"), ("finish", "ok")]


def test_pure_work_that_nobody_reads_never_runs() -> None:
    pure = [tool("a"), tool("b", "a"), tool("c")]
    t = told(*(replace(p, params=ToolParams(len, pure=True)) for p in pure), tool("z"))
    assert t.start() == [("skipped", "b"), ("skipped", "a"), ("skipped", "c"), ("submit", "z")]


def test_a_failure_withdraws_all_that_was_submitted() -> None:
    t = told(tool("a"), tool("b"), *call("m", 2), tool("z", "a", "b", "m.0", "m.1"))
    t.start()
    t.done("m.prefill")
    commands = t.fail("a")
    assert commands == [("withdraw", "b"), ("withdraw", "m.prefill"), ("finish", "failed")]
    assert status(t.run)["z"] == "cancelled"


def test_a_failure_withdraws_nothing_that_was_not_submitted() -> None:
    """Neither a call that waits, nor one that has given all of its items."""
    given, waits = call("given", 2), call("waits", 2)
    behind = replace(waits[0], after=(Order("a", "waits"),))
    ends = tool("z", "a", "b", "given.0", "given.1", "waits.0", "waits.1")
    t = told(tool("a"), tool("b"), *given, behind, *waits[1:], ends)
    t.start()
    for done in ("given.prefill", "given.0", "given.1"):
        t.done(done)
    assert t.fail("b") == [("withdraw", "a"), ("finish", "failed")]


@pytest.mark.parametrize(
    ("event", "state", "error"),
    [
        (Cancelled(), State.CANCELLED, QueryCancelled),
        (DeadlineReached(), State.DEADLINE, DeadlineExceeded),
    ],
)
def test_the_end_from_outside(event: Any, state: State, error: type[Exception]) -> None:
    t = told(tool("a"), tool("b", "a"))
    t.start()
    withdraw, finish = heard(t.run, event, 9.0)
    assert withdraw == Withdraw("q", 0)
    assert finish.state is state  # type: ignore[union-attr]
    assert isinstance(finish.cause.error, error)  # type: ignore[union-attr]
    assert t.done("a") == []


def test_an_optional_component_that_fails_is_named_once() -> None:
    a = [replace(tool(f"a{k}"), component="a", optional=True) for k in range(2)]
    b = tool("b", "a0", "a1", optional=("x0", "x1"))
    t = told(*a, b)
    t.start()
    assert t.fail("a0") == []
    assert t.fail("a1") == [("submit", "b")]
    (*_, finish) = heard(t.run, Completed(2, {"out": 1}), 1.0)
    assert finish == Finish("q", State.PARTIAL, None, ("a",), reasons=(CAUSE,))


def test_the_commands_are_what_they_say() -> None:
    """The names above stand for these tuples."""
    r = run(plan(condition("if"), guarded("a", "then"), tool("b")))
    assert heard(r, START, 0.0) == [Control("q", 0), Submit("q", 2, -1)]
    assert heard(r, Completed(0, {"branch": 1}, "otherwise"), 0.0) == [
        Skipped("q", 1),
        Release("q", 0),
    ]


@catches(
    "not-asked",
    "what is for a queue goes out",
    edited(GraphRun._ready, "self._ask(Submit", "self.out.append(Submit"),
)
@catches(
    "no-core",
    "a run keeps to itself what its core is to perform",
    edited(GraphRun.attach, "self.out, self._ask = out, ask", "self._ask = ask"),
)
def test_what_is_for_a_queue_is_asked_of_it_at_once() -> None:
    r = run(plan(condition("if"), guarded("a", "then"), tool("b")))
    out: list[Any] = []
    asked: list[Any] = []
    r.attach(out, asked.append)
    r.handle(START, 0.0)
    assert out == [Control("q", 0)]
    assert asked == [Submit("q", 2, -1)]


@catches(
    "several-is-one",
    "one of several is enough for what needs two",
    edited(Absence.skips, "2 if mode is Aggregation.SEVERAL else 1", "1"),
)
def test_an_aggregate_runs_by_which_of_its_parts_are_there() -> None:
    """Each of them is there or not. Merged is what stands last, or the only one that is there."""
    modes = [mode for mode in Aggregation if mode is not Aggregation.TOP_K]
    for mode, there in product(modes, product([False, True], repeat=3)):
        names = [f"p{k}" for k in range(len(there))]
        parts = [tool(name, Ref(QUERY, name)) for name in names]
        whole = aggregate("z", *names, mode=mode)
        t = Told(run(Plan(Graph("test", [*parts, whole], {"answer": Ref("z", "out")}, names))))
        t.start(**{name: 1 if some else -1 for name, some in zip(names, there, strict=True)})
        for name, some in zip(names, there, strict=True):
            if some:
                t.done(name)
        runs = sum(there) >= (2 if mode is Aggregation.SEVERAL else 1)
        if mode is Aggregation.MERGED:
            runs = there[-1] or sum(there) == 1
        assert status(t.run)["z"] == ("running" if runs else "skipped"), (mode, there)
