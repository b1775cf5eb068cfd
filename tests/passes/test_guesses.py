"""Passes inside a branch that may begin before it is decided."""

from __future__ import annotations

from teola.graph import QUERY, Guard, Ref
from teola.passes import optimise
from teola.passes.rewrite import Cut
from teola.profile import EngineProfile, Profile
from tests.planted import catches, edited
from tests.schedule.plans import condition, plan, tool

GUESS = (Guard("if", "then", speculative=True),)
SMALL = Profile("small batches", {"python": EngineProfile(max_efficient=2)})


@catches(
    "closing-loses-guards",
    "what joins the pieces stands in no branch any more",
    edited(Cut._joined, "guards=p.guards,", ""),
)
def test_what_joins_pieces_need_not_wait_for_the_branch_either() -> None:
    """Else all that follows in the branch would wait with it."""
    notes = Ref(QUERY, "notes")
    graph = plan(
        condition("if"),
        tool("a", notes, batchable=True, items=4, guards=GUESS),
        tool("b", "a", batchable=True, items=4, guards=GUESS),
        tool("c", "b", guards=GUESS),
    ).graph
    made = optimise(graph, SMALL, ["decompose_stages"], debug=True).e_graph
    assert {"a.1", "a.2", "b.1", "b.2"} <= set(made.by_id)
    assert "if" not in made.ancestors["c"]
    assert {p.id for p in made.primitives if not p.guards} == {"if"}
