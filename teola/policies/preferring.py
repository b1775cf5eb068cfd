"""`prefer` among the options of a routing policy: the cheaper instances first, the others where
those refuse or would let a call wait.

It is an option of every policy that leaves calls to whoever has room, so it is read here and not by
the policy. What it does is decided in `teola/schedule/preference.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from teola.errors import InputError, UnknownName
from teola.plain_number import is_number
from teola.policies.routing.base import RoutingPolicy
from teola.price import Price

KEY: Final = "prefer"
SECONDS: Final = "prefer_s"
CHEAPER: Final = "cheaper"
WAITS_S: Final = 1.0
"""How long a call may wait for a cheaper instance, where nothing else is said."""
PROMPT: Final = 3.0
"""Tokens of prompts for each of an answer, where one price is to be compared with another."""


class Prefer(NamedTuple):
    """Cheaper instances come first. most_s: how long a call may wait for one of them."""

    most_s: float


def preferring(options: Mapping[str, Any]) -> tuple[Prefer | None, dict[str, Any]]:
    """What options of a routing policy say of cheaper instances (None: nothing), and the others,
    which are the policy's own. Raises UnknownName, InputError."""
    rest = {name: value for name, value in options.items() if name not in (KEY, SECONDS)}
    wanted, most_s = options.get(KEY), options.get(SECONDS, WAITS_S)
    if wanted is None:
        if SECONDS in options:
            raise InputError(f'{SECONDS} says nothing without {KEY} = "{CHEAPER}": give both')
        return None, rest
    if wanted != CHEAPER:
        raise UnknownName(KEY, str(wanted), (CHEAPER,), "routing_options")
    if not (is_number(most_s) and 0 <= most_s < inf):
        raise InputError(f"{SECONDS} must be a number of seconds from 0 on, got {most_s!r}")
    return Prefer(float(most_s)), rest


def check_late(prefer: Prefer | None, name: str, policy: RoutingPolicy, *, whole: bool) -> None:
    """Raises InputError where a policy decides itself where a call goes before one has room."""
    binds = type(policy).place is not RoutingPolicy.place
    if prefer is not None and (whole or binds):
        raise InputError(
            f"routing policy {name!r} chooses an instance by itself when a call is queued, so "
            f"{KEY} would change nothing: take least_loaded or round_robin, or leave {KEY} out"
        )


def ranks(prices: Sequence[Price | None], where: str) -> list[int]:
    """For each instance, how many lower prices there are. Prices are compared for a call with
    `PROMPT` tokens of prompt for each of the answer. Raises InputError where one is not known."""
    costs: list[float] = []
    for i, price in enumerate(prices):
        if price is None:
            raise InputError(
                f'{where}: {KEY} = "{CHEAPER}" needs the price of each instance, and that of '
                f"entry {i} is not known: give the entry `price = {{prompt = ..., answer = ...}}`, "
                "or name its `model` and give that a price in `prices`"
            )
        costs.append(price.cost(PROMPT, 1))
    distinct = sorted(set(costs))
    return [distinct.index(cost) for cost in costs]
