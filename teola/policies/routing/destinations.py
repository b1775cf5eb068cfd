"""What routers compare: the instances that a call may go to, and what it would meet there.

Routers decide once, when a call comes: one that waits for its instance stays, though another has
nothing to do. What they know of prefixes is the same for all: what an instance keeps, and what it
is to compute for calls that are on their way (`EngineView.expected`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from teola.policies.reason import Because, Reason
from teola.policies.routing.base import ANY, EngineView, InstanceView, found_tokens
from teola.policies.work import Work
from teola.profile import EngineProfile, StepTime

GUESSED: Final = StepTime(base_s=0.0067, per_context_s=4.6e-8, per_token_s=2.3e-5, per_pair_s=1e-9)
"""Of an instance whose times nobody knows: those of a model of 8B on an H100. Routers compare times
of instances that are then all alike, so that only their proportions matter."""
UNKNOWN: Final = StepTime()
TYPICAL: Final = 8000
"""Tokens before one that is computed, where nobody knows how many."""


class Destination(NamedTuple):
    """An instance that a call may go to. found: tokens of its prompt that it finds there; missing:
    those that it computes."""

    instance: int
    seen: InstanceView
    found: int
    missing: int

    @property
    def calls(self) -> int:
        """Calls that run on the instance or are queued for it."""
        return self.seen.calls


def bound(view: EngineView, work: Work, now: float) -> int:
    """Where a call is to stay: its home, or the instance that it waits for; ANY if it may go
    anywhere."""
    at = work.home if work.home >= 0 else work.affinity
    return at if at >= 0 and at != work.avoid and view.instances(now)[at].usable else ANY


def destinations(view: EngineView, work: Work, now: float) -> list[Destination]:
    """The instances that a call may go to, by number."""
    expected = view.expected(work.keys, now)
    found: list[Destination] = []
    for i, seen in enumerate(view.instances(now)):
        if seen.usable and i != work.avoid:
            there = found_tokens(work, expected.get(i, 0), view.limits[i].block_tokens)
            found.append(Destination(i, seen, there, work.tokens - there))
    return found


def least(
    view: EngineView,
    work: Work,
    now: float,
    cost: Callable[[Destination], float | tuple[float, ...]],
) -> int:
    """Where a call stays, else the destination of the least cost, the first of those by number; ANY
    if there is none."""
    at = bound(view, work, now)
    if at >= 0:
        return at
    one = min(destinations(view, work, now), key=cost, default=None)
    return ANY if one is None else one.instance


def compared(because: Because, at: int, unit: str, figures: Mapping[int, float]) -> Reason:
    """Why a call goes to instance `at`: its figure, and the least of the others."""
    others = [i for i in figures if i != at]
    other = min(others, key=lambda i: (figures[i], i), default=ANY)
    return Reason(because, unit, figures.get(at, 0.0), figures.get(other), other)


def times_of(profile: EngineProfile) -> StepTime:
    """How long its steps take, as far as somebody knows."""
    step = profile.step
    return step if step.per_token_s or step != UNKNOWN else GUESSED


def prefill_s(profile: EngineProfile, missing: float, total: float) -> float:
    """Seconds that the last `missing` tokens of a prompt of `total` take, its steps filled by
    others' tokens."""
    step = times_of(profile)
    pairs = missing * (2 * total - missing + 1) / 2
    steps = missing / profile.max_batch * step.base_s
    return steps + step.per_token_s * missing + step.per_pair_s * pairs


def wait_s(profile: EngineProfile, pending: float, before: float = TYPICAL) -> float:
    """Seconds until so many tokens of prompts are computed. before: tokens before each of them, on
    average."""
    step = times_of(profile)
    each = step.base_s / profile.max_batch + step.per_token_s + before * step.per_pair_s
    return pending * each
