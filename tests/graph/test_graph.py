"""Graphs: derived edges, order, depth, and what `validate` refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from teola.errors import GraphError
from teola.graph import QUERY, Graph, Guard, Order, Part, Primitive, Prompt, Ref, Role
from tests.schedule.plans import aggregate, call, condition, tool


def graph(*primitives: Primitive, **outputs: Ref) -> Graph:
    found = outputs or {"answer": Ref(primitives[-1].id, "out")}
    return Graph("test", primitives, found, ["question"])


DIAMOND = (tool("a"), tool("b", "a"), tool("c", "a"), aggregate("d", "b", "c"))


def test_parents_and_children_are_derived() -> None:
    g = graph(*DIAMOND)
    assert g.parents["d"] == ("b", "c")
    assert g.children["a"] == ("b", "c")
    assert g.ancestors["d"] == {"a", "b", "c"}
    assert [p.id for p in g.consumers("a")] == ["b", "c"]


def test_depth_is_the_longest_way_to_the_end() -> None:
    g = graph(*DIAMOND, tool("e", "d"), tool("f", "a"))
    assert dict(g.depth) == {"a": 3, "b": 2, "c": 2, "d": 1, "e": 0, "f": 0}


def test_the_order_has_producers_first_and_ties_as_given() -> None:
    g = graph(DIAMOND[3], DIAMOND[2], DIAMOND[1], DIAMOND[0], d=Ref("d", "out"))
    assert g.order == ("a", "c", "b", "d")


def test_three_kinds_of_edges() -> None:
    late = tool("c", "a", after=(Order("b", "because"),), guards=(Guard("if", "then"),))
    guessed = tool("d", guards=(Guard("if", "else", speculative=True),))
    g = graph(condition("if"), tool("a"), tool("b"), late, guessed)
    assert [(e.source, e.kind, e.label) for e in g.edges()] == [
        ("a", "data", "out"),
        ("b", "order", "because"),
        ("if", "guard", "then"),
        ("if", "guard", "else, speculative"),
    ]
    assert [p.id for p in g.consumers("b")] == [], "it reads nothing of b"


def test_networkx_has_the_same_edges() -> None:
    g = graph(*DIAMOND)
    found = g.to_networkx()
    assert set(found.edges) == {(e.source, e.target) for e in g.edges()}
    assert dict(found.nodes(data="primitive")) == g.by_id
    assert found.name == g.name
    alone = graph(tool("a")).to_networkx()
    assert dict(alone.nodes(data="primitive")) == {"a": tool("a")}


def test_equal_graphs() -> None:
    assert graph(*DIAMOND) == graph(*DIAMOND)
    assert graph(*DIAMOND) != graph(*DIAMOND[:3])
    assert graph(*DIAMOND) != "graph"
    assert graph(*DIAMOND, answer=Ref("d", "out")) != graph(*DIAMOND, answer=Ref("a", "out"))
    assert graph(*DIAMOND, other=Ref("d", "out")) != graph(*DIAMOND, answer=Ref("d", "out"))
    assert hash(graph(*DIAMOND)) == hash(graph(*DIAMOND))
    others = [graph(*DIAMOND[:3]), Graph("other", DIAMOND, {})]
    assert len({hash(made) for made in (graph(*DIAMOND), *others)}) == 3, "sets stay quick"


def test_references_read_well() -> None:
    assert [str(Ref("a", "out", items)) for items in (None, (0, 2), (2, None))] == [
        "a.out",
        "a.out[0:2]",
        "a.out[2:]",
    ]


def test_valid_graphs_are_valid() -> None:
    for primitives in (DIAMOND, [*call("m", 3), aggregate("z", "m.0", "m.1", "m.2")]):
        made = graph(*primitives)
        made.validate()
        assert sorted(made.order) == sorted(p.id for p in primitives)


READS = "component 'b', primitive 'b', input 'x0' reads "
NO_BRANCH = "which has no such branch"


@pytest.mark.parametrize(
    ("primitives", "message"),
    [
        (
            (tool("one"), tool("a"), tool("a")),
            "graph 'test': two primitives are called 'a'",
        ),
        (
            (tool("alpha"), tool("alpine"), tool("b", "alhpa")),
            f"{READS}'alhpa', which does not exist; the nearest is 'alpha'",
        ),
        (
            (tool("a"), tool("b", Ref("a", "outs"))),
            f"{READS}'outs' of 'a', which gives only out; the nearest is 'out'",
        ),
        (
            (condition("if"), tool("b", Ref("if", "out"))),
            f"{READS}'out' of 'if', which gives only branch",
        ),
        (
            (tool("b", Ref(QUERY, "qestion")),),
            f"{READS}'qestion' of 'query', which gives only question; the nearest is 'question'",
        ),
        (
            (tool("a", after=(Order("z", "r"),)),),
            "primitive 'a' runs after 'z', which does not exist",
        ),
        (
            (tool("a", guards=(Guard("z", "then"),)),),
            "primitive 'a' is guarded by 'z', which does not exist",
        ),
        (
            (condition("if"), tool("a", guards=(Guard("if", "els"),))),
            f"primitive 'a' waits for branch 'els' of 'if', {NO_BRANCH}",
        ),
        (
            (
                condition("if"),
                tool("c"),
                tool("a", guards=(Guard("if", "then"), Guard("c", "then"))),
            ),
            f"primitive 'a' waits for branch 'then' of 'c', {NO_BRANCH}",
        ),
        (
            (tool("a"), tool("b", Ref("a", "out", (2, 2)))),
            f"{READS}an empty range of items: a.out[2:2]",
        ),
    ],
)
def test_broken_graphs_are_refused(primitives: tuple[Primitive, ...], message: str) -> None:
    with pytest.raises(GraphError) as error:
        graph(*primitives).validate()
    assert str(error.value) == message


def test_a_query_gives_what_its_caller_gives() -> None:
    """All of that is told where something else is read; a graph without inputs gives nothing."""
    for inputs, gives in ((["one", "two"], "one, two"), ([], "nothing")):
        made = Graph("test", [tool("b", Ref(QUERY, "z"))], {}, inputs)
        with pytest.raises(GraphError) as error:
            made.validate()
        assert str(error.value) == f"{READS}'z' of 'query', which gives only {gives}"


def test_a_cycle_is_told_from_where_it_begins() -> None:
    with pytest.raises(GraphError) as error:
        graph(tool("a", "b"), tool("b", "a")).validate()
    told = {f"graph 'test' has a cycle: {way}" for way in ("a -> b -> a", "b -> a -> b")}
    assert str(error.value) in told


@pytest.mark.parametrize("items", [(0, 1), (0, None), (1, 2), (3, None)])
def test_a_range_of_items_may_begin_at_the_first_and_be_open(items: tuple[int, int | None]) -> None:
    graph(tool("a"), tool("b", Ref("a", "out", items))).validate()


@pytest.mark.parametrize("items", [(0, 0), (1, 1), (2, 1), (-1, None)])
def test_a_range_without_items_is_refused(items: tuple[int, int | None]) -> None:
    with pytest.raises(GraphError, match="empty range of items"):
        graph(tool("a"), tool("b", Ref("a", "out", items))).validate()


def test_names_that_are_near_to_none_are_refused_without_a_guess() -> None:
    for wrong in (Ref("zzz", "out"), Ref("a", "zzz"), Ref(QUERY, "zzz")):
        with pytest.raises(GraphError) as error:
            graph(tool("a"), tool("b", wrong)).validate()
        assert "nearest" not in str(error.value)


def test_an_output_that_does_not_exist_is_refused() -> None:
    for wrong, told in (
        (Ref("z", "out"), "output 'answer' reads 'z', which does not exist"),
        (Ref("a", "z"), "output 'answer' reads 'z' of 'a', which gives only out"),
    ):
        with pytest.raises(GraphError) as error:
            graph(tool("a"), answer=wrong).validate()
        assert str(error.value) == told


def test_the_second_of_what_is_read_or_followed_is_checked_like_the_first() -> None:
    out = Ref("a", "out")
    parts = tuple(Part(Role.CONTEXT, ref) for ref in (out, Ref("z", "out")))
    asks = replace(call("m")[0], inputs=(("prompt", Prompt(parts)),))
    for broken in (
        tool("b", "a", "z"),
        aggregate("b", "a", "z"),
        asks,
        tool("b", after=(Order("a", "r"), Order("z", "r"))),
        tool("b", guards=(Guard("if", "then"), Guard("z", "then"))),
    ):
        with pytest.raises(GraphError, match="'z', which does not exist"):
            graph(condition("if"), tool("a"), broken, answer=out).validate()
    with pytest.raises(GraphError, match="output 'late' reads 'z', which does not exist"):
        graph(tool("a"), early=out, late=Ref("z", "out")).validate()


def test_a_long_cycle_is_shown() -> None:
    ring = [tool(f"p{k}", f"p{(k + 1) % 5}") for k in range(5)]
    with pytest.raises(GraphError) as error:
        graph(*ring).validate()
    assert str(error.value).count("->") == 5


def test_primitives_check_themselves() -> None:
    with pytest.raises(GraphError, match="items must not be negative, got -1"):
        tool("a", items=-1)
    with pytest.raises(GraphError, match="'a' has no input 'x'"):
        tool("a").input("x")
    with pytest.raises(GraphError, match="at least one part"):
        Prompt(())


def test_a_prompt_names_what_it_reads() -> None:
    ref = Ref("a", "out")
    prompt = Prompt((Part(Role.INSTRUCTION, "Say"), Part(Role.CONTEXT, ref)))
    assert list(prompt.refs()) == [ref]


def test_a_deep_graph_needs_no_recursion() -> None:
    chain = [tool("p0"), *(tool(f"p{k}", f"p{k - 1}") for k in range(1, 3000))]
    g = graph(*chain)
    g.validate()
    assert g.depth["p0"] == 2999
