"""Runs with faults, 2,000 in all: whatever goes wrong, the promises of docs/reliability.md hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from teola.schedule.events import State
from tests.under_faults.faults import Kind
from tests.under_faults.invariants import violations
from tests.under_faults.world import World, scenario

SEEDS, TOGETHER = 2000, 100
AT_EVERY_SAVE, AT_EVERY_TEST = 100, 500
"""Of them in `make check` and in `make test`; the rest is for `make nightly`. Every planted bug is
found within 400 (`test_planted_bugs.py`)."""


def _tier(first: int) -> list[pytest.MarkDecorator]:
    if first >= AT_EVERY_TEST:
        return [pytest.mark.nightly]
    return [pytest.mark.slow] if first >= AT_EVERY_SAVE else []


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=_tier(first)) for first in range(0, SEEDS, TOGETHER)],
)
def test_the_promises_hold(first: int) -> None:
    broken = {}
    for seed in range(first, first + TOGETHER):
        found = violations(World(scenario(seed)).run())
        if found:
            broken[seed] = found[0]
    replay = f"replay with: python -m tests.under_faults {' '.join(map(str, broken))}"
    assert not broken, f"{broken}; {replay}"


def test_every_fault_and_every_end_comes_up() -> None:
    """The seeds would prove nothing if nothing happened in them."""
    kinds = Counter(fault.kind for seed in range(SEEDS) for fault in scenario(seed).faults)
    assert set(kinds) == set(Kind)
    assert min(kinds.values()) > SEEDS / 20, kinds
    states: Counter[State | None] = Counter()
    deaths = retried = 0
    for seed in range(60):
        world = World(scenario(seed)).run()
        states.update(a.ending.state if a.ending else None for a in world.asked.values())
        deaths += sum(far.lives - 1 for far in world.far.values())
        retried += sum(map(len, world.failures.values()))
    assert set(states) >= {State.OK, State.FAILED, State.DEADLINE, None}, states
    assert deaths > 15
    assert retried > 15


def test_a_run_is_a_function_of_its_seed() -> None:
    """In processes that order sets and dictionaries of strings differently."""
    told = []
    for order in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": order}
        command = [sys.executable, "-m", "tests.under_faults", "6", "77", "137", "140", "378"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        told.append(done.stdout)
    assert told[0] == told[1]
    assert told[0].count("digest") == 5
    assert len(set(told[0].split())) > 50
