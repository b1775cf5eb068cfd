"""All shipped passes keep every answer, and a pass that breaks a promise is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from teola.graph import Graph, Primitive
from teola.graph.ops import SearchParams
from teola.passes import pipeline
from teola.passes.rewrite import Pass
from teola.profile import Profile
from teola.testing import ContractBroken, check_pass

TEMPLATES = 4


@pytest.mark.parametrize("step", pipeline(), ids=lambda step: step.name)
def test_shipped_passes_keep_their_contract(step: Any) -> None:
    assert check_pass(step.thing, templates=16) >= 1


# --- passes that break one promise ----------------------------------------------------------


def remade(graph: Graph, primitives: Iterable[Primitive]) -> Graph:
    return Graph(graph.name, primitives, graph.outputs, graph.inputs)


def asks_for_one(p: Primitive) -> Primitive:
    if not isinstance(p.params, SearchParams):
        return p
    return replace(p, params=replace(p.params, top_k=1))


def without_one(graph: Graph, profile: Profile) -> tuple[Graph, list[Any]]:
    """Drops the last primitive."""
    return remade(graph, graph.primitives[:-1]), []


def fewer_hits(graph: Graph, profile: Profile) -> tuple[Graph, list[Any]]:
    """Asks searches for one hit only."""
    return remade(graph, map(asks_for_one, graph.primitives)), []


def raises(graph: Graph, profile: Profile) -> tuple[Graph, list[Any]]:
    raise KeyError("oops")


def idle(graph: Graph, profile: Profile) -> tuple[Graph, list[Any]]:
    return graph, []


def moody() -> Pass:
    """Decides otherwise each time."""
    calls = count()

    def step(graph: Graph, profile: Profile) -> tuple[Graph, list[Any]]:
        return (graph if next(calls) % 2 else fewer_hits(graph, profile)[0]), []

    return step


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (without_one, "pass 'without_one', on "),
        (fewer_hits, "pass 'fewer_hits', on "),
        (raises, "pass 'raises', on .*KeyError"),
        (idle, "pass 'idle' changed no graph of 4 templates"),
        (moody(), "decides otherwise the second time"),
    ],
)
def test_a_pass_that_breaks_a_promise_is_told(broken: Pass, told: str) -> None:
    with pytest.raises(ContractBroken, match=told):
        check_pass(broken, templates=TEMPLATES)
