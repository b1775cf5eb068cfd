"""Planned lengths, and times by the profile and by habits: each rule at its edges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola import App, Each, Generate
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
from teola.passes.estimate import (
    ANSWER_TOKENS,
    CHUNK_TOKENS,
    ITEM_TOKENS,
    ROLE_TOKENS,
    GrowthEstimate,
    call_tokens,
    chances,
    expected,
    growth,
    item_s,
    kept_tokens,
    part_tokens,
    planned_output,
    planned_tokens,
    seconds,
    taken_share,
    total,
    weight,
)
from teola.profile import Cost, EngineProfile, Profile, StepTime
from tests.planted import catches, edited
from tests.schedule.plans import aggregate, call, condition, plan, tool

LLM = EngineProfile(step=StepTime(0.01, per_token_s=0.001), block_tokens=16)
PROFILE = Profile("by hand", {"llm": LLM}, dispatch_s=0.25)


def asking(id: str, *parts: Part, **more: object) -> list[Primitive]:
    """A call with this prompt."""
    head, decoding = call(id)
    inputs = tuple((name, Prompt(parts) if name == "prompt" else it) for name, it in head.inputs)
    return [replace(head, inputs=inputs, **more), decoding]  # type: ignore[arg-type]


def pure(id: str, *reads: str, **more: object) -> Primitive:
    made = tool(id, *reads, **more)  # type: ignore[arg-type]
    assert isinstance(made.params, ToolParams)
    return replace(made, params=replace(made.params, pure=True))


def literal(tokens: int) -> Part:
    return Part(Role.INSTRUCTION, "x" * (4 * tokens - 1))


def test_a_text_has_a_token_for_four_characters_and_one_more() -> None:
    graph = plan(tool("a")).graph
    texts = {0: 1, 3: 1, 4: 2, 7: 2, 8: 3}
    for characters, tokens in texts.items():
        assert part_tokens(graph, Part(Role.CONTEXT, "x" * characters)) == tokens
    assert part_tokens(graph, literal(20)) == 20


@pytest.mark.parametrize(
    ("ref", "chunks"),
    [
        (Ref("many", "out"), 5),
        (Ref("many", "out", (1, 3)), 2),
        (Ref("many", "out", (2, None)), 5),
        (Ref("one", "out"), 1),
        (Ref("best", "out"), 3),
        (Ref(QUERY, "notes"), 1),
        (Ref(QUERY, "notes", (0, 4)), 4),
    ],
)
def test_context_is_as_many_chunks_as_are_read(ref: Ref, chunks: int) -> None:
    """Of a choice of the best, as many as it chooses; and other parts are as long as their role."""
    best = replace(aggregate("best", "many"), params=AggregateParams(Aggregation.TOP_K, k=3))
    graph = Graph("test", [tool("many", items=5), tool("one"), best], {}, ["notes"])
    assert part_tokens(graph, Part(Role.CONTEXT, ref)) == chunks * CHUNK_TOKENS
    for role in (Role.QUESTION, Role.HISTORY, Role.ANSWER, Role.INSTRUCTION):
        assert part_tokens(graph, Part(role, ref)) == ROLE_TOKENS[role]


@catches(
    "kept-in-parts-of-blocks",
    "a part of a block is kept",
    edited(kept_tokens, "tokens // engine.block_tokens * engine.block_tokens", "tokens"),
)
def test_whole_blocks_of_what_all_queries_say_first_are_kept() -> None:
    question = Part(Role.QUESTION, Ref(QUERY, "question"), required=True)
    keeps = replace(LLM, keeps_prefixes=True)
    for tokens, kept in ((15, 0), (16, 16), (31, 16), (32, 32)):
        graph = plan(*asking("m", literal(tokens), question, literal(64))).graph
        head = graph["m.prefill"]
        assert planned_tokens(graph, head) == tokens + 16 + 64
        assert kept_tokens(graph, head, keeps) == kept
        assert kept_tokens(graph, head, LLM) == 0
        assert kept_tokens(graph, graph["m"], keeps) == 0
    two = plan(*asking("m", literal(9), literal(8), question)).graph
    assert kept_tokens(two, two["m.prefill"], keeps) == 16, "of both texts together"
    ahead = plan(*call("m", ahead=True)).graph
    assert kept_tokens(ahead, ahead["m.prefill"], keeps) == 0, "it goes on from its piece"


def test_answers_and_calls_are_as_long_as_they_may_be() -> None:
    def output(**params: object) -> int:
        _, decoding = call("m")
        given = DecodeParams(**params)  # type: ignore[arg-type]
        return planned_output(replace(decoding, params=given))

    assert output() == ANSWER_TOKENS
    assert output(max_tokens=5) == 5
    assert output(max_tokens=500) == ANSWER_TOKENS
    assert output(items=3, parser="lines") == 3 * ITEM_TOKENS
    assert output(items=3, parser="lines", item=1) == ITEM_TOKENS
    assert planned_output(tool("a")) == 0
    graph = plan(*call("m", ahead=True)).graph
    pieces = [planned_tokens(graph, graph[id]) for id in ("m.ahead", "m.prefill")]
    assert call_tokens(graph, graph["m.prefill"]) == sum(pieces) + ANSWER_TOKENS
    graph = plan(*call("m", 3), aggregate("z", "m.0", "m.1", "m.2")).graph
    own = planned_tokens(graph, graph["m.prefill"])
    assert call_tokens(graph, graph["m.prefill"]) == own + ITEM_TOKENS, "of those that follow it"


def test_a_prefill_takes_what_is_not_kept_and_one_token_at_least() -> None:
    graph = plan(*asking("m", literal(40))).graph
    head, decoding = graph["m.prefill"], graph["m"]

    def taken(habit: Habit | None = None, engine: EngineProfile = LLM) -> float:
        habits = {(graph.name, "m"): habit} if habit else {}
        return seconds(graph, head, Profile("p", {"llm": engine}, 0.25, habits=habits))

    def prefill(tokens: int) -> float:
        return 0.25 + LLM.seconds(Op.PREFILLING, 1, tokens)

    assert taken() == pytest.approx(prefill(40))
    assert taken(engine=replace(LLM, keeps_prefixes=True)) == pytest.approx(prefill(8))
    assert taken(Habit(calls=3, prompt=2.0, cached=30.0)) == pytest.approx(prefill(50))
    assert taken(Habit(calls=3, prompt=2.0, cached=79.0)) == pytest.approx(prefill(1))
    assert taken(Habit(calls=3, prompt=2.0, cached=99.0)) == pytest.approx(prefill(1))
    assert taken(Habit(prompt=2.0, cached=30.0)) == pytest.approx(prefill(80)), "not seen yet"
    known = Profile("p", {"llm": LLM}, 0.25, habits={(graph.name, "m"): Habit(output=2.5)})
    assert seconds(graph, decoding, known) == pytest.approx(0.01 * 2.5 * ANSWER_TOKENS)


def test_items_make_batches_longer_and_calls_of_llms_do_not() -> None:
    functions = EngineProfile({Op.TOOL_CALL: Cost(1.0, 0.5), Op.AGGREGATE: Cost(1.0, 9.0)})
    profile = Profile("p", {"python": functions, "llm": LLM, "": functions})
    graph = plan(tool("a", items=4), *call("m"), aggregate("z", "a")).graph
    found = {p.id: item_s(graph, p, profile) for p in graph.primitives}
    assert found == {"a": 0.5, "m.prefill": 0.0, "m": 0.0, "z": 0.0}


@catches(
    "side-by-side-whole",
    "less than a part takes as long as a whole one",
    edited(GrowthEstimate.in_turn_s, "min(1.0, times)", "1.0"),
)
def test_parts_take_turns_where_there_are_more_than_may_run_beside_each_other() -> None:
    made = GrowthEstimate(times=6.0, part_s=2.0, part_total_s=3.0, beside=4)
    assert [made.in_turn_s(times) for times in (0.0, 0.5, 1.0, 4.0, 5.0, 8.0)] == [
        *(0.0, 1.0, 2.0, 2.0),
        *(2.5, 4.0),
    ]
    assert (made.length_s, made.total_s) == (3.0, 18.0)


def test_as_many_parts_run_beside_each_other_as_engines_have_room_for() -> None:
    """And as many as are planned, or came until now; a part's call holds its tokens."""
    note = Generate("note", mode="simple", inputs={"question": "topic"})
    each = Each(note, over="topics", item="topic", gives={"notes": "answer"}, at_once=6)
    app = App("app", each, inputs={"topics": "texts"}, outputs={"notes": "notes"})
    graph = app.builder.build(app.builder.configure({}), {"topics": 12})
    (grows,) = [p for p in graph.primitives if p.op is Op.GROW]

    def made(habit: Habit | None = None, **engine: int) -> GrowthEstimate:
        habits = {(graph.name, grows.component): habit} if habit else {}
        engines = {"llm": replace(LLM, **engine)}  # type: ignore[arg-type]
        return growth(graph, grows, Profile("p", engines, habits=habits))

    assert made().beside == 6
    assert made(max_sequences=2).beside == 2
    assert made(max_sequences=2, instances=2).beside == 4
    assert made(kv_blocks=1).beside == 1
    assert made().times == 12
    assert made(Habit(turns=(4, 4, 2))).times == 1.5
    profile = Profile("p", {"llm": LLM})
    assert weight(graph, grows, profile) == pytest.approx(12 * made().part_total_s)
    assert seconds(graph, grows, profile) == pytest.approx(2 * made().part_s)
    assert total(graph, profile) == pytest.approx(12 * made().part_total_s)


def test_a_branch_is_expected_by_what_was_decided_and_else_by_the_developers_word() -> None:
    guards = {branch: (Guard("c", branch),) for branch in ("then", "otherwise")}
    graph = plan(condition("c"), *(tool(b, guards=guards[b]) for b in guards)).graph
    for seen, likely in (
        ({}, "then"),
        ({"otherwise": 1}, "then"),
        ({"otherwise": 2}, "otherwise"),
        ({"then": 3, "otherwise": 4}, "then"),
        ({"then": 3, "otherwise": 5}, "otherwise"),
    ):
        profile = Profile("p", {}, habits={(graph.name, "c"): Habit(branches=seen)})
        assert {b for b in guards if expected(graph, graph[b], profile)} == {likely}, seen
        shares = {b: taken_share(graph, graph[b], profile) for b in guards}
        if decided := sum(seen.values()):
            assert shares == {b: seen.get(b, 0) / decided for b in guards}
        else:
            assert shares == {"then": 1.0, "otherwise": 0.0}


@catches(
    "least-likely-reader",
    "what several may read is as likely as the one that is least so",
    edited(chances, "max(open", "min(open"),
)
def test_what_begins_before_a_decision_is_as_likely_as_its_likeliest_reader() -> None:
    """Behind two decisions that are both open, both have to fall that way."""
    then, other = Guard("c", "then"), Guard("c", "otherwise")
    graph = plan(
        pure("p"),
        tool("a"),
        condition("c", Ref("a", "out")),
        condition("d", Ref("a", "out")),
        pure("x", "p", guards=(other,)),
        pure("y", "p", guards=(then,)),
        pure("q"),
        tool("effect"),
        pure("z", "q", "effect", guards=(other, Guard("d", "then"))),
        aggregate("end", "x", "y", "z"),
    ).graph
    found = chances(graph)
    assert found["p"] == pytest.approx(2 / 3)
    assert found["q"] == pytest.approx(1 / 3 * 2 / 3)
    assert [found[id] for id in ("a", "c", "x", "y", "z", "end")] == [1.0] * 6
    assert found["effect"] == 1.0, "it is wanted for what it does"
    habits = {(graph.name, "c"): Habit(branches={"then": 1, "otherwise": 6})}
    known = chances(graph, Profile("p", {}, habits=habits))
    assert known["p"] == pytest.approx(7 / 10)
    assert known["q"] == pytest.approx(7 / 10 * 2 / 3)
