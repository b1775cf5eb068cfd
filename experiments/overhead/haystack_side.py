"""Haystack: a chain of trivial components with a native `run_async`, so no thread is involved."""

from __future__ import annotations

import os

# Read when haystack is imported: a benchmark reports to nobody.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"

from haystack import Pipeline, component

from experiments.overhead.case import NODES, Case, Footprint, per_node_us, timed


@component
class AddOne:
    """Adds one; the synchronous twin is what Haystack demands beside `run_async`."""

    @component.output_types(value=int)
    def run(self, value: int) -> dict[str, int]:
        return {"value": value + 1}

    @component.output_types(value=int)
    async def run_async(self, value: int) -> dict[str, int]:
        return {"value": value + 1}


def prepare() -> list[Case | Footprint]:
    pipeline = _chain()
    last = f"n{NODES - 1}"
    run = timed(
        lambda: pipeline.run_async({"n0": {"value": 0}}),
        lambda outputs: outputs[last]["value"] == NODES,
    )
    return [Case("haystack_chain_us", run, per_node_us)]


def _chain() -> Pipeline:
    pipeline = Pipeline()
    for i in range(NODES):
        pipeline.add_component(f"n{i}", AddOne())
    for i in range(NODES - 1):
        pipeline.connect(f"n{i}.value", f"n{i + 1}.value")
    return pipeline
