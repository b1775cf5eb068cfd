"""Options of all policies: what holds where none is given, the last values that can be, and the
first ones that cannot, with what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from math import inf, nan, nextafter
from typing import Any, Final, NamedTuple

import pytest

from teola.errors import InputError, TeolaError
from teola.kv.policies import REGISTRY as EVICTION
from teola.policies.batching import REGISTRY as BATCHING
from teola.policies.routing import REGISTRY as ROUTING
from teola.registry import Factories

TINY: Final = nextafter(0.0, 1.0)
REGISTRIES: Final[Mapping[str, Factories[Any]]] = {
    "batching": BATCHING,
    "routing": ROUTING,
    "eviction": EVICTION,
}


class Option(NamedTuple):
    """default: what holds without it. may, not_: values at the edge. needed: what is said to be
    needed. others: what has to be given besides, for the edge to be one."""

    default: Any
    may: tuple[Any, ...]
    not_: tuple[Any, ...]
    needed: str
    others: Mapping[str, Any] = {}


def above_0(default: float | None, needed: str, *not_: Any, **others: Any) -> Option:
    return Option(default, (TINY, 1, 1e9), (0, 0.0, -TINY, nan, "1", True, *not_), needed, others)


def from_0(default: float, needed: str, *not_: Any) -> Option:
    return Option(default, (0, TINY, 1e9), (-TINY, nan, "1", True, False, *not_), needed)


def switch(default: bool, needed: str = "true or false") -> Option:
    return Option(default, (True, False), (None, 0, 1, "true", []), needed)


TAU = Option(7.0, (nextafter(1, 2), 10), (1, 0, -3.0, inf, nan, "7", True), "a number above 1, in")
OPTIONS: Final[dict[str, dict[str, Option]]] = {
    "batching fifo": {"max_wait_s": from_0(0.0, "a number of seconds from 0 on", inf)},
    "batching critical_path": {"patience": from_0(1.0, "a number from 0 on", inf)},
    "batching prefix_groups": {
        "groups": Option(
            10, (1, 2, 1000), (0, -1, 1001, 2.0, True, "10"), "a whole number from 1 to 1000"
        )
    },
    "batching urgency": {"drop_hopeless": switch(False), "skip_unfit": switch(False)},
    "batching paced": {"tau": TAU},
    "routing paced": {"tau": TAU},
    "routing graph_aware": {
        **{name: switch(True) for name in ("gate", "hits", "home", "siblings", "ahead")},
        "held_s": Option(
            300.0, (0, 300), (-TINY, nextafter(300, inf), inf, nan, "5", True), "seconds from 0 to"
        ),
        "ageing": from_0(0.05, "a number from 0 on"),
    },
    "routing workload_balanced": {
        "alpha": Option(
            0.0, (0, 1, 0.5), (-TINY, nextafter(1, 2), nan, "0", True), "a number from 0"
        ),
        "beta": above_0(None, "a number above 0, or None", inf),
        "count_running": switch(True),
        "score": Option("paper", ("paper", "ratio"), ("speed", ""), "'paper' or 'ratio'"),
    },
    "routing e2": {
        "window_s": above_0(180.0, "a number of seconds above 0", inf, None),
        "balance": Option(
            1.5, (nextafter(1, 2), 9), (1, 0.5, inf, nan, "2", True), "a number above 1"
        ),
        "min_routed": above_0(None, "a number of calls above 0, or none", inf),
        "decode_heavy": above_0(0.7, "a number above 0", inf, None),
        "key_rule": Option("longest", ("longest", "majority"), ("first",), "longest"),
        "decode_s": above_0(None, "a number of seconds above 0, or none", inf),
        "shifts": switch(True),
        "prefill_decode": switch(True),
    },
    "routing dualmap": {"objective_s": above_0(2.0, "a number of seconds above 0")},
    "eviction gdfs": {
        "dearer": Option(0.0, (0, 1, 1e9), (-TINY, 2e9, inf, nan, "1", True), "from 0 on, got")
    },
    "eviction workload_aware": {
        "life_s": Option(
            5.0, (TINY, 1, inf, "fitted"), (0, -TINY, nan, "5", True, None), "a number above 0"
        ),
        "window_s": above_0(3600.0, "a number above 0, got", None, refit_s=TINY),
        "refit_s": Option(
            60.0, (TINY, 1, 3600), (0, nan, "1", True), "a number above 0", {"window_s": 3600}
        ),
        "min_samples": Option(
            30, (1, 2), (0, -1, 1.0, True, "3", None), "a whole number from 1 on, got"
        ),
        "same_s": from_0(0.3, "a number from 0 on, got"),
    },
    "eviction next_use": {
        "life_s": Option(
            5.0, (TINY, 1e9), (0, -TINY, nextafter(1e9, inf), inf, nan, "5", True), "above 0, got"
        ),
        "window_s": above_0(3600.0, "a number above 0, got", None),
        "refit_s": above_0(60.0, "a number above 0, got", None),
        "min_samples": Option(
            30, (1, 2), (0, -1, 1.0, True, "3", None), "a whole number from 1 on, got"
        ),
    },
}
EACH: Final = [(where, name) for where, options in OPTIONS.items() for name in options]


def made(where: str, **options: Any) -> Any:
    kind, _, policy = where.partition(" ")
    return REGISTRIES[kind].make(policy, options)


@pytest.mark.parametrize(("where", "name"), EACH)
def test_an_option_goes_exactly_as_far_as_it_says(where: str, name: str) -> None:
    option, policy = OPTIONS[where][name], where.split()[1]
    for value in option.may:
        made(where, **{**option.others, name: value})
    for value in option.not_:
        with pytest.raises(TeolaError) as error:
            made(where, **{**option.others, name: value})
        said = str(error.value)
        assert name in said, value
        assert option.needed in said, value
        assert f"'{policy}'" in said, value
        assert repr(value) in said, value


def test_these_are_all_options_and_what_holds_without_them() -> None:
    found = {
        f"{kind} {policy}": {
            option.name: option.default
            for option in signature(registry.find(policy)).parameters.values()
        }
        for kind, registry in REGISTRIES.items()
        for policy in registry.built_in
    }
    fair = found.pop("batching fair")
    assert fair == {
        "inner": "critical_path",
        "inner_options": None,
        "by": "both",
        "weights": None,
    }
    expected = {
        where: {name: option.default for name, option in options.items()}
        for where, options in OPTIONS.items()
    }
    assert {where: options for where, options in found.items() if options} == expected


def test_what_is_summed_up_more_seldom_than_it_is_kept_is_refused() -> None:
    made("eviction workload_aware", refit_s=5.0, window_s=5.0)
    with pytest.raises(InputError, match="refit_s must not be more than window_s"):
        made("eviction workload_aware", refit_s=nextafter(5.0, inf), window_s=5.0)
