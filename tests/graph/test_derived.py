"""What graphs derive, against networkx and plain searches, over graphs that are drawn."""

from __future__ import annotations

from random import Random

import networkx as nx

from teola.graph import QUERY, Graph, Guard, Order, Primitive, Ref
from tests.planted import catches, edited
from tests.schedule.plans import condition, tool


def drawn(seed: int) -> Graph:
    """Functions and conditions in any order; each waits for some that were drawn before it."""
    draw, made = Random(seed), list[Primitive]()
    for k in range(draw.randint(2, 14)):
        tools = [p.id for p in made if p.outputs == ("out",)]
        conditions = [p.id for p in made if p.outputs != ("out",)]
        reads = draw.sample(tools, min(len(tools), draw.choice([0, 1, 2, 3])))
        if draw.random() < 0.25:
            made.append(condition(f"p{k}", Ref(reads[0], "out") if reads else "question"))
            continue
        after = draw.sample(tools, min(len(tools), draw.choice([0, 0, 1])))
        guards = draw.sample(conditions, min(len(conditions), draw.choice([0, 1, 2])))
        made.append(
            tool(
                f"p{k}",
                *(reads or [Ref(QUERY, "question")]),
                after=tuple(Order(id, "an effect", effect=True) for id in after),
                guards=tuple(Guard(id, "then", draw.random() < 0.4) for id in guards),
            )
        )
    draw.shuffle(made)
    return Graph("drawn", made, {}, ["question"])


def waits_for(graph: Graph, p: Primitive) -> set[str]:
    """Whom it reads, whom it follows, and what decides on it; a guess only if it reads from behind
    it without standing there."""
    reads = {ref.producer for ref in p.refs()} - {QUERY} | {order.producer for order in p.after}
    guesses = {guard for id in reads for guard in graph[id].guards if guard.speculative} - {
        *p.guards
    }
    decided = {guard.condition for guard in p.guards if not guard.speculative}
    return reads | decided | {guard.condition for guard in guesses}


@catches(
    "guessed-behind",
    "who reads from behind a guess does not wait for what decides on it",
    edited(Graph.parents.func, "if guard not in own:", "if False:"),
)
@catches(
    "guess-is-waited-for",
    "what is begun on a guess waits for the decision",
    edited(Graph.parents.func, "if not guard.speculative:", "if True:"),
)
@catches(
    "shortest-way",
    "the depth is the shortest way to the end",
    edited(Graph.depth.func, "max(", "min("),
)
def test_parents_depths_and_ancestors_are_those_of_a_slow_search() -> None:
    guessed = 0
    for seed in range(50):
        graph = drawn(seed)
        graph.validate()
        slow: nx.DiGraph[str] = nx.DiGraph()
        slow.add_nodes_from(p.id for p in graph.primitives)
        for p in graph.primitives:
            assert {*graph.parents[p.id]} == waits_for(graph, p), (seed, p.id)
            assert len(graph.parents[p.id]) == len({*graph.parents[p.id]})
            slow.add_edges_from((parent, p.id) for parent in waits_for(graph, p))
            guessed += any(guard.speculative for guard in p.guards)
        place = {id: k for k, id in enumerate(graph.order)}
        assert sorted(place) == sorted(slow)
        for id in slow:
            assert {*graph.children[id]} == {*slow.successors(id)}
            assert graph.ancestors[id] == nx.ancestors(slow, id)
            below = slow.subgraph({id} | nx.descendants(slow, id))
            assert graph.depth[id] == nx.dag_longest_path_length(below)
            assert all(place[parent] < place[id] for parent in graph.parents[id])
            reading = {p.id for p in graph.primitives if id in {r.producer for r in p.refs()}}
            assert {p.id for p in graph.consumers(id)} == reading
    assert guessed > 30
