"""The simulated half: the same calls at the same times, on instances as the servers are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from statistics import fmean
from typing import Any, Final

from experiments.live_routing.live import Learned
from experiments.live_routing.pair import COUNT
from experiments.replay.calls import Recording
from experiments.replay.replay import Fleet, replay
from experiments.routing.sweep import AT_ONCE, CALIBRATING, sustained
from teola.cost import StepTime
from teola.engine import EngineSpec

OWN: Final = 1
"""Blocks of its cache that a vLLM never uses."""


def fleet(spec: EngineSpec, learned: Learned) -> Fleet:
    """The servers: what they declare, and what was learned of them."""
    assert spec.kv_blocks is not None
    return Fleet(
        instances=COUNT,
        step=learned.step,
        crowding=learned.crowding,
        kv_tokens=(spec.kv_blocks - OWN) * spec.block_tokens,
        sequences=spec.max_sequences,
        budget=spec.max_batch,
        block_tokens=spec.block_tokens,
    )


def rate(calls: Recording, fleet: Fleet, load: float) -> float:
    """Calls a second that are such a part of what the servers sustain."""
    return load * sustained(replay(calls.faster(AT_ONCE), replace(fleet, routing=CALIBRATING)))


def mean_of(learned: Sequence[Learned]) -> Learned:
    """Of what several runs have taught."""
    terms = zip(*(astuple(one.step) for one in learned), strict=True)
    return Learned(StepTime(*map(fmean, terms)), fmean(one.crowding for one in learned))


def predicted(calls: Recording, fleet: Fleet, policy: str) -> dict[str, Any]:
    """Its part of a row of the report."""
    found = replay(calls, replace(fleet, routing=policy))
    return {
        "simulated_hit_tokens": sum(call.hit for call in found.calls),
        "simulated_mean_s": round(found.mean("latency_s"), 4),
    }
