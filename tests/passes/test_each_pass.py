"""Each pass on small graphs: before, after, and why it declines.

Long because every rule of every pass has its case here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from teola import register
from teola.errors import GraphError, UnknownName
from teola.graph import (
    QUERY,
    AggregateParams,
    Aggregation,
    DecodeParams,
    EmbeddingParams,
    Graph,
    Guard,
    Op,
    Order,
    Part,
    Primitive,
    Prompt,
    Ref,
    Role,
    SearchParams,
    ToolParams,
)
from teola.graph.ops import Params
from teola.passes import MAX_ROUNDS, PIPELINE, available, optimise, select
from teola.passes.decompose_stages import decompose_stages
from teola.passes.pipeline_decoding import pipeline_decoding
from teola.passes.prune_dependencies import prune_dependencies
from teola.passes.rewrite import Cut, Pass, Rewrite, _within, aligned_successors
from teola.passes.split_prefilling import _least_tokens, split_prefilling
from teola.profile import EngineProfile, Profile, StepTime
from teola.registry import Named
from tests.planted import catches, edited
from tests.schedule.plans import aggregate, call, condition, nothing, tool

PER_TOKEN = StepTime(per_token_s=2.0**-30)
"""A prefill has no fixed time, so that a prefix of one block is worth one."""
PROFILE = Profile(
    "test",
    {
        "embedding": EngineProfile(max_efficient=4),
        "vectorstore": EngineProfile(max_efficient=8),
        "python": EngineProfile(max_efficient=4),
        "llm": EngineProfile(prefix_reuse=True, block_tokens=8, step=PER_TOKEN),
    },
)


def graph(*primitives: Primitive, **outputs: Ref) -> Graph:
    found = outputs or {"answer": Ref(primitives[-1].id, "out")}
    made = Graph("test", primitives, found, ["question", "chunks", "scope"])
    made.validate()
    return made


def apply(run: Pass, before: Graph, profile: Profile = PROFILE) -> tuple[Graph, list[Rewrite]]:
    """The pass until nothing changes, verified, with all that was decided."""
    name = run.__module__.rpartition(".")[2]
    found = optimise(before, profile, [name], debug=True)
    return found.e_graph, list(found.rewrites)


def shape(g: Graph) -> dict[str, list[str]]:
    """Primitive -> what it waits for."""
    return {p.id: list(g.parents[p.id]) for p in g.primitives}


def embed(id: str, texts: Ref, items: int, **more: Any) -> Primitive:
    return _batchable(
        id, Op.EMBEDDING, "embedding", {"texts": texts}, "vectors", EmbeddingParams(), items, **more
    )


def search(id: str, vectors: str, items: int, **more: Any) -> Primitive:
    inputs = {"vectors": Ref(vectors, "vectors"), "scope": Ref(QUERY, "scope")}
    return _batchable(
        id, Op.SEARCHING, "vectorstore", inputs, "hits", SearchParams(2), items, **more
    )


def _batchable(
    id: str,
    op: Op,
    engine: str,
    inputs: dict[str, Any],
    output: str,
    params: Params,
    items: int,
    **more: Any,
) -> Primitive:
    return Primitive(
        id,
        op,
        id,
        engine,
        tuple(inputs.items()),
        (output,),
        params,
        items=items,
        batchable=True,
        **more,
    )


def union(id: str, read: str) -> Primitive:
    params = AggregateParams(Aggregation.UNION)
    return Primitive(id, Op.AGGREGATE, id, "", (("parts", (Ref(read, "hits"),)),), ("out",), params)


def expand(items: int = 3, *, splittable: bool = True, text: bool = False) -> list[Primitive]:
    prefill, decode = call("expand")
    outputs = ("items", "text") if text else ("items",)
    params = DecodeParams(items=items, parser="lines")
    return [prefill, replace(decode, params=params, outputs=outputs, splittable=splittable)]


def reasons(rewrites: list[Rewrite], applied: bool) -> list[str]:
    return [f"{r.primitive}: {r.reason}" for r in rewrites if r.applied is applied]


# --- 1. prune dependencies ------------------------------------------------------------------


def test_order_without_data_is_pruned() -> None:
    late = tool("b", after=(Order("a", "order of the template"),))
    after, rewrites = apply(prune_dependencies, graph(tool("a"), late, aggregate("c", "a", "b")))
    assert shape(after) == {"a": [], "b": [], "c": ["a", "b"]}
    assert reasons(rewrites, True) == ["b: no data flows from a"]


def test_effects_and_guards_stay() -> None:
    store = Order("a", "searches what it stores", effect=True)
    b = tool("b", after=(store, Order("x", "order")), guards=(Guard("if", "then"),))
    before = graph(tool("x"), tool("a"), condition("if"), b)
    after, rewrites = apply(prune_dependencies, before)
    assert shape(after)["b"] == ["a", "if"]
    assert reasons(rewrites, False) == ["b: must follow a: searches what it stores"]


def test_nothing_to_prune_changes_nothing() -> None:
    before = graph(tool("a"), tool("b", "a"))
    assert apply(prune_dependencies, before)[0] is before


# --- 2. decompose stages --------------------------------------------------------------------


def indexing(items: int) -> Graph:
    chunks = Ref(QUERY, "chunks")
    return graph(
        embed("embed", chunks, items),
        search("search", "embed", items),
        union("u", "search"),
    )


def test_long_work_becomes_stages_with_its_followers_behind() -> None:
    after, rewrites = apply(decompose_stages, indexing(10))
    assert shape(after) == {
        "embed.1": [],
        "embed.2": [],
        "embed.3": [],
        "search.1": ["embed.1"],
        "search.2": ["embed.2"],
        "search.3": ["embed.3"],
        "u": ["search.1", "search.2", "search.3"],
    }
    assert [after[f"embed.{k}"].items for k in (1, 2, 3)] == [4, 4, 2]
    ranges = [next(after[f"embed.{k}"].refs()).items for k in (1, 2, 3)]
    assert ranges == [(0, 4), (4, 8), (8, None)], "the last one takes whatever there is"
    assert reasons(rewrites, True) == [
        "embed: 10 items exceed 4: 3 stages, with search behind each"
    ]
    assert all(after[f"search.{k}"].origin == "search" for k in (1, 2, 3))


def test_what_fits_a_batch_is_not_cut() -> None:
    before = indexing(4)
    after, rewrites = apply(decompose_stages, before)
    assert after is before
    assert "embed: 4 items fit the maximum efficient batch of 4" in reasons(rewrites, False)


def test_what_nothing_could_follow_is_not_cut() -> None:
    before = graph(embed("embed", Ref(QUERY, "chunks"), 10), answer=Ref("embed", "vectors"))
    after, rewrites = apply(decompose_stages, before)
    assert after is before
    assert reasons(rewrites, False) == [
        "embed: nothing batchable follows that could be pipelined behind its stages"
    ]


def test_what_is_not_batchable_is_not_cut() -> None:
    before = graph(tool("a", Ref(QUERY, "chunks"), items=99))
    assert apply(decompose_stages, before)[0] is before


def test_a_reader_of_the_whole_list_gets_it_joined() -> None:
    whole = tool("whole", Ref("search", "hits"))
    before = graph(*indexing(10).primitives, whole, out=Ref("whole", "out"), u=Ref("u", "out"))
    after, _ = apply(decompose_stages, before)
    join = after["search.hits.all"]
    assert join.params == AggregateParams(Aggregation.CONCAT)
    assert after.parents["whole"] == ("search.hits.all",)
    assert after.parents["search.hits.all"] == ("search.1", "search.2", "search.3")


@catches(
    "item-of-the-wrong-piece",
    "who reads one item of a list in pieces gets the first of its piece",
    edited(_within, "items = lo - start,", "items = 0,"),
)
def test_a_reader_of_few_items_waits_for_the_piece_that_has_them() -> None:
    reads = {"one": (5, 6), "two": (3, 5), "rest": (9, None)}
    tools = [tool(name, Ref("search", "hits", items)) for name, items in reads.items()]
    outputs = {name: Ref(name, "out") for name in reads}
    before = graph(*indexing(10).primitives, *tools, u=Ref("u", "out"), **outputs)
    after, _ = apply(decompose_stages, before)
    read = {name: next(after[name].refs()) for name in reads}
    assert read == {
        "one": Ref("search.2", "hits", (1, 2)),
        "two": Ref("search.hits.all", "out", (3, 5)),
        "rest": Ref("search.3", "hits", (1, None)),
    }


def test_an_output_of_the_application_is_joined() -> None:
    before = graph(*indexing(10).primitives, vectors=Ref("embed", "vectors"), u=Ref("u", "out"))
    after, _ = apply(decompose_stages, before)
    assert after.outputs["vectors"] == Ref("embed.vectors.all", "out")


def test_order_edges_point_to_every_stage() -> None:
    late = tool("late", after=(Order("search", "an effect", effect=True),))
    before = graph(*indexing(10).primitives, late, u=Ref("u", "out"))
    after, _ = apply(decompose_stages, before)
    assert after.parents["late"] == ("search.1", "search.2", "search.3")


def test_stages_keep_guards_and_order() -> None:
    first = embed(
        "embed",
        Ref(QUERY, "chunks"),
        10,
        guards=(Guard("if", "then"),),
        after=(Order("a", "an effect", effect=True),),
    )
    rest = [replace(p, guards=(Guard("if", "then"),)) for p in indexing(10).primitives[1:]]
    before = graph(condition("if"), tool("a"), first, *rest, out=Ref("u", "out"))
    after, _ = apply(decompose_stages, before)
    for k in (1, 2, 3):
        assert after[f"embed.{k}"].guards == (Guard("if", "then"),)
        assert after[f"embed.{k}"].after[0].effect


def test_a_part_of_a_list_is_cut_within_its_range() -> None:
    part = embed("embed", Ref(QUERY, "chunks", (5, 15)), 10)
    before = graph(part, search("search", "embed", 10), union("u", "search"))
    after, _ = apply(decompose_stages, before)
    ranges = [next(after[f"embed.{k}"].refs()).items for k in (1, 2, 3)]
    assert ranges == [(5, 9), (9, 13), (13, 15)]


# --- 3. split prefilling --------------------------------------------------------------------

LONG = "Answer the question with care, and with nothing else: "


def prompt(*parts: str | Ref) -> Prompt:
    role = Role.QUESTION
    return Prompt(tuple(Part(Role.INSTRUCTION if type(p) is str else role, p) for p in parts))


def answering(given: Prompt, *before: Primitive, **more: Any) -> Graph:
    prefill, decode = call("m")
    prefill = replace(prefill, inputs=(("prompt", given),), **more)
    return graph(*before, prefill, replace(decode, guards=more.get("guards", ())))


def texts(p: Primitive) -> list[str]:
    given = p.input("prompt")
    assert isinstance(given, Prompt)
    return [str(part.content) for part in given.parts]


def test_the_known_beginning_goes_ahead() -> None:
    given = prompt(LONG, Ref(QUERY, "question"), "Context:", Ref("a", "out"), "Answer:")
    after, rewrites = apply(split_prefilling, answering(given, tool("a")))
    assert shape(after)["m.prefill.ahead1"] == []
    assert shape(after)["m.prefill"] == ["m.prefill.ahead1", "a"]
    assert texts(after["m.prefill.ahead1"]) == [LONG, "query.question", "Context:"]
    assert texts(after["m.prefill"]) == ["a.out", "Answer:"]
    assert after["m.prefill.ahead1"].op is Op.PARTIAL_PREFILLING
    assert after["m.prefill"].op is Op.FULL_PREFILLING
    assert reasons(rewrites, True) == ["m.prefill: 3 of 5 prompt parts are known before the rest"]


def test_there_may_be_more_than_two_pieces() -> None:
    given = prompt(LONG, Ref("a", "out"), Ref("b", "out"))
    after, _ = apply(split_prefilling, answering(given, tool("a"), tool("b", "a")))
    assert texts(after["m.prefill.ahead1"]) == [LONG]
    assert texts(after["m.prefill.ahead2"]) == ["a.out"]
    assert texts(after["m.prefill"]) == ["b.out"]
    assert after.parents["m.prefill.ahead2"] == ("m.prefill.ahead1", "a")


def test_only_a_prefix_goes_ahead() -> None:
    """What is known early but stands behind what is not, waits: attention is causal."""
    given = prompt(Ref("a", "out"), LONG, Ref(QUERY, "question"))
    before = answering(given, tool("a"))
    after, rewrites = apply(split_prefilling, before)
    assert after is before
    assert reasons(rewrites, False) == [
        "m.prefill: no prefix is known earlier that is worth a prefill (8 tokens)"
    ]


def test_less_than_a_block_is_not_worth_it() -> None:
    given = prompt("Hi ", Ref("a", "out"))
    before = answering(given, tool("a"))
    assert apply(split_prefilling, before)[0] is before


@catches(
    "split-on-a-guess",
    "of an engine whose times are not known every block is computed ahead",
    edited(_least_tokens, "UNTIMED_TOKENS", "0"),
)
def test_where_times_are_not_known_only_a_long_prefix_goes_ahead() -> None:
    profile = Profile("p", {"llm": EngineProfile(prefix_reuse=True, block_tokens=8)})
    for times, ahead in ((1, False), (10, True)):
        given = answering(prompt(LONG * times, Ref("a", "out")), tool("a"))
        after, rewrites = apply(split_prefilling, given, profile)
        assert ("m.prefill.ahead1" in shape(after)) is ahead
        least = "no prefix is known earlier that is worth a prefill (128 tokens)"
        assert reasons(rewrites, False) == ([] if ahead else [f"m.prefill: {least}"])


def test_a_short_piece_joins_the_next() -> None:
    given = prompt("Hi ", Ref("a", "out"), Ref("b", "out"))
    after, _ = apply(split_prefilling, answering(given, tool("a"), tool("b", "a")))
    assert texts(after["m.prefill.ahead1"]) == ["Hi ", "a.out"]


def test_a_short_piece_in_the_middle_joins_the_rest() -> None:
    llm = EngineProfile(prefix_reuse=True, block_tokens=20, step=PER_TOKEN)
    profile = Profile("p", {"llm": llm})
    given = prompt(LONG + LONG, Ref("a", "out"), Ref("b", "out"))
    after, _ = apply(split_prefilling, answering(given, tool("a"), tool("b", "a")), profile)
    assert texts(after["m.prefill.ahead1"]) == [LONG + LONG]
    assert texts(after["m.prefill"]) == ["a.out", "b.out"]


def test_what_is_known_at_the_same_time_is_one_piece() -> None:
    given = prompt(LONG, Ref("a", "out"), LONG, Ref("a", "out"))
    after, _ = apply(split_prefilling, answering(given, tool("a")))
    assert texts(after["m.prefill"]) == ["a.out", LONG, "a.out"]


def test_an_engine_without_prefix_reuse_gains_nothing() -> None:
    profile = Profile("p", {"llm": EngineProfile(prefix_reuse=False)})
    before = answering(prompt(LONG, Ref("a", "out")), tool("a"))
    after, rewrites = apply(split_prefilling, before, profile)
    assert after is before
    reason = "m.prefill: engine 'llm' gains nothing from a prefix computed ahead"
    assert reasons(rewrites, False) == [reason]


def test_a_prefix_goes_ahead_of_its_guard() -> None:
    given = prompt(LONG, Ref(QUERY, "question"))
    before = answering(given, condition("if"), guards=(Guard("if", "then"),))
    after, _ = apply(split_prefilling, before)
    assert after["m.prefill.ahead1"].guards == ()
    assert after["m.prefill"].guards == (Guard("if", "then"),)
    assert after.parents["m.prefill.ahead1"] == ()


@pytest.mark.parametrize(("expected", "waits"), [("then", False), ("otherwise", True)])
def test_a_prefix_in_a_branch_that_is_not_expected_waits_for_the_decision(
    expected: str, waits: bool
) -> None:
    """As the call does, though not for what only the rest of the prompt reads."""
    given, guards = prompt(LONG, Ref("a", "out")), (Guard("if", "then"),)
    decides = condition("if")
    decides = replace(decides, params=replace(decides.params, prefer=expected))
    before = answering(given, decides, tool("a"), guards=guards)
    after, _ = apply(split_prefilling, before)
    assert after["m.prefill.ahead1"].guards == (guards if waits else ())
    assert after["m.prefill"].guards == guards
    assert after.parents["m.prefill.ahead1"] == (("if",) if waits else ())


def test_a_prefix_of_what_was_guessed_is_part_of_the_guess() -> None:
    """It reads from behind a speculative guard, so it would wait for the decision otherwise."""
    guess = Guard("if", "then", speculative=True)
    given = prompt(Ref("a", "out"), LONG, Ref("b", "out"), Ref("c", "out"))
    before = answering(
        given,
        condition("if"),
        replace(tool("a"), guards=(guess,)),
        tool("b"),
        replace(tool("c", "b"), guards=(guess,)),
        guards=(Guard("if", "then"),),
    )
    after, _ = apply(split_prefilling, before)
    assert after.parents["m.prefill.ahead1"] == ("a",)
    for name in ("m.prefill.ahead1", "m.prefill.ahead2"):
        assert after[name].guards == (guess,)
        assert "if" not in after.ancestors[name]
    assert after["m.prefill"].guards == (Guard("if", "then"),)
    assert "if" in after.parents["m.prefill"]


def test_a_prefix_goes_ahead_of_effects_but_the_call_does_not() -> None:
    given = prompt(LONG, Ref("b", "out"))
    order = (Order("a", "an effect", effect=True), Order("c", "order of the template"))
    before = answering(given, tool("a"), tool("b", "a"), tool("c"), after=order)
    after, _ = apply(split_prefilling, before)
    assert after.parents["m.prefill.ahead1"] == ("c",)
    assert set(after.parents["m.prefill"]) == {"m.prefill.ahead1", "a", "b", "c"}


# --- 4. pipeline decoding -------------------------------------------------------------------


def pipeline(items: int = 3, **more: Any) -> Graph:
    return graph(
        *expand(items, **more),
        embed("embed", Ref("expand", "items"), items),
        search("search", "embed", items),
        union("u", "search"),
    )


def test_each_item_goes_on_alone() -> None:
    after, rewrites = apply(pipeline_decoding, pipeline())
    assert shape(after) == {
        "expand.prefill": [],
        "expand.1": ["expand.prefill"],
        "expand.2": ["expand.1"],
        "expand.3": ["expand.2"],
        "embed.1": ["expand.1"],
        "embed.2": ["expand.2"],
        "embed.3": ["expand.3"],
        "search.1": ["embed.1"],
        "search.2": ["embed.2"],
        "search.3": ["embed.3"],
        "u": ["search.1", "search.2", "search.3"],
    }
    assert [after[f"expand.{k}"].params.item for k in (1, 2, 3)] == [0, 1, 2]  # type: ignore[union-attr]
    assert reasons(rewrites, True) == ["expand: 3 items go on one by one to embed, search"]


def test_the_text_comes_with_the_last_item() -> None:
    text = tool("t", Ref("expand", "text"))
    before = graph(*pipeline(text=True).primitives, text, t=Ref("t", "out"), u=Ref("u", "out"))
    after, _ = apply(pipeline_decoding, before)
    assert after.parents["t"] == ("expand.3",)
    assert after["expand.1"].outputs == ("items", "sequence")


def test_a_reader_of_all_items_gets_them_joined() -> None:
    every = tool("every", Ref("expand", "items"))
    before = graph(*pipeline().primitives, every, e=Ref("every", "out"), u=Ref("u", "out"))
    after, _ = apply(pipeline_decoding, before)
    assert after.parents["every"] == ("expand.items.all",)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (pipeline(splittable=False), "its output is one piece, not a list declared splittable"),
        (pipeline(1), "one item leaves nothing to pipeline"),
        (graph(*expand(), answer=Ref("expand", "items")), "nothing downstream takes single items"),
        (
            graph(*expand(), tool("t", Ref("expand", "items")), answer=Ref("t", "out")),
            "nothing downstream takes single items",
        ),
        (graph(*call("m")), "its output is one piece, not a list declared splittable"),
    ],
)
def test_reasons_not_to_pipeline(before: Graph, reason: str) -> None:
    after, rewrites = apply(pipeline_decoding, before)
    assert after is before
    assert [r.reason for r in rewrites] == [reason]


def test_what_also_reads_another_list_is_not_pipelined_nor_what_follows_it() -> None:
    params = ToolParams(nothing, item_inputs=("a", "b"))
    inputs = {"a": Ref("expand", "items"), "b": Ref(QUERY, "chunks")}
    pair = _batchable("pair", Op.TOOL_CALL, "python", inputs, "out", params, 3)
    each = ToolParams(nothing, item_inputs=("x",))
    then = _batchable("then", Op.TOOL_CALL, "python", {"x": Ref("pair", "out")}, "out", each, 3)
    before = graph(*expand(), pair, then)
    after, rewrites = apply(pipeline_decoding, before)
    assert after is before
    assert [r.reason for r in rewrites] == ["nothing downstream takes single items"]


# --- the pipeline ---------------------------------------------------------------------------


def names(chosen: Sequence[str | Named[Pass]] | str | None) -> list[str]:
    return [step.name for step in select(chosen)]


def test_passes_are_selected_by_name() -> None:
    assert names(None) == names("all") == list(PIPELINE)
    assert select("none") == select([]) == ()
    chosen = ["split_prefilling", "prune_dependencies"]
    assert names(", ".join(chosen)) == names(select(chosen)) == chosen
    assert list(available())[: len(PIPELINE)] == list(PIPELINE)


def test_an_unknown_pass_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown pass 'prune'"):
        select("prune")


def test_optimising_twice_changes_nothing_more() -> None:
    once = optimise(pipeline(), PROFILE).e_graph
    assert optimise(once, PROFILE).e_graph == once


def test_a_pass_that_never_ends_is_stopped() -> None:
    def restless(g: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
        again = Graph(g.name, g.primitives, g.outputs, g.inputs)
        return again, [Rewrite("restless", "a", True, "because")]

    stopped = pytest.raises(GraphError, match=f"still changes the graph after {MAX_ROUNDS} rounds")
    with register("pass", "restless", restless), stopped:
        optimise(pipeline(), PROFILE, ["restless"])


def raises(g: Graph, profile: Profile) -> Any:
    raise ZeroDivisionError("boom")


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (raises, "ZeroDivisionError: boom"),
        (lambda g, profile: g, "it must return a graph and a list of Rewrites, not a Graph alone"),
        (lambda g, profile: None, "it must return a graph and a list of Rewrites, not None"),
        (lambda g, profile: (g, ["done"]), r"list of Rewrites, not \(Graph, list\)"),
        (lambda g, profile: (g, Rewrite("x", "a", True, "")), r"not \(Graph, Rewrite\)"),
        (
            lambda g, profile: (Graph(g.name, g.primitives[:-1], {}, g.inputs), []),
            "the names of the outputs have changed",
        ),
    ],
)
def test_what_a_pass_does_wrong_is_told_by_its_name(thing: Any, told: str) -> None:
    with (
        register("pass", "mine", thing),
        pytest.raises(GraphError, match=f"^pass 'mine': .*{told}$"),
    ):
        optimise(pipeline(), PROFILE, ["mine"], debug=True)


@catches(
    "end-of-a-piece",
    "what ends with its piece is read from all of them joined",
    edited(_within, "hi <= end", "hi < end"),
)
@catches(
    "begin-of-a-piece",
    "what begins with a piece is read from all of them joined",
    edited(_within, "lo >= start", "lo > start"),
)
def test_items_of_one_piece_are_read_from_it_and_no_others() -> None:
    """Each item by itself: in which piece it is, and where; the last one has whatever is left."""
    for sizes in ((3,), (2, 3), (1, 1, 4), (2, 2, 2)):
        pieces = [tool(f"a.{k}", items=size) for k, size in enumerate(sizes)]
        places = [(k, n) for k, size in enumerate(sizes) for n in range(size)]
        total, last = sum(sizes), len(sizes) - 1
        places += [(last, sizes[last] + n) for n in range(3)]
        for lo in range(total + 2):
            for hi in (*range(lo + 1, total + 3), None):
                items = places[lo:hi]
                within = {k for k, _ in items} == {items[0][0]}
                if hi is None:
                    within = items[0][0] == last
                expected = None
                if within:
                    k, first = items[0]
                    until = None if hi is None else first + hi - lo
                    expected = Ref(f"a.{k}", "out", (first, until))
                assert _within(Ref("a", "out", (lo, hi)), pieces) == expected, (sizes, lo, hi)
    assert _within(Ref("a", "out"), [tool("a.0", items=3)]) is None


def test_what_follows_a_cut_reads_whole_lists_of_what_is_cut() -> None:
    """Or lists from outside; along a piece of a list, be it one of two, nothing is cut."""

    def reads(id: str, *refs: Ref, items: int = 4, batchable: bool = True) -> Primitive:
        one = tool(id, *refs, items=items, batchable=batchable)
        params = ToolParams(nothing, item_inputs=tuple(name for name, _ in one.inputs))
        return replace(one, params=params)

    whole, piece = Ref("a", "out"), Ref("a", "out", (0, 4))
    chunks, part = Ref(QUERY, "chunks"), Ref(QUERY, "chunks", (0, 4))
    for refs, follows in (
        ((whole,), True),
        ((piece,), False),
        ((whole, whole), True),
        ((whole, piece), False),
        ((piece, whole), False),
        ((whole, chunks), True),
        ((chunks, whole), True),
        ((whole, part), True),
        ((chunks,), False),
    ):
        g = graph(reads("a", chunks), reads("b", *refs), reads("c", Ref("b", "out")))
        expected = ["a", "b", "c"] if follows else ["a"]
        assert aligned_successors(g, ["a"], 4) == expected, refs
        for other in ({"items": 3}, {"batchable": False}):
            g = graph(reads("a", chunks), reads("b", *refs, **other), reads("c", Ref("b", "out")))
            assert aligned_successors(g, ["a"], 4) == ["a"]


def test_each_list_that_a_cut_primitive_gives_is_joined_by_itself() -> None:
    """And once, for however many read it."""
    params = ToolParams(nothing, outputs=("out", "more"), item_inputs=("x0",))
    cut = replace(
        tool("a", Ref(QUERY, "chunks"), items=8, batchable=True),
        outputs=("out", "more"),
        params=params,
    )
    reader = tool("b", "a", Ref("a", "more"), Ref("a", "out", (1, 8)))
    other = tool("c", Ref("a", "more"))
    g = graph(cut, reader, other, answer=Ref("b", "out"), c=Ref("c", "out"), more=Ref("a", "more"))
    after = Cut(g, ["a"], [4, 4], lambda ref, i: replace(ref, items=(4 * i, 4 * i + 4))).apply()
    after.validate()
    joined = {p.id: [*p.refs()] for p in after.primitives if p.op is Op.AGGREGATE}
    assert joined == {
        f"a.{port}.all": [Ref("a.1", port), Ref("a.2", port)] for port in ("out", "more")
    }
    assert [*after["b"].refs()] == [
        Ref("a.out.all", "out"),
        Ref("a.more.all", "out"),
        Ref("a.out.all", "out", (1, 8)),
    ]
    assert [*after["c"].refs()] == [Ref("a.more.all", "out")]
    assert after.outputs["more"] == Ref("a.more.all", "out")
