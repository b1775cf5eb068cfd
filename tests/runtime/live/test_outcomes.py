"""What becomes of a slice: its values in the store, or why there are none and whether to try."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from teola.engine import QueryContext, Request
from teola.errors import EngineAway, EngineBusy, EngineError, InputError, OutputError
from teola.graph import EmbeddingParams, Op, Primitive, Ref, ToolParams, Value
from teola.policies.work import Work
from teola.runtime.live.batch import GONE, as_retryable, may_try_again, refusal_of, results_of
from teola.runtime.live.nesting import Terms
from teola.runtime.live.outcomes import keeps_steps, outcome_of, results_kept
from teola.runtime.live.query import LiveQuery, Progress
from teola.runtime.live.steps import Steps
from teola.runtime.observe.trace import Trace
from teola.runtime.store import Store
from teola.runtime.tally import Tally
from teola.runtime.values import RemoteList
from teola.schedule.events import Cause, Started
from teola.schedule.graph_run import GraphRun
from teola.schedule.quota import Refusal
from tests.runtime.live.test_steps import Log
from tests.schedule.plans import QUERY, call, plan, tool

ITEMS = ["a", "b", "c", "d"]


def live_query(
    retries: int | None = None, watched: bool = True, pure: bool = False, steps: Steps | None = None
) -> tuple[LiveQuery, list[Any]]:
    """Of one call for four items. What its watcher hears."""
    call = tool("t", Ref(QUERY, "notes"), batchable=True)
    assert isinstance(call.params, ToolParams)
    call = replace(call, params=replace(call.params, retries=retries, pure=pure))
    made, heard = plan(call), list[Any]()
    run, trace = GraphRun("q", made), Trace("q", "app", made, 0.0)
    tally = Tally()
    store = Store(made, {"notes": ITEMS}, tally=tally)
    run.handle(Started(store.counts()), 0.0)
    watcher = heard.append if watched else None
    query = LiveQuery(
        QueryContext("q"), made, store, run, trace, None, watcher, True, Terms(steps=steps), tally
    )
    trace.sent(0, 0, 2, 0.0, 0.0, 0, 1, 1)
    trace.sent(0, 2, 4, 0.0, 0.0, 0, 2, 1)
    return query, heard


def one_of(p: Primitive, **inputs: Any) -> LiveQuery:
    """A query that is this primitive."""
    made = plan(p, outputs={"answer": Ref(p.id, p.outputs[0])})
    run, trace = GraphRun("q", made), Trace("q", "app", made, 0.0)
    store = Store(made, {"question": "why?", "notes": "a note"} | inputs)
    run.handle(Started(store.counts()), 0.0)
    trace.sent(0, 0, 1, 0.0, 0.0, 0, 1, 1)
    return LiveQuery(QueryContext("q"), made, store, run, trace, None, None, True, Terms())


def states(query: LiveQuery) -> list[tuple[int, int, str, float]]:
    return sorted((span.lo, span.hi, span.state, span.end) for span in query.trace.spans)


@pytest.mark.parametrize("state", ["done", "shared"])
@pytest.mark.parametrize("watched", [True, False])
def test_slices_that_are_done_are_one_list_once_all_are_there(state: str, watched: bool) -> None:
    query, heard = live_query(watched=watched)
    given = {"out": ["C", "D"]}
    assert outcome_of(query, 0, 4, 2, 4, given, False, 1.0, state) == {"out": 2}
    assert 0 not in query.store.values
    given = {"out": ["A", "B"]}
    assert outcome_of(query, 0, 4, 0, 2, given, False, 2.0, state) == {"out": 2}
    assert query.store.values[0]["out"] == ["A", "B", "C", "D"]
    assert states(query) == [(0, 2, state, 2.0), (2, 4, state, 1.0)]
    told = Progress("t", Op.TOOL_CALL.value, "python", "finished", 2)
    assert heard == [told, told] * watched


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    ("error", "retries", "again", "refused"),
    [
        (EngineError("gone", retryable=True), None, True, None),
        (EngineError("gone"), None, False, None),
        (ValueError("bug"), None, False, None),
        (ValueError("bug"), 2, True, None),
        (EngineBusy("full", after_s=3.0), None, True, Refusal("busy", 3.0)),
        (EngineAway("down"), None, True, Refusal("away")),
    ],
)
def test_a_failure_says_whether_another_try_may_help(
    error: Exception, retries: int | None, again: bool, refused: Refusal | None, told: bool
) -> None:
    """None does once some of it has left for the client. Of a query that has ended it is known,
    too, if its server did not take it."""
    query, heard = live_query(retries)
    found = outcome_of(query, 0, 4, 0, 2, error, told, 1.0)
    again = again and not told
    assert found == Cause(error, again, refused=refused if again else None)
    assert states(query)[0] == (0, 2, "failed", 1.0)
    assert heard == []
    assert outcome_of(None, 0, 4, 0, 2, error, told, 1.0) == Cause(error, refused=refused)


class Array:
    """A vector that is no list, as an engine may give and a function may not."""

    def tolist(self) -> list[float]:
        return [1.0]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("vector", [[1.0], Array()])
def test_what_is_done_in_one_piece_gives_as_many_items_as_it_was_given(
    vector: Any, count: int
) -> None:
    """It counts as one item itself."""
    vectors = [vector] * count
    texts: tuple[tuple[str, Value], ...] = (("texts", Ref(QUERY, "notes")),)
    query = one_of(
        Primitive("e", Op.EMBEDDING, "e", "e", texts, ("vectors",), EmbeddingParams()),
        notes=["a", "b"],
    )
    found = outcome_of(query, 0, 1, 0, 1, {"vectors": vectors}, False, 1.0)
    if count == 2:
        assert found == {"vectors": 2}
        assert states(query) == [(0, 1, "done", 1.0)]
        return
    assert isinstance(found, Cause)
    assert f"gave {count} for 2 items of 'vectors'" in str(found.error)


@pytest.mark.parametrize("answers", [True, False])
def test_a_function_may_give_functions_what_no_answer_may_have(answers: bool) -> None:
    inner = tool("t", Ref(QUERY, "notes"))
    query = one_of(inner)
    if not answers:
        after = plan(inner, tool("u", "t"), outputs={"answer": Ref("u", "out")})
        query.plan = after
    found = outcome_of(query, 0, 1, 0, 1, {"out": object()}, False, 1.0)
    if answers:
        assert isinstance(found, Cause)
        assert isinstance(found.error, OutputError)
    else:
        assert found == {"out": 1}


# --- steps that are kept --------------------------------------------------------------------------


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize(("lo", "hi", "key"), [(0, 4, "t"), (0, 3, "t#0:3"), (3, 4, "t#3:4")])
@pytest.mark.parametrize("fails", ["", "raises", "gives"])
async def test_what_a_function_gave_is_kept_before_it_is_read(
    lo: int, hi: int, key: str, pure: bool, fails: str
) -> None:
    """Of one that may change the world that it begins, too, and that it failed."""
    log, asked = Log(), list[Any]()
    query, _ = live_query(pure=pure, steps=Steps("q", keeps=log))
    (p,) = query.plan.primitives
    bug, made = ValueError("bug"), {"out": ["A"]}

    async def execute(requests: list[Request]) -> list[Any]:
        asked.append((requests, [*log.told]))
        if fails == "raises":
            raise bug
        return [bug if fails else made for _ in requests]

    engine = SimpleNamespace(spec=SimpleNamespace(name="e"))
    host = cast("Any", SimpleNamespace(keeps=True, execute=execute, engine=engine))
    request = Request(p.op, p.params, {}, query.context, "q")
    work = Work(query.plan.specs[0], "q", 0, 4, 0.0, 0)
    try:
        results = await results_kept(host, request, query, work, lo, hi)
    except ValueError as error:
        results = [error]
    assert results == [bug if fails else made]
    begun = [] if pure else [(key, None)]
    assert asked == [([request], begun)]
    ended = {"error": "ValueError: bug"} if fails else {"gives": made}
    kept = [] if pure and fails else [ended]
    assert [(k, json.loads(v)) for k, v in log.told[len(begun) :] if v] == [(key, e) for e in kept]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("asks", [True, False])
def test_steps_are_functions_that_may_change_the_world_or_ask(
    asks: bool, pure: bool, kept: bool
) -> None:
    p = tool("t")
    assert isinstance(p.params, ToolParams)
    query = one_of(replace(p, params=replace(p.params, asks=asks, pure=pure)))
    query.terms = Terms(steps=Steps("q") if kept else None)
    assert keeps_steps(query, 0) is (kept and (asks or not pure))
    query.plan = plan(*call("m"))
    assert [keeps_steps(query, i) for i in (0, 1)] == [False, False], "no functions"


# --- what has ended -------------------------------------------------------------------------------


def test_values_of_a_query_that_has_ended_are_nobodys() -> None:
    assert outcome_of(None, 0, 4, 0, 2, {"out": ["A"]}, False, 1.0) == {}


@pytest.mark.parametrize(
    "result", [{"out": ["A"]}, {"out": ["A", "B", "C"]}, {"out": "AB"}, {"other": ["A", "B"]}, 7]
)
def test_what_is_no_output_of_so_many_items_fails(result: Any) -> None:
    query, heard = live_query()
    found = outcome_of(query, 0, 4, 0, 2, result, False, 1.0)
    assert isinstance(found, Cause)
    assert isinstance(found.error, OutputError)
    assert states(query)[0][2] == "failed"
    assert heard == []


@pytest.mark.parametrize("spare", [1, 0, -1])
def test_a_query_holds_as_much_as_it_may_and_no_more(spare: int) -> None:
    query, heard = live_query()
    query.tally.bytes = query.tally.held_bytes + 2000 + spare
    found = outcome_of(query, 0, 4, 0, 2, {"out": ["x" * 1000] * 2}, False, 1.0)
    if spare >= 0:
        assert found == {"out": 2}
        return
    assert isinstance(found, Cause)
    assert isinstance(found.error, InputError)
    assert str(found.error).startswith("what it computes for this query is more than the 0.001")
    assert (found.retryable, states(query)[0][2], heard) == (False, "failed", [])


# --- batches --------------------------------------------------------------------------------------


def test_an_error_that_nobody_knows_may_be_another_requests() -> None:
    bug, known = ValueError("bug"), EngineError("gone")
    made = as_retryable(bug, 2)
    assert (type(made), str(made), made.__cause__) == (EngineError, "ValueError: bug", bug)
    assert may_try_again(plan(tool("t")).primitives[0], made)
    assert (as_retryable(bug, 1), as_retryable(known, 2)) == (bug, known)
    assert refusal_of(bug) is None


class Far(RemoteList):
    """A list in another process."""

    def __init__(self) -> None: ...

    async def fetch(self) -> list[Any]:
        return ["fetched"]


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("far", [True, False])
async def test_an_engine_is_given_what_is_left_and_lies_elsewhere_if_it_cannot_reach_it(
    keeps: bool, far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two requests whose queries have ended."""
    monkeypatch.setattr("teola.runtime.live.batch.RemoteList", Far)
    there = Far() if far else ["here"]
    asked = list[list[Request]]()

    async def execute(requests: list[Request]) -> list[Any]:
        asked.append([*requests])
        return [{"out": k} for k in range(len(requests))]

    host = SimpleNamespace(
        keeps=keeps, execute=execute, engine=SimpleNamespace(spec=SimpleNamespace(name="e"))
    )
    base = plan(tool("t")).primitives[0]
    requests = [
        Request(base.op, base.params, {"x": there, "y": 1}, QueryContext(id), id)
        for id in ("q", "r")
    ]
    given = [None, requests[0], None, requests[1]]
    results = await results_of(cast("Any", host), given)
    assert results == [GONE, {"out": 0}, GONE, {"out": 1}]
    assert await results_of(cast("Any", host), requests) == [{"out": 0}, {"out": 1}]
    x = there if keeps or not far else ["fetched"]
    assert [[dict(one.inputs) for one in some] for some in asked] == [[{"x": x, "y": 1}] * 2] * 2
    asked.clear()
    assert await results_of(cast("Any", host), [None, None]) == [GONE, GONE]
    assert asked == []
