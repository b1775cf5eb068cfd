"""Options that change while a queue decides: what takes effect, and what is refused and told."""

from __future__ import annotations

from typing import Any

import pytest

from teola.errors import InputError
from teola.policies.tuning import grid_of, tune
from teola.schedule.core import Core
from teola.schedule.events import Retuned, Tuned
from tests.planted import catches, edited
from tests.policies.unequal import call, queue, submit


def test_a_tuned_option_holds_for_the_next_call_and_not_for_those_before() -> None:
    made = queue([(0.001, 0.0), (0.0011, 0.0)], routing="workload_balanced")
    assert submit(made, call("a", 1000)) == 0
    assert submit(made, call("b", 1000, seq=1)) == 1
    core = Core({"e": made}, lambda run, i: 1)
    assert core.handle(Tuned("e", "routing", {"alpha": 1.0}), 0.0) == [
        Retuned("e", "routing", {"alpha": 1.0})
    ]
    assert [submit(made, call(f"q{k}", 1000, seq=2 + k)) for k in range(3)] == [0, 0, 0]
    assert made.works["b", 0].affinity == 1


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("routing", {"alpha": 1.5}, "alpha must be a number from 0"),
        ("routing", {"beta": 4.0}, "unknown tunable option 'beta'"),
        ("routing", {}, "no option is named"),
        ("batching", {"alpha": 0.5}, "no option that can change"),
        ("eviction", {"alpha": 0.5}, "no kind of policies 'eviction'"),
    ],
)
def test_what_is_refused_changes_nothing_and_is_told(
    kind: str, options: dict[str, Any], told: str
) -> None:
    made = queue([(0.001, 0.0)], routing="workload_balanced", routing_options={"alpha": 0.25})
    (found,) = made.tuned(Tuned("e", kind, options), 0.0)
    assert isinstance(found, Retuned)
    assert told in found.refused
    assert made.placing.routing.alpha == 0.25  # type: ignore[attr-defined]


@catches("silent", "what is refused is not told", edited(tune, "return str(error)", 'return ""'))
def test_a_value_that_cannot_be_is_told() -> None:
    made = queue([(0.001, 0.0)], routing="workload_balanced")
    assert "alpha must be" in tune(made.placing.routing, {"alpha": -1})


def test_a_grid_of_one_value_is_refused() -> None:
    class One:
        tunable = {"size": (3.0, 3.0)}

    with pytest.raises(InputError, match="declares 'size' as tunable with 1 value"):
        grid_of(One())


def test_patience_can_be_tuned_too() -> None:
    made = queue([(0.001, 0.0)], batching="critical_path")
    (found,) = made.tuned(Tuned("e", "batching", {"patience": 0.5}), 0.0)
    assert found == Retuned("e", "batching", {"patience": 0.5})
    assert made.line.policy.patience == 0.5  # type: ignore[attr-defined]


def test_each_option_of_several_is_looked_at() -> None:
    class Two:
        tunable = {"a": (1.0, 2.0), "b": (3.0,)}

        def tune(self, **options: float) -> None:
            raise AssertionError(f"{options} were not to be taken over")

    with pytest.raises(InputError, match="declares 'b' as tunable with 1 value"):
        grid_of(Two())
    Two.tunable = {"a": (1.0, 2.0)}
    assert "unknown tunable option 'c'" in tune(Two(), {"a": 1.0, "c": 2.0})
