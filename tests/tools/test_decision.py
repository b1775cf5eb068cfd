"""Decisions: which calls may run together, against chains that are followed one by one."""

from __future__ import annotations

from random import Random

import pytest

from teola.tools.decision import Decision, PlannedCall


@pytest.mark.parametrize("seed", range(15))
def test_a_call_runs_as_soon_as_all_that_it_reads_have_ended(seed: int) -> None:
    """Numbers of calls of earlier decisions, which have ended, hold up nobody."""
    chance = Random(seed)
    numbers = chance.sample(range(10, 40), 8)
    calls = list[PlannedCall]()
    for at, number in enumerate(numbers):
        before = [*numbers[:at], 1, 2, 3]
        reads = chance.sample(before, min(len(before), chance.randint(0, 3)))
        calls.append(PlannedCall(number, "f", {}, tuple(reads)))
    by_number = {call.number: call for call in calls}

    def chain(number: int) -> int:
        """How many calls of this decision have to end one after the other before it."""
        reads = [read for read in by_number[number].reads if read in by_number]
        return max((chain(read) + 1 for read in reads), default=0)

    stages = Decision("", tuple(calls)).stages()
    assert stages == [
        [call for call in calls if chain(call.number) == stage]
        for stage in range(1 + max(map(chain, numbers)))
    ]
    assert Decision("", ()).stages() == []
