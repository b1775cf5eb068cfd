"""What each pass says of what it did or left, in whole words, and the edges at which that turns.

Long because every pass has reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from teola import register
from teola.errors import GraphError, InputError, UnknownName
from teola.graph import (
    QUERY,
    AggregateParams,
    Aggregation,
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
)
from teola.passes import PIPELINE, optimise, select
from teola.passes.decompose_stages import MOST_STAGES, decompose_stages
from teola.passes.prune_dependencies import prune_dependencies
from teola.passes.rewrite import Rewrite
from teola.passes.split_prefilling import split_prefilling
from teola.passes.split_reranking import split_reranking
from teola.passes.verify import verify
from teola.profile import EngineProfile, Profile
from teola.registry import Named
from tests.passes.test_each_pass import PROFILE, answering, embed, expand, graph, search, union
from tests.schedule.plans import aggregate, call, condition, tool

CHUNKS = Ref(QUERY, "chunks")
LONG = "Answer the question with care, and with nothing else: "


# --- 1. prune dependencies ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "after", "reason"),
    [
        ([], ["a"], "no data flows from a"),
        (["a"], ["a"], "the data of a orders it already"),
        (["a", "b"], ["b", "a", "b"], "the data of b, a orders it already"),
        (["a"], ["a", "b", "c", "b"], "no data flows from b, c"),
    ],
)
def test_an_order_without_an_effect_is_dropped_and_why_is_said(
    reads: list[str], after: list[str], reason: str
) -> None:
    first = [tool(id) for id in "abc"]
    late = tool("d", *reads, after=tuple(Order(id, "order of the template") for id in after))
    made, rewrites = prune_dependencies(graph(*first, late), PROFILE)
    assert rewrites == [Rewrite("prune_dependencies", "d", True, reason)]
    assert made["d"] == tool("d", *reads)
    assert made == graph(*first, tool("d", *reads))


def test_an_effect_stays_beside_what_is_dropped_and_in_every_primitive() -> None:
    kept = tuple(Order(id, "searches what it stores", effect=True) for id in "ab")
    two = [tool(id, after=(kept[0], Order("b", "order"), kept[1])) for id in "cd"]
    made, rewrites = prune_dependencies(graph(tool("a"), tool("b"), *two), PROFILE)
    assert [made[id].after for id in "cd"] == [kept, kept]
    assert rewrites == [
        Rewrite("prune_dependencies", id, applied, reason)
        for id in "cd"
        for applied, reason in (
            (True, "no data flows from b"),
            (False, "must follow a: searches what it stores"),
            (False, "must follow b: searches what it stores"),
        )
    ]
    again, left = prune_dependencies(made, PROFILE)
    assert again is made
    assert left == [one for one in rewrites if not one.applied]


# --- 2. decompose stages --------------------------------------------------------------------------

WRITTEN = "its items are generated one after another"


def joined(*refs: Ref) -> Primitive:
    params = AggregateParams(Aggregation.CONCAT)
    return Primitive("all", Op.AGGREGATE, "all", "", (("parts", refs),), ("out",), params)


@pytest.mark.parametrize(
    ("before", "texts"),
    [
        (expand(9), Ref("expand", "items")),
        ([*expand(6), joined(CHUNKS, Ref("expand", "items"))], Ref("all", "out")),
        (
            [tool("x"), *expand(6), joined(Ref("x", "out"), Ref("expand", "items"))],
            Ref("all", "out"),
        ),
    ],
    ids=["by itself", "after what the caller gives", "after what a function gives"],
)
def test_what_an_llm_writes_is_not_cut_before_it_is_written(
    before: list[Primitive], texts: Ref
) -> None:
    """Nor what is cut along something made of it item by item."""
    first = embed("embed", texts, 9)
    made = graph(*before, first, search("search", "embed", 9), union("u", "search"))
    after, rewrites = decompose_stages(made, PROFILE)
    assert after is made
    assert rewrites == [
        Rewrite("decompose_stages", id, False, WRITTEN) for id in ("embed", "search")
    ]


def test_what_only_reads_an_answer_is_cut() -> None:
    """A list that is no piece by piece, or that is written by somebody else, is there at once."""
    one_text = expand(9, splittable=False)
    for before, texts in (
        (one_text, Ref("expand", "items")),
        ([*expand(9), tool("x", Ref("expand", "items"))], Ref("x", "out")),
        ([*expand(9), union("x", "expand")], Ref("x", "out")),
    ):
        before = [
            replace(p, inputs=(("parts", (Ref("expand", "items"),)),)) if p.id == "x" else p
            for p in before
        ]
        first = embed("embed", texts, 9)
        made = graph(*before, first, search("search", "embed", 9), union("u", "search"))
        _, rewrites = decompose_stages(made, PROFILE)
        assert [one.reason for one in rewrites] == [
            "9 items exceed 4: 3 stages, with search behind each"
        ]


@pytest.mark.parametrize(
    ("items", "size", "stages"),
    [
        (5, 4, 2),
        (8, 4, 2),
        (9, 4, 3),
        (4 * MOST_STAGES, 4, MOST_STAGES),
        (4 * MOST_STAGES + 1, 8, 9),
        (8 * MOST_STAGES, 8, MOST_STAGES),
        (8 * MOST_STAGES + 1, 12, 11),
    ],
)
def test_stages_are_as_small_as_a_batch_unless_they_were_too_many(
    items: int, size: int, stages: int
) -> None:
    made = graph(
        embed("embed", CHUNKS, items), search("search", "embed", items), union("u", "search")
    )
    after, rewrites = decompose_stages(made, PROFILE)
    assert rewrites == [
        Rewrite(
            "decompose_stages",
            "embed",
            True,
            f"{items} items exceed {size}: {stages} stages, with search behind each",
        )
    ]
    counts = [p.items for p in after.primitives if p.origin == "embed"]
    assert counts == [size] * (stages - 1) + [items - size * (stages - 1)]


def test_the_first_that_is_worth_it_is_cut_and_pieces_are_not_cut_again() -> None:
    small, alone = embed("small", CHUNKS, 4), embed("alone", CHUNKS, 5)
    piece = replace(embed("piece", CHUNKS, 99), origin="whole")
    big, more = embed("big", CHUNKS, 10), search("more", "big", 10)
    made = graph(small, alone, piece, big, more, union("u", "more"))
    after, rewrites = decompose_stages(made, PROFILE)
    assert [(one.primitive, one.applied) for one in rewrites] == [("big", True)]
    assert {p.id for p in after.primitives} == {
        "small", "alone", "piece", "u", *(f"{id}.{k}" for id in ("big", "more") for k in (1, 2, 3)),
    }  # fmt: skip
    _, left = decompose_stages(graph(small, alone, piece, tool("x")), PROFILE)
    assert [one.reason for one in left] == [
        "4 items fit the maximum efficient batch of 4",
        "nothing batchable follows that could be pipelined behind its stages",
    ]


# --- 3. split prefilling --------------------------------------------------------------------------


def test_what_is_computed_ahead_of_another_call_is_no_gain_for_the_next() -> None:
    """One instance keeps it; what it keeps of all queries anyway is told otherwise."""
    llm = replace(PROFILE.engines["llm"], keeps_prefixes=True)
    profile = replace(PROFILE, engines={"llm": llm, "python": EngineProfile()})
    history = Part(Role.HISTORY, Ref(QUERY, "question"))

    def two(*first: Part) -> Graph:
        prompts = Prompt((*first, Part(Role.CONTEXT, Ref("a", "out"))))
        calls = [p for id in ("m", "n") for p in call(id)]
        heads = [
            replace(p, inputs=(("prompt", prompts),)) if p.op is Op.PREFILLING else p for p in calls
        ]
        return graph(tool("a"), *heads, aggregate("z", "m", "n"))

    _, rewrites = split_prefilling(two(history), profile)
    assert [(one.primitive, one.applied, one.reason) for one in rewrites] == [
        (
            "n.prefill",
            False,
            "no prefix is known earlier that is worth a prefill (8 tokens), besides what is "
            "computed ahead of other calls",
        ),
        ("m.prefill", True, "1 of 2 prompt parts are known before the rest"),
    ]
    _, rewrites = split_prefilling(two(Part(Role.INSTRUCTION, LONG)), profile)
    anyway = "besides what engine 'llm' keeps anyway"
    assert [one.reason for one in rewrites] == [
        f"no prefix is known earlier that is worth a prefill (8 tokens), {anyway}"
    ] * 2


def test_every_prefilling_is_looked_at_and_others_are_left() -> None:
    given = Prompt((Part(Role.INSTRUCTION, LONG), Part(Role.CONTEXT, Ref("a", "out"))))
    made = answering(given, tool("a"))
    after, rewrites = split_prefilling(made, PROFILE)
    reason = "1 of 2 prompt parts are known before the rest"
    assert rewrites == [Rewrite("split_prefilling", "m.prefill", True, reason)]
    assert (after.name, after.inputs, after.outputs) == (made.name, made.inputs, made.outputs)
    assert [p.id for p in after.primitives] == ["a", "m.prefill.ahead1", "m.prefill", "m"]
    before = made["m.prefill"]
    assert after["m.prefill.ahead1"] == replace(
        before,
        id="m.prefill.ahead1",
        op=Op.PARTIAL_PREFILLING,
        inputs=(("prompt", Prompt(given.parts[:1])),),
        origin="m.prefill",
    )
    assert after["m.prefill"] == replace(
        before,
        op=Op.FULL_PREFILLING,
        inputs=(
            ("sequence", Ref("m.prefill.ahead1", "sequence")),
            ("prompt", Prompt(given.parts[1:])),
        ),
        origin="m.prefill",
    )
    assert split_prefilling(after, PROFILE) == (after, [])


# --- 5. split reranking ---------------------------------------------------------------------------

SCORES = "its scores are read by more than the choice of the best"


def reranking(*, optional: bool = False, searches: int = 2, **more: Any) -> list[Primitive]:
    """Two searches, their union, its reranking and the choice of the best."""
    found = [search(f"s{k}", "embed", 3) for k in range(searches)]
    together = union("u", "s0")
    together = replace(together, inputs=(("parts", tuple(Ref(p.id, "hits") for p in found)),))
    inputs = (("question", Ref(QUERY, "question")), ("hits", Ref("u", "out")))
    rerank = Primitive(
        "rerank", Op.RERANKING, "rerank", "rerank", inputs, ("scores",), EmbeddingParams(),
        items=5, batchable=True, optional=optional, **more,
    )  # fmt: skip
    best = Primitive(
        "best",
        Op.AGGREGATE,
        "rerank",
        "",
        (("hits", Ref("u", "out")), ("scores", Ref("rerank", "scores"))),
        ("out",),
        AggregateParams(Aggregation.TOP_K, k=2),
    )
    return [embed("embed", CHUNKS, 3), *found, together, rerank, best]


@pytest.mark.parametrize(
    ("before", "outputs", "reason"),
    [
        (reranking(searches=1), {}, "its hits come all at once"),
        (
            reranking(optional=True),
            {},
            "it is optional: its scores are there for all hits or for none",
        ),
        (reranking(), {"scores": Ref("rerank", "scores")}, SCORES),
        ([*reranking(), tool("t", Ref("rerank", "scores"))], {"t": Ref("t", "out")}, SCORES),
    ],
)
def test_why_a_reranking_stays_whole_is_said(
    before: list[Primitive], outputs: dict[str, Ref], reason: str
) -> None:
    made = graph(*before, answer=Ref("best", "out"), **outputs)
    after, rewrites = split_reranking(made, Profile("free", {}))
    assert after is made
    assert rewrites == [Rewrite("split_reranking", "rerank", False, reason)]


# --- the pipeline ---------------------------------------------------------------------------------


def test_passes_are_chosen_in_the_order_in_which_they_are_named_and_once() -> None:
    first, *_, last = select(None)
    assert select(" split_reranking,, prune_dependencies ,split_reranking") == (last, first)
    assert select([last, "prune_dependencies", last]) == (last, first)
    assert (
        select(["all", "prune_dependencies"]) == select("prune_dependencies,all") == select("all")
    )
    assert select("split_reranking,all") == (last, *select("all")[:-1])
    assert all(isinstance(step, Named) for step in select("all"))


def test_an_unknown_pass_is_told_with_all_that_may_be_named() -> None:
    with pytest.raises(UnknownName) as caught:
        select("prune_dependencies,zzz")
    assert (
        str(caught.value)
        == f"unknown pass 'zzz' (valid: {', '.join(sorted([*PIPELINE, 'all', 'none']))})"
    )


def two_more(g: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
    """Adds two functions, unless they are there."""
    if "more1" in g:
        return g, [Rewrite("two_more", "more1", False, "it is there")]
    more = [tool("more1"), tool("more2")]
    after = Graph(g.name, [*g.primitives, *more], g.outputs, g.inputs)
    decided = [Rewrite("two_more", "a", True, "more"), Rewrite("two_more", "b", False, "why not")]
    return after, decided


@pytest.mark.parametrize(
    ("most", "taken"), [(3, True), (4, True), (2, False), (2.6, False), (0, False)]
)
def test_a_step_to_more_primitives_than_there_may_be_is_not_taken(most: float, taken: bool) -> None:
    """Exactly as many may be; a graph that has more from the start is left as it is."""
    with register("pass", "two_more", two_more):
        made = optimise(graph(tool("a")), PROFILE, ["two_more"], most_primitives=most)
    assert len(made.e_graph) == (3 if taken else 1)
    assert made.p_graph == graph(tool("a"))
    refused = f"the graph would have 3 primitives, more than the {most:.0f} allowed"
    expected = [("more1", False, "it is there")] if taken else [("b", False, "why not")]
    told = (True, "more") if taken else (False, refused)
    assert [(one.primitive, one.applied, one.reason) for one in made.rewrites] == [
        ("a", *told), *expected,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (3, "pass 'mine' must be a function of a graph and a profile, not 3"),
        (int, "pass 'mine' must be a function of a graph and a profile, not <class 'int'>"),
        (lambda g: g, "pass 'mine' must take a graph and a profile: too many positional arguments"),
        (
            lambda g, p, q: g,
            "pass 'mine' must take a graph and a profile: missing a required argument: 'q'",
        ),
    ],
)
def test_what_cannot_be_a_pass_is_refused(thing: Any, told: str) -> None:
    with pytest.raises(InputError) as caught, register("pass", "mine", thing):
        pass
    assert str(caught.value) == told


# --- verify ---------------------------------------------------------------------------------------


def without_outputs(g: Graph) -> Graph:
    return Graph(g.name, g.primitives, {}, g.inputs)


def without_b(g: Graph) -> Graph:
    left = [replace(p, after=p.after[1:]) for p in g.primitives if p.id != "b"]
    return Graph(g.name, left, g.outputs, g.inputs)


def fewer_items(g: Graph) -> Graph:
    changed = [replace(p, items=p.items + 1) if p.id == "b" else p for p in g.primitives]
    return Graph(g.name, changed, g.outputs, g.inputs)


def unguarded(g: Graph) -> Graph:
    changed = [replace(p, guards=()) for p in g.primitives]
    return Graph(g.name, changed, g.outputs, g.inputs)


def unordered(g: Graph) -> Graph:
    changed = [replace(p, after=()) for p in g.primitives]
    return Graph(g.name, changed, g.outputs, g.inputs)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without_outputs, "the names of the outputs have changed"),
        (without_b, "primitive 'b' is lost"),
        (fewer_items, "the pieces of 'b' do not add up to its 2 items"),
        (unguarded, "'c' lost a guard of 'c'"),
        (unordered, "'c' no longer follows the effect 'a'"),
    ],
)
def test_what_a_pass_has_lost_is_told(change: Callable[[Graph], Graph], told: str) -> None:
    effects = (Order("b", "x"), Order("a", "an effect", effect=True))
    made = graph(
        tool("a"),
        tool("b", items=2),
        condition("if"),
        tool("c", after=effects, guards=(Guard("if", "then"),)),
    )
    verify(made, made)
    with pytest.raises(GraphError) as caught:
        verify(made, change(made))
    assert str(caught.value) == told
