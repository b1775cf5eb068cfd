"""Whatever passes run, in whatever order: the same answers, and scheduling keeps its promises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teola.graph import Graph
from teola.passes import PIPELINE, optimise
from teola.policies.batching import BATCHING
from teola.runtime.live.query import Ending
from teola.schedule.plan import Plan, PlanPart
from teola.testing.hash_engines import hash_engines
from teola.testing.pass_contract import parts_by, profile_of
from teola.testing.templates import RandomTemplate
from tests.properties.drawn import grown
from tests.recording import Bench, Log, check

passes = st.lists(st.sampled_from(list(PIPELINE)), unique=True, max_size=len(PIPELINE))
"""Any subset of the passes, in any order."""


async def answer(
    graph: Graph,
    inputs: dict[str, Any],
    parts: PlanPart | None = None,
    *,
    batching: str = "topology",
    models: int = 1,
) -> tuple[Ending, Log]:
    """The answer of a graph on fresh engines; nothing may be left anywhere."""
    async with Bench(hash_engines(models), batching=batching) as bench:
        ending = await bench.run(Plan(graph, parts=parts), inputs, deadline_s=20)
        await bench.settle()
        bench.assert_idle()
        assert bench.left == []
        return ending, bench.core.log


@pytest.mark.property
@settings(max_examples=60)
@given(
    made=grown(),
    orders=st.lists(passes, min_size=1, max_size=2),
    batching=st.sampled_from(sorted(BATCHING)),
    models=st.integers(1, 2),
    block_tokens=st.sampled_from([4, 40]),
    free=st.booleans(),
)
def test_any_passes_give_the_same_answers(
    made: RandomTemplate,
    orders: list[list[str]],
    batching: str,
    models: int,
    block_tokens: int,
    free: bool,
) -> None:
    before = made.builder.build(made.builder.configure({}), made.sizes)
    before.validate()
    known = profile_of(block_tokens, free=free)
    told, log = asyncio.run(answer(before, made.inputs, parts_by([], known)))
    check(log)
    assert not made.wrong_effects()
    for names in [list(PIPELINE), *orders]:
        after = optimise(before, known, names, debug=True).e_graph
        parts = parts_by(names, known)
        ending, log = asyncio.run(
            answer(after, made.inputs, parts, batching=batching, models=models)
        )
        assert ending.error is None or told.error is not None, ending.error
        assert ending.state is told.state
        assert ending.outputs == told.outputs
        check(log)
        assert not made.wrong_effects()
