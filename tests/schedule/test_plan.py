"""What a plan knows of a graph: who reads what, what has to be there, what queues are told.

Each is written down by hand for graphs of a few primitives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from teola.graph import (
    QUERY,
    AggregateParams,
    Aggregation,
    DecodeParams,
    Graph,
    Guard,
    Op,
    Part,
    Primitive,
    Prompt,
    Ref,
    Role,
    ToolParams,
)
from teola.habit import Habit
from teola.passes import Optimised
from teola.passes.estimate import planned_tokens
from teola.policies.work import Estimate, WorkSpec
from teola.profile import Profile
from teola.schedule.beginnings import NEXT, beginnings
from teola.schedule.events import Completed, Started
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Absence, Plan
from tests.passes.test_each_pass import embed
from tests.schedule.plans import call, condition, plan, tool

NOTES = Ref(QUERY, "notes")


def by_id(made: Plan, values: Any) -> dict[str, Any]:
    return dict(zip(made.ids, values, strict=True))


def ids(made: Plan, listed: Any) -> dict[str, list[str]]:
    """Of lists of indices, by primitive; those that are empty are left out."""
    return {id: [made.ids[i] for i in found] for id, found in by_id(made, listed).items() if found}


# --- absence ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "items", "absent", "absent_if_empty"),
    [
        (None, None, True, True),
        (-1, None, True, True),
        (0, None, False, True),
        (1, None, False, False),
        (2, None, False, False),
        (0, (0, None), True, True),
        (1, (0, None), False, False),
        (1, (1, 2), True, True),
        (2, (1, 2), False, False),
        (3, (1, 2), False, False),
    ],
)
def test_data_are_absent_where_none_came_or_fewer_than_are_read(
    count: int | None, items: tuple[int, int | None] | None, absent: bool, absent_if_empty: bool
) -> None:
    """Of a primitive and of what the caller gives, alike."""
    made = plan(tool("a"), tool("b", "a"))
    query: Mapping[str, int] = {} if count is None else {"notes": count}
    found = Absence(made, query)
    for ref in (Ref("a", "out", items), Ref(QUERY, "notes", items)):
        if ref.producer == "a":
            assert found.absent(ref, empty=False), "it has not ended"
            found.counts[0] = {} if count is None else {"out": count}
        assert found.absent(ref, empty=False) is absent
        assert found.absent(ref, empty=True) is absent_if_empty
    run = GraphRun("q", made)
    run.handle(Started({"question": 1, **query}), 0.0)
    assert run.delivered(Ref(QUERY, "notes", items)) is not absent
    assert not run.delivered(Ref("a", "out", items))
    run.handle(Completed(0, {} if count is None else {"out": count}), 0.0)
    assert run.delivered(Ref("a", "out", items)) is not absent


# --- what is read -------------------------------------------------------------------------------


def test_a_call_keeps_what_it_reads_and_others_do_not() -> None:
    """Readers are counted once a primitive, and once for all outputs."""
    answer = {"answer": Ref("m", "out"), "again": Ref("m", "out"), "a": Ref("a", "out")}
    made = plan(
        tool("a"),
        *call("m", ahead=True, late="a"),
        tool("x", "m", Ref("m", "out", (0, 1)), "a"),
        outputs=answer,
    )
    assert ids(made, made.sources) == {"m": ["m.prefill"], "x": ["m", "a"]}
    assert ids(made, made.held) == {"m.prefill": ["m.ahead", "a"]}
    assert by_id(made, made.readers) == {
        "a": 3, "m.ahead": 1, "m.prefill": 1, "m": 2, "x": 0,
    }  # fmt: skip
    assert ids(made, made.members) == {"m.prefill": ["m"]}
    assert by_id(made, made.head)["m"] == by_id(made, made.call)["m"] == made.index["m.prefill"]
    assert by_id(made, made.call)["m.ahead"] == -1
    assert by_id(made, made.sequence_of) == {
        "a": -1, "m.ahead": -1, "m.prefill": 1, "m": 2, "x": -1,
    }  # fmt: skip
    assert by_id(made, made.open)["m.prefill"] == 2, "its own end, and its decoding's"
    assert made.pieces == {made.index["x"]}


@pytest.mark.parametrize("why", ["", "read twice", "another engine"])
def test_the_rest_of_a_prompt_takes_its_piece_along_if_nobody_else_has_it(why: str) -> None:
    calls = call("m", ahead=True)
    if why == "another engine":
        calls = [replace(p, engine="other") if p.id == "m.ahead" else p for p in calls]
    outputs = {"answer": Ref("m", "out")}
    if why == "read twice":
        outputs["sequence"] = Ref("m.ahead", "sequence")
    made = plan(*calls, outputs=outputs)
    alone = not why
    assert by_id(made, made.rest) == {"m.ahead": 1 if alone else -1, "m.prefill": -1, "m": -1}
    assert by_id(made, made.piece) == {"m.ahead": -1, "m.prefill": 0 if alone else -1, "m": -1}
    assert [spec.ahead for spec in made.specs] == [alone, False, False]


def test_so_many_items_have_to_be_there_as_somebody_reads() -> None:
    """One of a list that is gone through item by item or stands in a prompt, and of a range its
    first."""
    prompt = Prompt((Part(Role.CONTEXT, Ref("p", "out")), Part(Role.CONTEXT, NOTES)))
    head, decoding = call("m")
    made = plan(
        *(tool(id) for id in ("p", "each", "range", "both", "whole", "nobody")),
        replace(head, inputs=(("prompt", prompt),)),
        decoding,
        tool("r", "each", batchable=True),
        tool("s", Ref("range", "out", (3, None)), Ref("both", "out", (2, 3)), "both"),
        tool("t", "whole", Ref("both", "out", (0, 1)), Ref(QUERY, "question", (1, 2))),
        outputs={"answer": Ref("m", "out")},
    )
    need = {id: dict(ports) for id, ports in by_id(made, made.need).items()}
    assert {id: need[id]["out"] for id in ("p", "each", "range", "both", "whole", "nobody")} == {
        "p": 1, "each": 1, "range": 4, "both": 3, "whole": 0, "nobody": 0,
    }  # fmt: skip
    assert made.query_need == {"notes": 1, "question": 2}


def decoding(id: str, ports: tuple[str, ...] = ("text",), **params: Any) -> list[Primitive]:
    head, decodes = call(id)
    return [head, replace(decodes, outputs=ports, params=DecodeParams(**params))]


def chosen(id: str, mode: Aggregation, *refs: Ref) -> Primitive:
    parts = (("parts", refs),)
    return Primitive(id, Op.AGGREGATE, id, "", parts, ("out",), AggregateParams(mode))


TEXTS = [Ref(id, "text") for id in ("m", "n", "o")]


@pytest.mark.parametrize(
    ("mode", "streams", "later"),
    [
        (Aggregation.FIRST, ["m", "n", "o"], {}),
        (Aggregation.LAST, ["o"], {"m": ["n", "o"], "n": ["o"]}),
        (Aggregation.MERGED, ["o"], {"m": ["o"], "n": ["o"]}),
        (Aggregation.CONCAT, [], {}),
        (Aggregation.UNION, [], {}),
    ],
)
def test_a_text_streams_that_is_an_output_or_may_become_one(
    mode: Aggregation, streams: list[str], later: dict[str, list[str]]
) -> None:
    calls = [p for id in "mno" for p in decoding(id)]
    made = plan(*calls, chosen("z", mode, *TEXTS), outputs={"answer": Ref("z", "out")})
    assert [id for id, one in by_id(made, made.streams).items() if one] == streams
    assert {made.ids[i]: [made.ids[j] for j in others] for i, others in made.later.items()} == later


def test_only_a_text_or_a_field_of_an_answer_streams_and_functions_that_say_so() -> None:
    yields = replace(tool("f"), params=ToolParams(len, streams=True))
    outputs = {
        "text": Ref("m", "text"),
        "list": Ref("n", "items"),
        "field": Ref("o", "items"),
        "f": Ref("f", "out"),
        "g": Ref("g", "out"),
        "question": Ref(QUERY, "question"),
    }
    made = plan(
        *decoding("m"), *decoding("n", ("items", "text")), *decoding("o", ("items",), field="x"),
        *decoding("p"), yields, tool("g", Ref("p", "text")), outputs=outputs,
    )  # fmt: skip
    assert [id for id, one in by_id(made, made.streams).items() if one] == ["m", "o", "f"]
    assert made.texts
    assert not plan(*decoding("n", ("items",))[:1], tool("x")).texts
    assert not Plan(Graph("test", decoding("n", ("items",)), {}, ["question"])).texts


def test_what_decides_knows_what_stands_behind_it_and_in_which_branch() -> None:
    then, other = Guard("if", "then"), Guard("if", "otherwise")
    pure = replace(tool("p"), params=ToolParams(len, pure=True))
    made = plan(
        condition("if"),
        condition("idle"),
        tool("x", guards=(then,)),
        tool("y", guards=(other, Guard("idle", "then"))),
        pure,
        tool("z", "x"),
    )
    guarded = {
        id: [(made.ids[i], branch) for i, branch in found]
        for id, found in by_id(made, made.guarded).items()
        if found
    }
    assert guarded == {"if": [("x", "then"), ("y", "otherwise")], "idle": [("y", "then")]}
    assert ids(made, made.conditions) == {"x": ["if"], "y": ["if", "idle"]}
    assert by_id(made, made.open) == {"if": 2, "idle": 1, "x": 0, "y": 0, "p": 0, "z": 0}
    assert [made.ids[i] for i in made.unread] == ["p"], "nobody reads it, and it does nothing"


# --- what queues are told -----------------------------------------------------------------------


def test_queues_are_told_how_large_a_primitive_is_and_how_it_may_be_sent() -> None:
    made = plan(
        *call("m", ahead=True),
        embed("e", NOTES, 3),
        tool("t", batchable=True, items=5),
        tool("u", "t", Ref("e", "vectors"), "m"),
    )
    graph, told = made.graph, by_id(made, made.specs)
    ahead, rest = (planned_tokens(graph, graph[id]) for id in ("m.ahead", "m.prefill"))
    assert told["m.ahead"] == WorkSpec(
        "llm", Op.PARTIAL_PREFILLING, "m", None, False, 3, retries=2, estimate=Estimate(3.0),
        planned_tokens=ahead, ahead=True,
    )  # fmt: skip
    assert told["m.prefill"] == WorkSpec(
        "llm", Op.FULL_PREFILLING, "m", None, False, 2, (made.index["m"],), 2, Estimate(2.0),
        planned_tokens=rest, planned_output=16, most_output=256, continues=ahead,
    )  # fmt: skip
    assert told["m"] == WorkSpec(
        "llm", Op.DECODING, "m", Op.DECODING, False, 1, estimate=Estimate(1.0), measured=False,
        continues=ahead + rest,
    )  # fmt: skip
    assert told["e"] == WorkSpec(
        "embedding", Op.EMBEDDING, "e", Op.EMBEDDING, True, 1, retries=2, estimate=Estimate(1.0),
        item_tokens=planned_tokens(graph, graph["e"]) // 3,
    )  # fmt: skip
    assert told["t"] == WorkSpec(
        "python", Op.TOOL_CALL, "t", Op.TOOL_CALL, True, 1, estimate=Estimate(1.0)
    )
    assert told["u"] == WorkSpec(
        "python", Op.TOOL_CALL, "u", Op.TOOL_CALL, False, 0, measured=False
    )


@pytest.mark.parametrize(
    ("habit", "expected"),
    [
        (Habit(), 0),
        (Habit(output=3.0), 0),
        (Habit(calls=1, output=3.0), 48),
        (Habit(calls=1, output=0.5), 8),
        (Habit(calls=1, output=0.01), 1),
    ],
)
def test_an_answer_is_expected_as_those_before_it_were(habit: Habit, expected: int) -> None:
    graph = plan(*call("m")).graph
    made = Plan(graph, Profile("p", {}, habits={(graph.name, "m"): habit}))
    assert [spec.expected_output for spec in made.specs] == [expected, 0 if not habit.calls else 1]
    assert made.specs[0].answer_tokens == (expected or 16)


def test_a_plan_that_is_made_anew_knows_more_and_is_else_the_same() -> None:
    first = plan(*call("m"))
    assert first.beginnings
    habits = {(first.graph.name, "m"): Habit(calls=1, output=2.0)}
    optimised = Optimised(first.graph, plan(tool("a")).graph, ())
    second = first.successor(Profile("p", {}, habits=habits), optimised)
    assert second.graph is first.graph
    assert second.optimised == replace(optimised, e_graph=first.graph)
    assert "beginnings" not in vars(second)
    assert [spec.expected_output for spec in (first.specs[0], second.specs[0])] == [0, 32]
    assert first.optimised is None


# --- beginnings ---------------------------------------------------------------------------------


def test_who_begins_alike_comes_in_the_order_in_which_it_has_to_begin() -> None:
    """The latest moments first, then who has more behind it, then as the graph has them; and no
    more than a few are looked at."""
    made = plan(*(p for id in "abcdefg" for p in call(id)), outputs={"x": Ref("a", "out")})
    heads = {id: made.index[f"{id}.prefill"] for id in "abcdefg"}
    specs = list(made.specs)
    for id, latest_s, depth in (
        ("a", 5.0, 1), ("b", 2.0, 1), ("c", 2.0, 3), ("d", 2.0, 1), ("e", 0.0, 1), ("f", 9.0, 1),
        ("g", 9.5, 1),
    ):  # fmt: skip
        estimate = Estimate(latest_s=latest_s, total_s=1.0, takes_s=0.5)
        specs[heads[id]] = replace(specs[heads[id]], estimate=estimate, depth=depth, members=())
    found = beginnings(made.primitives, specs, made.sequence_of)
    order = "ecbdafg"
    for k, id in enumerate(order):
        later = [made.ids[one.reader][0] for one in found[heads[id]].later]
        assert later == list(order[k + 1 : k + 1 + NEXT]), id
    seconds = {made.ids[one.reader][0]: one.seconds for one in found[heads["e"]].later}
    assert seconds == {"c": 1.5, "b": 1.5, "d": 1.5, "a": 4.5}
    assert {one.seconds for one in found[heads["c"]].later} == {0.0, 2.5, 6.5}
