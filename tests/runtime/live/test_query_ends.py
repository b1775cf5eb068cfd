"""How a live query has ended and what it says of that: its outputs, its errors, its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from teola.engine import QueryContext
from teola.errors import DeadlineExceeded, EngineError, OutputError, QueryFailed
from teola.graph import (
    QUERY,
    AggregateParams,
    Aggregation,
    Grow,
    Op,
    Primitive,
    Ref,
    WaitParams,
)
from teola.policies.asker import Asker
from teola.policies.ledger import BudgetAccount, Ledger
from teola.price import Price
from teola.runtime.live.nesting import Terms
from teola.runtime.live.people import People
from teola.runtime.live.purse import Purse
from teola.runtime.live.query import (
    LiveQuery,
    Token,
    as_failure,
    component_failure,
    ending_of,
    failure_of,
)
from teola.runtime.live.steps import ASKED, Steps
from teola.runtime.observe.trace import Trace
from teola.schedule.events import Cause, Completed, Finish, State
from teola.testing.hash_engines import HashModel
from tests.recording import Bench
from tests.runtime.live.test_call import live_query
from tests.schedule.plans import call, plan, tool

NAMES = "abc"


def texts(id: str) -> list[Primitive]:
    """A call that gives a text."""
    return [
        replace(p, outputs=tuple("text" if port == "out" else port for port in p.outputs))
        for p in call(id, optional=True)
    ]


def choosing(mode: Aggregation) -> LiveQuery:
    """Three calls, of whose texts one is chosen; beside it one text by itself and an input."""
    refs = tuple(Ref(name, "text") for name in NAMES)
    chosen = Primitive(
        "c-of", Op.AGGREGATE, "c-of", "", (("parts", refs),), ("out",), AggregateParams(mode)
    )
    primitives = [p for name in NAMES for p in texts(name)]
    outputs = {
        "input": Ref(QUERY, "notes"),
        "answer": Ref("c-of", "out"),
        "alone": Ref("b", "text"),
    }
    return live_query(plan(*primitives, chosen, outputs=outputs))[0]


def delivered(query: LiveQuery, names: Sequence[str]) -> None:
    """These calls have written."""
    for name in NAMES:
        index = query.plan.index
        counts = {"sequence": 1}
        query.run.handle(Completed(index[f"{name}.prefill"], counts), 0.0)
        given = {"text": 1} if name in names else {}
        query.run.handle(Completed(index[name], given), 0.0)


SOME = [
    "".join(name for name, there in zip(NAMES, which, strict=True) if there)
    for which in product([True, False], repeat=3)
]


@pytest.mark.parametrize("written", SOME)
@pytest.mark.parametrize("mode", [Aggregation.FIRST, Aggregation.LAST, Aggregation.MERGED])
def test_of_several_texts_the_one_that_was_chosen_says_how_it_ended(
    mode: Aggregation, written: str
) -> None:
    query = choosing(mode)
    delivered(query, written)
    ends = dict(zip(NAMES, ("length", "refusal", "empty"), strict=True))
    heads = {name: query.plan.index[f"{name}.prefill"] for name in NAMES}
    assert (query.answer_ends(), query.finish_reasons()) == (frozenset(), {})
    query.ends = {heads[name]: end for name, end in ends.items()}
    query.finishes = {heads[name]: f"{name} stopped" for name in NAMES}
    chosen = written[:1] if mode is Aggregation.FIRST else written[-1:]
    assert query.answer_ends() == {ends["b"], *(ends[name] for name in chosen)}
    reasons = {"alone": "b stopped"} | ({"answer": f"{chosen} stopped"} if chosen else {})
    assert query.finish_reasons() == reasons
    query.ends = {heads["a"]: "length"}
    assert query.answer_ends() == ({"length"} if chosen == "a" else set())
    query.finishes = {heads["a"]: "length"}
    assert query.finish_reasons() == ({"answer": "length"} if chosen == "a" else {})


def test_what_has_grown_says_how_its_own_texts_ended() -> None:
    query = choosing(Aggregation.FIRST)
    delivered(query, "a")
    query.grown_ends = {
        query.plan.index["a"]: frozenset({"length", "refusal"}),
        query.plan.index["c"]: frozenset({"empty"}),
    }
    assert query.answer_ends() == {"length", "refusal"}


# --- what its watcher is told -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        ({"input": "note", "answer": "It rains.", "alone": "Or not."}, ["It rains."]),
        ({"input": "note", "answer": None, "alone": "Or not."}, ["Or not."]),
        ({"input": "note", "answer": ["It rains."], "alone": ""}, [""]),
        ({"input": "note", "answer": None, "alone": None}, []),
    ],
)
def test_the_first_text_of_an_answer_goes_out_whole_if_none_went_out_before(
    outputs: dict[str, Any], told: list[str]
) -> None:
    """An input of the query is no answer."""
    query, heard = choosing(Aggregation.FIRST), list[Any]()
    query.watcher = heard.append
    query.tell_whole(outputs)
    assert heard == [Token(text) for text in told]
    heard.clear()
    query.tell("It")
    assert (query.streamed, heard) == (True, [Token("It")])
    query.tell_whole(outputs)
    assert heard == [Token("It")]
    query.run.state = State.OK
    query.tell("is over")
    assert heard == [Token("It")]
    query.watcher, query.streamed = None, False
    query.tell_whole(outputs)
    query.tell("nobody")


@pytest.mark.parametrize("streams", [True, False])
async def test_a_watcher_is_told_the_answer_in_pieces_or_whole(streams: bool) -> None:
    p, heard = plan(*texts("a"), outputs={"answer": Ref("a", "text")}), list[Any]()
    asker, trace = Asker("t", "app", "q", 0.0), Trace("q", "app", p, 0.0)
    async with Bench({"llm": HashModel()}) as bench:
        given = {"question": "why is it so?"}
        ending = await bench.live.execute(
            p, given, QueryContext("q"), asker, trace, heard.append, streams
        )
    pieces = [one.text for one in heard if isinstance(one, Token)]
    assert "".join(pieces) == ending.outputs["answer"]
    assert (len(pieces) == 1) is not streams


def test_of_what_was_stopped_the_outputs_are_what_had_come() -> None:
    query = choosing(Aggregation.LAST)
    assert query.left_over() == {}
    query.left = {query.plan.index["c-of"]: {"out": ["half"], "more": 1}}
    assert query.left_over() == {"answer": ["half"]}
    query.left = {query.plan.index["b"]: {"other": 1}}
    assert query.left_over() == {"alone": None}


# --- errors -----------------------------------------------------------------------------------


def test_a_failure_names_its_component_and_keeps_its_cause() -> None:
    error = EngineError("the line broke\nat noon")
    failure = component_failure(error, tool("act"))
    assert str(failure) == "component 'act', tool_call: the line broke\n    at noon"
    assert (failure.component, failure.__cause__) == ("act", error)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DeadlineExceeded("too late"), None),
        (ValueError("no digit"), "a bug, of Teola or of an extension: ValueError: no digit"),
    ],
)
def test_what_is_no_error_of_ours_is_a_bug(error: Exception, said: str | None) -> None:
    failure = as_failure(error)
    if said is None:
        assert failure is error
        return
    assert isinstance(failure, QueryFailed)
    assert (str(failure), failure.__cause__) == (said, error)


@pytest.mark.parametrize("failed", [-1, 0, 1])
def test_an_ending_has_its_error_its_primitive_and_why_each_part_is_missing(failed: int) -> None:
    query, _ = live_query(plan(tool("first"), tool("second", "first")))
    reasons = tuple(Cause(EngineError(f"{name} broke")) for name in ("one", "two"))
    cause = Cause(ValueError("no digit"))
    told = Finish("q", State.FAILED, cause, ("one", "two"), failed, reasons)
    ending = ending_of(query, told, {"answer": None})
    assert (ending.state, ending.outputs, ending.error) == (
        State.FAILED, {"answer": None}, cause.error,
    )  # fmt: skip
    assert ending.failed is (query.plan.primitives[failed] if failed >= 0 else None)
    assert (ending.missing, ending.reasons) == (
        ("one", "two"), {"one": "one broke", "two": "two broke"},
    )  # fmt: skip
    error = failure_of(query, told)
    if failed < 0:
        assert error is cause.error
    else:
        name = ("first", "second")[failed]
        assert str(error) == f"component {name!r}, tool_call: ValueError: no digit"
    well = Finish("q", State.OK, None, ())
    assert failure_of(query, well) is None
    assert (ending_of(query, well, {}).error, ending_of(query, well, {}).failed) == (None, None)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_slice_that_failed_is_noted_while_its_query_goes_on(
    again: bool, traced: bool, ended: bool
) -> None:
    query, _ = live_query(plan(tool("act")))
    query.trace.sent(0, 2, 4, 0.0, 0.0, 0, 1, 1)
    query.run.state = State.OK if ended else None
    error = OutputError("no")
    assert query.failed(0, 2, error, 3.0, again=again, traced=traced) == Cause(error, again)
    states = [span.state for span in query.trace.spans]
    assert ("failed" in states) == (traced and not ended)


# --- people and steps -------------------------------------------------------------------------


def asking(read: Any = None, steps: Steps | None = None, people: Any = None) -> LiveQuery:
    params = WaitParams(lambda inputs: ("Sure?", {}, {"about": inputs["x0"]}), read=read)
    question = replace(tool("ask", Ref(QUERY, "question")), op=Op.WAIT, params=params, engine="")
    query, _ = live_query(plan(question))
    query.terms = Terms(steps=steps, people=people)
    return query


def test_a_question_is_its_querys_and_has_the_name_of_its_step() -> None:
    query = asking(people=People("root"))
    query.run.id = "root/part"
    asked = query.inquiry(0, "approve", "Sure?", {"type": "boolean"}, {"why": 1})
    assert (asked.id, asked.query_id, asked.kind) == ("part/ask", "root", "approve")
    assert (asked.component, asked.question) == ("ask", "Sure?")
    assert (asked.schema, asked.about) == ({"type": "boolean"}, {"why": 1})
    with pytest.raises(EngineError) as raised:
        asking().inquiry(0, "approve", "Sure?", {}, None)
    assert str(raised.value) == "nobody can be asked here"


@pytest.mark.parametrize("kept", [None, '{"about": "before"}', "null"])
def test_an_answer_is_read_with_what_its_question_was_about_when_it_was_asked(
    kept: str | None,
) -> None:
    """What it would be about now may be another thing."""
    found = {} if kept is None else {"ask" + ASKED: kept}
    about: Any = {None: {"about": "why?"}, "null": None}.get(kept, {"about": "before"})
    query = asking(lambda answer, about: (answer, about), Steps("q", found))
    assert query.read_answer(0, True) == (True, about)
    assert asking(steps=Steps("q", found)).read_answer(0, [1]) == [1]
    assert asking().first_about(0, {"x": 1}) == {"x": 1}


# --- its deadline -----------------------------------------------------------------------------


async def test_a_deadline_moves_by_as_long_as_people_took_and_comes_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query, _ = live_query(plan(tool("act")))
    loop = asyncio.get_running_loop()
    now, late, moved = loop.time(), list[str](), list[tuple[LiveQuery, float]]()
    query.context = QueryContext("q", deadline=now + 1000.0)
    query.postponed = lambda of, by_s: moved.append((of, by_s))
    query.postpone(5.0)
    assert (query.context.deadline, query.timer) == (now + 1005.0, None)
    query.stand_still()
    first = query.timer = loop.call_at(query.context.deadline, late.append, "first")
    query.postpone(5.0)
    assert query.timer is first, "nobody says what is to happen then"
    query.late = lambda: late.append("late")
    query.stand_still()
    assert first.cancelled()
    query.postpone(10.0)
    assert query.timer is not first
    assert query.timer.when() == query.context.deadline == now + 1020.0
    assert moved == [(query, 5.0), (query, 5.0), (query, 10.0)]
    query.left_alone()
    assert query.timer.cancelled()
    assert query.context.life.over


# --- whose it is ------------------------------------------------------------------------------


class Agent:
    """Spends, and has a purse."""

    def __init__(self, purse: Purse | None = None) -> None:
        self.purse = purse


def part(around: LiveQuery, agent: Any, key: str, last: bool = False) -> LiveQuery:
    query, _ = live_query(plan(*call("m")))
    growing = SimpleNamespace(query=around, i=0, spends=agent, over=False)
    place = SimpleNamespace(growing=growing, key=key, grow=Grow("b", key, {}, last=last))
    query.place = cast("Any", place)
    return query


def test_what_a_part_takes_counts_for_the_nearest_agent_around_it() -> None:
    outer, inner, caller = Agent(), Agent(), Agent()
    query, _ = live_query(plan(*call("m")))
    assert (query.spender, query.outermost) == (None, query)
    query.terms = Terms(spender=cast("Any", (caller, "tool")))
    each = part(query, None, "item/0")
    assert each.spender is query.terms.spender
    turn = part(each, outer, "turn/1")
    assert turn.spender == (outer, "turn/1")
    deep = part(turn, None, "item/2")
    assert deep.spender == (outer, "turn/1")
    own = part(deep, inner, "turn/7")
    assert own.spender == (inner, "turn/7")
    assert {one.outermost for one in (each, turn, deep, own)} == {query}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("purse", [False, True])
def test_what_was_kept_for_the_last_answer_is_for_the_part_that_gives_it(
    last: bool, purse: bool
) -> None:
    """Once."""
    account = BudgetAccount(most_tokens=1000)
    made = Purse(Ledger(account), Price(1.0, 1.0))
    assert made.keep(10, 20)
    query, _ = live_query(plan(*call("m")))
    assert query.kept_for_answer() is None
    assert part(query, None, "turn/1", last).kept_for_answer() is None
    turn = part(query, Agent(made if purse else None), "turn/1", last)
    kept = turn.kept_for_answer()
    assert (kept is not None) == (last and purse)
    assert turn.kept_for_answer() is None
    assert account.kept_tokens == 30
