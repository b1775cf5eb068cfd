"""What may grow over a list while a call writes it: one call that writes all of it, in order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from teola.graph import QUERY, AggregateParams, Aggregation, Graph, Op, Primitive, Ref
from teola.graph.ops import GrowParams
from teola.schedule.plan import Plan
from tests.passes.test_each_pass import expand
from tests.schedule.plans import call, tool

GROWER: Any = SimpleNamespace(effect=False, bodies={}, repeated=None)
LIST = Ref("expand", "items")


def grows(id: str, feeds: str = "over", **inputs: Any) -> Primitive:
    params = GrowParams(GROWER, feeds=feeds)
    return Primitive(id, Op.GROW, id, "", tuple(inputs.items()), ("out",), params)


def joined(*refs: Ref, mode: Aggregation = Aggregation.CONCAT, id: str = "all") -> Primitive:
    params = AggregateParams(mode)
    return Primitive(id, Op.AGGREGATE, id, "", (("parts", refs),), ("out",), params)


def pieces(count: int = 2) -> list[Primitive]:
    """A call that writes its list in so many pieces."""
    return [
        replace(p, outputs=("items", "sequence")) if p.op is Op.PARTIAL_DECODING else p
        for p in call("m", count)
    ]


M = [Ref(f"m.{k}", "items") for k in range(3)]


@pytest.mark.parametrize(
    ("primitives", "fed"),
    [
        ([*expand(), grows("g", over=LIST)], {"expand.prefill": [("g", "expand")]}),
        (
            [*expand(), grows("g", over=LIST), tool("x"),
             grows("h", other=Ref("x", "out"), over=LIST)],
            {"expand.prefill": [("g", "expand"), ("h", "expand")]},
        ),
        ([*expand(), grows("g", feeds="", over=LIST)], {}),
        ([*expand(), grows("g", over=Ref("expand", "items", (0, 2)))], {}),
        ([*expand(text=True), grows("g", over=Ref("expand", "text"))], {}),
        ([*expand(), grows("g", over=Ref(QUERY, "notes"))], {}),
        ([tool("x"), grows("g", over=Ref("x", "out"))], {}),
        (
            [*pieces(), joined(*M[:2]), grows("g", over=Ref("all", "out"))],
            {"m.prefill": [("g", "all")]},
        ),
        (
            [*pieces(3), joined(*M[:2], id="a"), joined(Ref("a", "out"), M[2]),
             grows("g", over=Ref("all", "out"))],
            {"m.prefill": [("g", "all")]},
        ),
        ([*pieces(), joined(*M[1::-1]), grows("g", over=Ref("all", "out"))], {}),
        ([*pieces(3), joined(*M[:2]), grows("g", over=Ref("all", "out"))], {}),
        ([*pieces(), joined(*M[:2], Ref(QUERY, "notes")), grows("g", over=Ref("all", "out"))], {}),
        ([*pieces(), joined(Ref(QUERY, "notes"), *M[:2]), grows("g", over=Ref("all", "out"))], {}),
        (
            [*pieces(), joined(*M[:2], mode=Aggregation.UNION), grows("g", over=Ref("all", "out"))],
            {},
        ),
        ([*pieces(), *expand(), joined(*M[:2], LIST), grows("g", over=Ref("all", "out"))], {}),
        ([*pieces(), grows("g", over=M[0])], {}),
    ],
)  # fmt: skip
def test_only_a_list_that_one_call_writes_whole_is_fed(
    primitives: list[Primitive], fed: dict[str, list[tuple[str, str]]]
) -> None:
    """Whether in one piece or in several that are joined in their order, however deep."""
    made = Plan(Graph("test", primitives, {}, ["question", "notes"]))
    made.graph.validate()
    found = {
        made.ids[head]: [(made.ids[one.primitive], made.ids[one.giver]) for one in those]
        for head, those in made.feeding.items()
    }
    assert found == fed
