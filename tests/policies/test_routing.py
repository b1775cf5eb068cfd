"""Routing policies: which instance is offered the next batch first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teola.errors import UnknownName
from teola.policies import routing
from teola.policies.routing import Load, Loads
from teola.policies.routing.base import Dispatched


def test_least_loaded_goes_by_load_then_by_instance() -> None:
    policy = routing.make("least_loaded")
    loads = Loads([Load(0, 0.5), Load(1, 0.2), Load(2, 0.2)])
    assert list(policy.order(loads, 0.0)) == [1, 2, 0]


def test_round_robin_takes_turns() -> None:
    policy = routing.make("round_robin")
    loads = Loads(Load(i, 0.0) for i in range(3))
    used = []
    for _ in range(5):
        first = next(iter(policy.order(loads, 0.0)))
        policy.observe(Dispatched(first, []), 0.0)
        used.append(first)
    assert used == [0, 1, 2, 0, 1]


def test_round_robin_passes_over_what_is_busy() -> None:
    policy = routing.make("round_robin")
    policy.observe(Dispatched(0, []), 0.0)
    assert list(policy.order(Loads([Load(0, 0.0), Load(2, 0.0)]), 0.0)) == [2, 0]


LOADS = st.sampled_from([0.0, 0.5, 1.0])


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | LOADS, st.none() | LOADS)))
def test_loads_are_in_order_whatever_changes(
    changes: list[tuple[int, float | None, float | None]],
) -> None:
    """By rank, where they have one, and else by load."""
    loads, model, ranks = Loads(), dict[int, float](), dict[int, float]()
    for instance, load, rank in changes:
        if load is None:
            loads.drop(instance)
            model.pop(instance, None)
        else:
            loads.put(instance, load, rank)
            model[instance] = load
            ranks[instance] = load if rank is None else rank
        assert len(loads) == len(model)
        assert all((i in loads) == (i in model) for i in range(6))
        ordered = sorted(model, key=lambda i: (ranks[i], i))
        assert list(loads) == [Load(i, model[i]) for i in ordered]
        assert list(loads.instances) == ordered
        assert loads.numbers == tuple(sorted(model))
        assert loads.idle == sum(load == 0.0 for load in model.values())
        for last in range(-1, 6):
            turns = sorted(model, key=lambda i: (i <= last, i))
            assert [load.instance for load in loads.after(last)] == turns


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UnknownName, match="routing policy 'random'"):
        routing.make("random")
