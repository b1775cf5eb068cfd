"""Whatever passes run, in whatever order: the same answers, and scheduling keeps its promises."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from teola.engine import Engine
from teola.graph import Graph
from teola.passes import PIPELINE, optimise
from teola.policies.batching import BATCHING
from teola.profile import Profile, StepTime, default
from teola.runtime.live.query import Ending
from teola.runtime.python_engine import PythonEngine
from teola.schedule.plan import Parts, Plan
from teola.testing.hash_engines import HashEmbedder, HashModel, HashReranker, MemoryStore
from teola.testing.templates import RandomTemplate
from teola.workflow.build import Builder
from teola.workflow.kinds import LISTS
from tests.properties.drawn import grown
from tests.recording import Bench, Log, check

passes = st.lists(st.sampled_from(list(PIPELINE)), unique=True, max_size=len(PIPELINE))
"""Any subset of the passes, in any order."""


def engines(models: int = 1) -> dict[str, Engine | list[Engine]]:
    """Fresh engines that fill their batches quickly, so that everything worth cutting is cut."""
    python = PythonEngine()
    python.spec = replace(python.spec, max_batch=3)
    return {
        "embedding": HashEmbedder(),
        "vectorstore": MemoryStore(),
        "rerank": HashReranker(),
        "llm": [HashModel() for _ in range(models)],
        "python": python,
    }


def profile(block_tokens: int = 4, *, free: bool = False) -> Profile:
    """What the engines declare; of longer KV blocks, fewer pieces of a prompt are worth it. free:
    nothing takes any time, so whatever can be cut is."""
    specs = {n: e[0].spec if isinstance(e, list) else e.spec for n, e in engines().items()}
    specs["llm"] = replace(specs["llm"], block_tokens=block_tokens)
    found = default(specs.values())
    if not free:
        return found
    timeless = {n: replace(e, costs={}, step=StepTime()) for n, e in found.engines.items()}
    return replace(found, engines=timeless, dispatch_s=0.0)


def parts_by(names: list[str] | None, known: Profile) -> Parts:
    """Plans of parts, by these passes."""

    def planned(body: Builder, sizes: Mapping[str, int]) -> Plan:
        lists = {name: size for name, size in sizes.items() if body.inputs[name] in LISTS}
        before = body.build(body.configure({}), lists)
        return Plan(optimise(before, known, names, debug=True).e_graph, parts=planned)

    return planned


async def answer(
    graph: Graph,
    inputs: dict[str, Any],
    parts: Parts | None = None,
    *,
    batching: str = "topology",
    models: int = 1,
) -> tuple[Ending, Log]:
    """The answer of a graph on fresh engines; nothing may be left anywhere."""
    async with Bench(engines(models), batching=batching) as bench:
        ending = await bench.run(Plan(graph, parts=parts), inputs, deadline_s=20)
        await bench.settle()
        bench.assert_idle()
        assert bench.left == []
        return ending, bench.core.log


@settings(max_examples=120)
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
    known = profile(block_tokens, free=free)
    told, log = asyncio.run(answer(before, made.inputs, parts_by([], known)))
    check(log)
    order_of_effects_is_kept(made)
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
        order_of_effects_is_kept(made)


def order_of_effects_is_kept(made: RandomTemplate) -> None:
    """Each effectful function ran at most once, after those before it in the template."""
    ran = list(made.effects)
    made.effects.clear()
    assert len(ran) == len(set(ran))
    for name, before in made.upstream.items():
        if name in ran:
            late = [b for b in before if b in ran and ran.index(b) > ran.index(name)]
            assert not late, f"{late} ran after {name}"
