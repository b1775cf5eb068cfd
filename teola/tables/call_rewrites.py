"""What is done to the calls of a plan, whatever query they stand in, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from teola.tables.plan_steps import AskCall, PlanRewrite

_ASKED: Final[tuple[tuple[str, Callable[[AskCall], bool], str], ...]] = (
    (
        "guards",
        lambda ask: ask.guard is not None,
        "the expression around it decides without it for the other rows",
    ),
    (
        "dedup",
        lambda ask: bool(ask.fields) and (ask.call.temperature == 0 or ask.call.shared),
        "rows with the same values are one question",
    ),
    (
        "dedup",
        lambda ask: bool(ask.call.fold),
        "on request texts that differ by case, space or punctuation are one question, see fold",
    ),
    (
        "warm",
        lambda ask: bool(ask.fields),
        "of 64 rows or more one goes first, so that the others find the instruction computed",
    ),
    (
        "columns",
        lambda ask: len(ask.fields) > 1 and not ask.call.fixed_order,
        "fields go in the order by which prompts share most; each stage says which",
    ),
    (
        "contexts",
        lambda ask: bool(ask.call.contexts) and not ask.call.fixed_order,
        "contexts that many rows share go first, and rows by them",
    ),
    (
        "sort",
        lambda ask: bool(ask.fields),
        "prompts that follow each other begin alike, and servers keep beginnings",
    ),
)
"""Each rule, with a test whether it touches a call, and its reason."""
SHOWN: Final = 40


def rewrites_of_calls(asks: Sequence[AskCall], passes: frozenset[str]) -> list[PlanRewrite]:
    """One entry for each rule that touches a call. asks: of the plan. passes: that may be made."""
    found = []
    for rule, touches, reason in _ASKED:
        prompts = dict.fromkeys(
            ask.call.prompt[:SHOWN] for ask in asks if rule in passes and touches(ask)
        )
        if prompts:
            found.append(PlanRewrite(rule, ", ".join(map(repr, prompts)), reason))
    return found
