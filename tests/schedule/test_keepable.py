"""Which lists may stay where they were computed: those that only engines read, item by item."""

from __future__ import annotations

from teola.graph import QUERY
from teola.schedule.plan import Plan
from tests.schedule.plans import Ref, aggregate, plan, tool

NOTES = Ref(QUERY, "notes")


def keepable(p: Plan) -> dict[str, set[str]]:
    return {id: set(ports) for id, ports in zip(p.ids, p.keepable, strict=True) if ports}


def test_a_list_that_an_engine_reads_may_stay() -> None:
    p = plan(tool("a", NOTES, batchable=True), tool("b", "a", batchable=True), tool("c", "b"))
    assert keepable(p) == {"a": {"out"}, "b": {"out"}}


def test_what_the_query_gives_back_or_gathers_must_come() -> None:
    gathered = plan(
        tool("a", NOTES, batchable=True),
        tool("b", "a", batchable=True),
        aggregate("c", "a"),
        tool("d", "b", "c"),
    )
    assert keepable(gathered) == {"b": {"out"}}
    given = plan(tool("a", NOTES, batchable=True), outputs={"a": Ref("a", "out")})
    assert keepable(given) == {}


def test_what_is_no_list_is_not_kept() -> None:
    assert keepable(plan(tool("a"), tool("b", "a"))) == {}
