"""verify: a graph that a broken pass might make is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from teola import register
from teola.errors import GraphError
from teola.graph import Graph, Guard, Op, Order, Part, Primitive, Prompt, Ref, Role
from teola.passes import optimise
from teola.passes.rewrite import Rewrite
from teola.passes.verify import verify
from tests.passes.test_each_pass import PROFILE, embed, expand, search, union
from tests.schedule.plans import condition, tool

GUARD = (Guard("if", "then"),)


def p_graph() -> Graph:
    effect = (Order("store", "searches what it stores", effect=True),)
    primitives = [
        tool("store"),
        condition("if"),
        *expand(3),
        embed("embed", Ref("expand", "items"), 3, guards=GUARD),
        search("search", "embed", 3, after=effect, guards=GUARD),
        union("u", "search"),
    ]
    made = Graph("test", primitives, {"answer": Ref("u", "out")}, ["question", "scope"])
    made.validate()
    return made


def e_graph() -> Graph:
    return optimise(p_graph(), PROFILE, debug=True).e_graph


def changed(graph: Graph, change: Callable[[Primitive], Primitive | None]) -> Graph:
    primitives = [q for p in graph.primitives if (q := change(p)) is not None]
    return Graph(graph.name, primitives, graph.outputs, graph.inputs)


def only(id: str, **values: object) -> Callable[[Primitive], Primitive]:
    return lambda p: replace(p, **values) if p.id == id else p  # type: ignore[arg-type]


def test_what_the_passes_make_is_accepted() -> None:
    assert e_graph() != p_graph(), "nothing is tested"
    verify(p_graph(), p_graph())
    verify(p_graph(), e_graph())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (only("search.2", guards=()), "'search.2' lost a guard of 'search'"),
        (only("embed.1", guards=(Guard("if", "otherwise"),)), "'embed.1' lost a guard of 'embed'"),
        (only("search.3", after=()), "'search.3' no longer follows the effect 'store'"),
        (only("embed.2", items=2), "the pieces of 'embed' do not add up to its 3 items"),
        (only("embed.2", origin="elsewhere"), "the pieces of 'embed' do not add up"),
        (
            only("expand.2", params=e_graph()["expand.3"].params),
            "the partial decodings of 'expand' are not its items in order",
        ),
        (
            only("expand.prefill", inputs=(("prompt", Prompt((Part(Role.CONTEXT, "x"),) * 2)),)),
            "the pieces of 'expand.prefill' are not its whole prompt",
        ),
        (
            only("expand.prefill", op=Op.PARTIAL_PREFILLING),
            "'expand.prefill' must have exactly one full prefilling",
        ),
        (only("u", inputs=(("parts", (Ref("search.9", "hits"),)),)), "does not exist"),
        (only("embed.1", inputs=(("texts", Ref("u", "out")),)), "has a cycle"),
    ],
)
def test_a_hand_broken_graph_is_refused(
    change: Callable[[Primitive], Primitive], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        verify(p_graph(), changed(e_graph(), change))


def test_a_lost_primitive_is_missed() -> None:
    broken = changed(e_graph(), lambda p: None if p.id == "store" else replace(p, after=()))
    with pytest.raises(GraphError, match="primitive 'store' is lost"):
        verify(p_graph(), broken)


def test_another_output_is_refused() -> None:
    graph = e_graph()
    with pytest.raises(GraphError, match="the names of the outputs have changed"):
        verify(p_graph(), Graph("test", graph.primitives, {"x": Ref("u", "out")}, graph.inputs))


def test_a_broken_pass_is_caught_in_debug() -> None:
    def careless(graph: Graph, profile: object) -> tuple[Graph, list[Rewrite]]:
        if not any(p.guards for p in graph.primitives):
            return graph, []
        broken = changed(graph, lambda p: replace(p, guards=()))
        return broken, [Rewrite("careless", "embed", True, "why not")]

    with register("pass", "careless", careless):
        assert optimise(p_graph(), PROFILE, ["careless"]).e_graph is not None
        with pytest.raises(GraphError, match="lost a guard"):
            optimise(p_graph(), PROFILE, ["careless"], debug=True)


def written_after_it_was_searched() -> Graph:
    """The template's order is all that puts the ingestion behind the search."""
    late = replace(
        search("write", "embed", 3, after=(Order("search", "order of the template"),)),
        op=Op.INGESTION,
        outputs=("stored",),
    )
    primitives = [*p_graph().primitives, replace(late, items=3)]
    return Graph("test", primitives, {"answer": Ref("u", "out")}, ["question", "scope"])


def test_a_store_is_read_before_it_is_changed_whatever_says_so() -> None:
    made = written_after_it_was_searched()
    verify(made, made)
    with pytest.raises(GraphError, match="'write' no longer follows 'search' in store"):
        verify(made, changed(made, only("write", after=())))


def test_a_store_is_read_after_it_was_changed_whatever_says_so() -> None:
    """Once the first write of two stores is behind it; what is in another store does not matter."""
    first, second = (
        replace(search(f"write{k}", "embed", 3), op=Op.INGESTION, outputs=("stored",), engine=store)
        for k, store in enumerate(("vectorstore", "other"))
    )
    orders = tuple(Order(p.id, "order of the template") for p in (first, second))
    late = search("late", "embed", 3, after=orders)
    primitives = [*p_graph().primitives, first, second, late]
    made = Graph("test", primitives, {"answer": Ref("u", "out")}, ["question", "scope"])
    verify(made, changed(made, only("late", after=orders[:1])))
    with pytest.raises(GraphError) as caught:
        verify(made, changed(made, only("late", after=orders[1:])))
    assert str(caught.value) == "'late' no longer follows 'write0' in store 'vectorstore'"
