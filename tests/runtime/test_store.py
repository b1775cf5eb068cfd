"""The store: joining slices, resolving inputs, and what Aggregates and Conditions make of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from time import process_time
from typing import Any

import pytest

from teola.engine import Hit, TextPart
from teola.errors import EngineError
from teola.graph import (
    QUERY,
    AggregateParams,
    Aggregation,
    ConditionParams,
    Graph,
    Op,
    Part,
    PrefillParams,
    Primitive,
    Prompt,
    Ref,
    Role,
    ToolParams,
)
from teola.runtime.store import Store
from teola.runtime.values import bytes_of
from teola.schedule.plan import ABSENT, Plan
from tests.planted import catches, edited
from tests.schedule.plans import nothing, plan, tool


def store(*primitives: Primitive, **inputs: Any) -> Store:
    outputs = {"answer": Ref(primitives[-1].id, primitives[-1].outputs[0])}
    return Store(plan(*primitives, outputs=outputs), inputs)


def gather(mode: Aggregation, count: int = 3) -> Store:
    """Producers p0, p1, ... and an Aggregate `all` over them."""
    parts = [tool(f"p{k}") for k in range(count)]
    refs = tuple(Ref(p.id, "out") for p in parts)
    params = AggregateParams(mode)
    every = Primitive("all", Op.AGGREGATE, "all", "", (("parts", refs),), ("out",), params)
    return store(*parts, every)


def hit(id: str, score: float) -> Hit:
    return Hit(id, "d", f"text {id}", score)


# --- what is dropped ------------------------------------------------------------------------


@catches(
    "dropped-returns",
    "a late result of a primitive that was skipped comes back",
    edited(Store.put, "if i not in self._dropped:", "if True:"),
)
def test_what_was_dropped_does_not_come_back() -> None:
    s = store(tool("a"), tool("b", "a"))
    s.drop(0)
    assert s.put(0, {"out": "late"}) == {"out": 1}
    assert s.read(Ref("a", "out")) is None
    assert s.empty


def test_slices_of_what_was_dropped_do_not_come_back() -> None:
    s = store(tool("a"), tool("b", "a"))
    s.put_slice(0, 0, 2, 4, {"out": [0, 1]})
    s.drop(0)
    s.put_slice(0, 2, 4, 4, {"out": [2, 3]})
    assert s.read(Ref("a", "out")) is None
    assert (s.empty, s.held_bytes) == (True, 0)


# --- slices ---------------------------------------------------------------------------------


def test_slices_are_joined_in_order_however_they_come() -> None:
    s = store(tool("a"))
    assert s.put_slice(0, 4, 6, 6, {"out": [4, 5]}) == {"out": 2}
    assert s.put_slice(0, 0, 2, 6, {"out": [0, 1]}) == {"out": 2}
    assert s.read(Ref("a", "out")) is None, "it is not complete"
    s.put_slice(0, 2, 4, 6, {"out": [2, 3]})
    assert s.read(Ref("a", "out")) == [0, 1, 2, 3, 4, 5]
    s.release(0)
    assert s.empty


def test_a_slice_that_comes_twice_counts_once() -> None:
    s = store(tool("a"))
    s.put_slice(0, 0, 2, 4, {"out": [9, 9]})
    s.put_slice(0, 0, 2, 4, {"out": [0, 1]})
    assert s.read(Ref("a", "out")) is None
    s.put_slice(0, 2, 4, 4, {"out": [2, 3]})
    assert s.read(Ref("a", "out")) == [0, 1, 2, 3]


MANY = 20_000


def test_what_a_slice_costs_does_not_grow_with_those_before_it() -> None:
    s = store(tool("a"))
    began = process_time()
    for k in reversed(range(MANY)):
        s.put_slice(0, k, k + 1, MANY, {"out": [k]})
    assert process_time() - began < 4, "to look at all slices each time would take 10 s and more"
    assert s.values[0]["out"] == [*range(MANY)]


# --- references -----------------------------------------------------------------------------


def test_ranges_of_lists() -> None:
    s = store(tool("a"), notes=["x", "y", "z"], question="why?")
    assert s.read(Ref(QUERY, "notes", (1, 2))) == ["y"]
    assert s.read(Ref(QUERY, "notes", (1, None))) == ["y", "z"]
    assert s.read(Ref(QUERY, "notes", (5, 6))) == []
    assert s.read(Ref(QUERY, "question", (0, 1))) == ["why?"], "a text is a list of one"
    assert s.read(Ref(QUERY, "scope")) is None


def test_item_inputs_are_cut_and_others_are_whole() -> None:
    params = ToolParams(nothing, item_inputs=("xs",))
    inputs = (("xs", Ref(QUERY, "notes")), ("all", Ref(QUERY, "notes")))
    p = Primitive("a", Op.TOOL_CALL, "a", "python", inputs, ("out",), params, batchable=True)
    s = store(p, notes=[1, 2, 3, 4])
    assert s.resolve(0, 1, 3) == {"xs": [2, 3], "all": [1, 2, 3, 4]}
    assert s.resolve(0) == {"xs": [1, 2, 3, 4], "all": [1, 2, 3, 4]}
    assert s.items(0) == 4


def test_absent_inputs_are_left_out() -> None:
    s = store(tool("a", Ref(QUERY, "question"), Ref(QUERY, "notes")), question="why?")
    assert s.resolve(0) == {"x0": "why?"}


def test_a_prompt_has_the_parts_that_are_there() -> None:
    parts = (
        Part(Role.INSTRUCTION, "Say: "),
        Part(Role.QUESTION, Ref(QUERY, "question")),
        Part(Role.CONTEXT, Ref(QUERY, "notes"), separator=" | "),
    )
    p = Primitive(
        "a", Op.PREFILLING, "a", "llm", (("prompt", Prompt(parts)),), ("out",), PrefillParams()
    )
    assert store(p, notes=["x", hit("y", 1.0)]).prompt(0) == (
        TextPart(Role.INSTRUCTION, "Say: "),
        TextPart(Role.CONTEXT, "x | text y"),
    )
    assert store(p, notes=["x" * 40]).prompt_tokens(0) == 2 + 11


# --- aggregates -----------------------------------------------------------------------------


def test_first_and_last_take_what_is_present() -> None:
    for mode, expected in [(Aggregation.FIRST, "one"), (Aggregation.LAST, "two")]:
        s = gather(mode, 4)
        s.put(1, {"out": "one"})
        s.put(2, {"out": "two"})
        assert s.control(4) == {"out": expected}


def test_concat_keeps_the_order_of_its_parts() -> None:
    s = gather(Aggregation.CONCAT)
    s.put(2, {"out": ["c", "d"]})
    s.put(0, {"out": "a"})
    assert s.control(3) == {"out": ["a", "c", "d"]}


def test_union_keeps_each_hit_once_with_its_best_score() -> None:
    s = gather(Aggregation.UNION)
    s.put(0, {"out": [[hit("a", 0.1), hit("b", 0.5)], [hit("c", 0.3)]]})
    s.put(1, {"out": [[hit("a", 0.9), hit("b", 0.2)]]})
    (found,) = s.control(3).values()
    assert found == [hit("a", 0.9), hit("b", 0.5), hit("c", 0.3)]


def test_union_breaks_ties_by_what_was_found_first() -> None:
    s = gather(Aggregation.UNION)
    s.put(0, {"out": [[hit("b", 0.5), hit("a", 0.5)]]})
    (found,) = s.control(3).values()
    assert [h.id for h in found] == ["b", "a"]


def test_new_keeps_what_no_part_before_the_last_has() -> None:
    s = gather(Aggregation.NEW)
    s.put(0, {"out": [[hit("a", 0.1), hit("b", 0.5)]]})
    s.put(1, {"out": [hit("c", 0.3)]})
    s.put(2, {"out": [[hit("d", 0.2), hit("a", 0.9), hit("c", 0.4)], [hit("d", 0.1)]]})
    assert s.control(3) == {"out": [hit("d", 0.2)]}


def test_new_of_an_absent_part_is_nothing() -> None:
    s = gather(Aggregation.NEW)
    s.put(0, {"out": [hit("a", 0.1)]})
    assert s.control(3) == {"out": []}


def top_k(k: int | None, hits: Any, scores: Any, scored: Any = None) -> Any:
    inputs = [("hits", Ref(QUERY, "hits")), ("scores", Ref(QUERY, "scores"))]
    if scored is not None:
        inputs.append(("scored", Ref(QUERY, "scored")))
    params = AggregateParams(Aggregation.TOP_K, k)
    p = Primitive("best", Op.AGGREGATE, "best", "", tuple(inputs), ("out",), params)
    made = Store(_plan(p), {"hits": hits, "scores": scores, "scored": scored})
    return made.control(0)["out"]


def _plan(p: Primitive) -> Any:
    return Plan(Graph("t", [p], {"answer": Ref(p.id, "out")}, ["hits", "scores", "scored"]))


def test_top_k_keeps_the_best_with_their_new_scores() -> None:
    hits = [hit("a", 9.0), hit("b", 8.0), hit("c", 7.0)]
    assert top_k(2, hits, [0.1, 0.3, 0.2]) == [hit("b", 0.3), hit("c", 0.2)]
    assert top_k(2, hits, [0.1, 0.1, 0.1]) == [hit("a", 0.1), hit("b", 0.1)]
    assert top_k(None, ["x", "y"], [1, 2]) == ["y", "x"]
    assert top_k(5, ["x"], [1]) == ["x"]


def test_top_k_finds_scores_that_came_in_another_order() -> None:
    hits = [hit("a", 9.0), hit("b", 8.0), hit("c", 7.0)]
    scored = [hit("c", 1.0), hit("a", 1.0), hit("b", 1.0)]
    assert top_k(2, hits, [0.1, 0.3, 0.2], scored) == [hit("a", 0.3), hit("b", 0.2)]
    assert top_k(2, hits, [0.1, 0.1, 0.1], scored) == [hit("a", 0.1), hit("b", 0.1)]
    assert top_k(3, hits, [0.1, 0.3], scored) == [hit("a", 0.3), hit("c", 0.1)]
    assert top_k(1, ["x", "y"], [1, 2], ["x", "y"]) == ["y"]


def test_several_lists_are_cut_as_far_as_the_shortest_goes() -> None:
    params = ToolParams(nothing, item_inputs=("xs", "ys"))
    inputs = tuple((name, Ref(QUERY, where)) for name, where in (("xs", "notes"), ("ys", "rows")))
    p = Primitive("a", Op.TOOL_CALL, "a", "python", inputs, ("out",), params, batchable=True)
    made = Plan(Graph("t", [p], {"answer": Ref("a", "out")}, ["notes", "rows"]))
    for notes, rows, items in (([1, 2, 3], [4, 5], 2), ([1], [4, 5], 1), ([1, 2], None, 0)):
        assert Store(made, {"notes": notes, "rows": rows}).items(0) == items
    whole = Store(made, {"notes": [1, 2, 3], "rows": [4, 5, 6]})
    assert whole.resolve(0, 0, 2) == {"xs": [1, 2], "ys": [4, 5]}
    assert whole.resolve(0, 2) == {"xs": [3], "ys": [6]}


def test_an_input_that_is_there_although_it_is_none_is_given() -> None:
    """One of the query's; what a primitive of that name gives is absent where it is None."""
    p = tool("b", Ref(QUERY, "out"), Ref(QUERY, "notes"), "a")
    made = Plan(Graph("t", [tool("a"), p], {"answer": Ref("b", "out")}, ["out", "notes"]))
    s = Store(made, {"out": None, "notes": None}, nulls=frozenset({"out"}))
    s.put(0, {"out": None})
    assert s.resolve(1) == {"x0": None}
    assert s.counts() == {"out": 1, "notes": ABSENT}


# --- conditions -----------------------------------------------------------------------------


def decided(test: Any) -> Any:
    params = ConditionParams(test, ("then", "otherwise"), "then")
    inputs = (("x", Ref(QUERY, "question")),)
    p = Primitive("if", Op.CONDITION, "if", "", inputs, ("branch",), params)
    return store(p, question="why?").control(0)


def decide(test: Any) -> Any:
    return decided(test)["branch"]


@pytest.mark.parametrize(
    ("answer", "branch"),
    [
        (True, "then"),
        (False, "otherwise"),
        ("otherwise", "otherwise"),
        ("no", "then"),
        ([], "otherwise"),
    ],
)
def test_what_a_test_answers(answer: Any, branch: str) -> None:
    assert decide(lambda question: answer) == branch


async def _yes() -> bool:
    return True


async def _no() -> str:
    return ""


@pytest.mark.parametrize(("answer", "branch"), [(_yes, "then"), (_no, "otherwise")])
def test_a_test_may_be_asynchronous(answer: Any, branch: str) -> None:
    assert asyncio.run(decided(lambda question: answer()))["branch"] == branch


def _some() -> Iterator[bool]:
    yield False


async def _later() -> AsyncIterator[bool]:
    yield False


async def _made(answer: Any) -> Any:
    return answer()


@pytest.mark.parametrize("generator", [_some, _later])
def test_what_would_yield_an_answer_is_none(generator: Any) -> None:
    """Else it would be true, whatever it yields: at once, and where the test is asynchronous."""
    with pytest.raises(EngineError, match="returned a generator, which is neither true nor false"):
        decided(lambda question: generator())
    with pytest.raises(EngineError, match="returned a generator, which is neither true nor false"):
        asyncio.run(decided(lambda question: _made(generator)))


def test_a_test_that_raises_is_an_engines_failure() -> None:
    with pytest.raises(EngineError, match="its test raised ZeroDivisionError: division by zero"):
        decide(lambda question: 1 / 0)


def test_what_batches_computed_counts_until_it_is_released() -> None:
    made = gather(Aggregation.CONCAT, 2)
    made.put_slice(0, 0, 1, 2, {"out": ["12345"]})
    made.put_slice(0, 1, 2, 2, {"out": [Hit("a", "b", "123", 0.5)]})
    assert made.held_bytes == 8
    made.put_slice(1, 0, 1, 1, {"out": [[1.5, {"x": "12"}]]})
    made.release(0)
    assert made.held_bytes == bytes_of(1.5) + len("x") + len("12")
    made.drop(1)
    assert made.held_bytes == 0
    made.put_slice(1, 0, 1, 1, {"out": ["too late"]})
    assert made.held_bytes == 0


def test_a_value_that_holds_itself_has_a_size() -> None:
    endless: list[Any] = ["12"]
    endless += [endless, {"more": endless, "text": "345"}]
    assert bytes_of(endless) == len("12345moretext")


def test_what_hits_carry_along_counts_once_a_document() -> None:
    shared = {"note": "x" * 1000, "tags": ["y" * 500]}
    hits = [Hit(f"d:{i}", "d", "text", 0.5, shared) for i in range(10)]
    assert bytes_of(hits) == 10 * len("text") + 1500 + len("notetags")
    apart = [Hit(f"{i}:0", "d", "text", 0.5, dict(shared)) for i in range(10)]
    assert bytes_of(apart) > 10 * 1000
    assert bytes_of(Hit("d:0", "d", "", 0.5, {"k" * 300: None})) >= 300
