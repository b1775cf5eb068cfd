"""Routing policies: which instance is offered the next batch first."""

from __future__ import annotations

import pytest

from teola.errors import UnknownName
from teola.policies import routing
from teola.policies.routing import Load


def test_least_loaded_goes_by_load_then_by_instance() -> None:
    policy = routing.make("least_loaded")
    loads = [Load(0, 0.5), Load(1, 0.2), Load(2, 0.2)]
    assert list(policy.order(loads, 0.0)) == [1, 2, 0]


def test_round_robin_takes_turns() -> None:
    policy = routing.make("round_robin")
    loads = [Load(i, 0.0) for i in range(3)]
    used = []
    for _ in range(5):
        first = policy.order(loads, 0.0)[0]
        policy.dispatched(first, 0.0)
        used.append(first)
    assert used == [0, 1, 2, 0, 1]


def test_round_robin_passes_over_what_is_busy() -> None:
    policy = routing.make("round_robin")
    policy.dispatched(0, 0.0)
    assert list(policy.order([Load(0, 0.0), Load(2, 0.0)], 0.0)) == [2, 0]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UnknownName, match="routing policy 'random'"):
        routing.make("random")
