"""What the core knows of the engines' times, apart from the times that they take.

Engines take the times of a `Testbed`. The core plans and schedules by a profile of its own: what a
user would have given it, right or wrong, or what it finds out by itself.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

from experiments.common.testbed import Testbed
from teola.profile import EngineProfile, Profile, StepTime, paper


class Knows(Enum):
    """Where the core's profile is from. All but LEARNED are given, and nothing is learned then."""

    LEARNED = "learned"
    BORROWED = "borrowed"
    DOUBLE = "double"
    HALF = "half"
    EXACT = "exact"


LENDER: Final = {"paper-7b": "13b", "paper-13b": "30b", "paper-30b": "7b"}
"""Whose times a testbed borrows: those of another LLM."""
FACTORS: Final = {Knows.DOUBLE: 2.0, Knows.HALF: 0.5}


def known(knows: Knows, testbed: Testbed) -> Profile:
    """The profile that the core begins with."""
    if knows is Knows.EXACT:
        return testbed.profile
    if knows is Knows.BORROWED:
        return paper(LENDER[testbed.profile.name])
    if knows is Knows.LEARNED:
        return testbed.profile.untimed()
    return scaled(testbed.profile, FACTORS[knows])


def scaled(profile: Profile, factor: float) -> Profile:
    """The profile with every time multiplied; limits stay."""
    engines = {name: _scaled(engine, factor) for name, engine in profile.engines.items()}
    return replace(profile, engines=engines, dispatch_s=profile.dispatch_s * factor)


def _scaled(engine: EngineProfile, factor: float) -> EngineProfile:
    step = StepTime(*(getattr(engine.step, name) * factor for name in StepTime.__slots__))
    costs = {
        op: replace(
            cost,
            base_s=cost.base_s * factor,
            per_item_s=cost.per_item_s * factor,
            per_token_s=cost.per_token_s * factor,
        )
        for op, cost in engine.costs.items()
    }
    return replace(engine, step=step, costs=costs)
