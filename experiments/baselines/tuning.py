"""TO's maximum batch sizes, tuned before anything runs: double until throughput gains under 5 %."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from teola.graph.ops import PREFILLS
from teola.profile import EngineProfile, Profile

LIMIT: Final = 4096
"""Largest batch that the doubling may reach."""


def tuned(profile: Profile) -> Profile:
    """The profile with every engine's batch at its tuned size.

    An LLM's token budget is given by the testbed, and an engine of which no time is known keeps the
    size it has.
    """
    engines = {name: _tuned(engine) for name, engine in profile.engines.items()}
    return replace(profile, engines=engines)


def _tuned(engine: EngineProfile) -> EngineProfile:
    if not engine.costs or any(op in PREFILLS for op in engine.costs):
        return engine
    if engine.max_batch == 1:
        return engine
    size = max(cost.max_efficient(LIMIT) for cost in engine.costs.values())
    return replace(engine, max_batch=size)
