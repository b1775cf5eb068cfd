"""Runs with faults, 2,000 in all: whatever goes wrong, the promises of docs/reliability.md hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from teola.policies.work import Work
from teola.schedule.events import State
from teola.schedule.followers import Followers
from tests.parity.test_replay import plain
from tests.recording import replayed
from tests.under_faults.faults import Kind
from tests.under_faults.invariants import violations
from tests.under_faults.world import World, scenario

SEEDS, TOGETHER = 2000, 100
AT_EVERY_SAVE, AT_EVERY_TEST = 100, 400
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


REPLAYED = (6, 9, 12, 13, 21, 24, 31, 38, 48)
"""Seeds in which queries have equal work, or calls run twice."""


def test_logs_with_followers_budgets_deadlines_and_backups_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: Counter[str] = Counter()
    join = Followers.join

    def counted(followers: Followers, work: Work, leader: Work) -> None:
        seen["followers"] += 1
        join(followers, work, leader)

    for seed in REPLAYED:
        with monkeypatch.context() as patch:
            patch.setattr(Followers, "join", counted)
            world = World(scenario(seed)).run()
        log = world.core.log
        added = [given for what, given, _, _ in log.calls if what == "add"]
        hedging = world.core.queues["llm"].hedging
        seen["backups"] += 0 if hedging is None else hedging.made
        seen["budgets"] += sum(asker.budget is not None for _, asker, *_ in added)
        ends = [asked.ending.state for asked in world.asked.values() if asked.ending]
        seen["deadlines"] += ends.count(State.DEADLINE)
        queues = {name: world.queue(name) for name in world.core.queues}
        for call, again in zip(log.calls, replayed(log, queues), strict=True):
            assert plain(again) == plain(call[3]), (seed, call[:2])
    assert seen["followers"] >= 7
    assert seen["backups"] >= 4
    assert seen["budgets"] > len(REPLAYED)
    assert seen["deadlines"] > 0


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
