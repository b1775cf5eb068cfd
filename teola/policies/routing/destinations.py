"""What routers compare: the instances that a call may go to, and what it would meet there.

Routers decide once, when a call comes: one that waits for its instance stays, though another has
nothing to do. What they know of prefixes is the same for all: what an instance keeps, and what it
is to compute for calls that are on their way (`EngineView.expected`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final, NamedTuple

from teola.policies.reason import Because, Reason
from teola.policies.routing.base import ANY, EngineView, InstanceView, found_tokens
from teola.policies.work import Work
from teola.profile import EngineProfile, StepTime

GUESSED: Final = StepTime(base_s=0.0067, per_context_s=4.6e-8, per_token_s=2.3e-5, per_pair_s=1e-9)
"""Step times for an instance whose own are not known: those of a model of 8B on an H100. Routers
compare times of instances that are then all alike, so that only their proportions matter."""
UNKNOWN: Final = StepTime()
TYPICAL: Final = 8000
"""Context of a computed token, where it is not known."""


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
    """The instance where a call has to stay: its home, or the instance that it waits for; ANY if it
    may go anywhere."""
    at = work.home if work.home >= 0 else work.affinity
    return at if at >= 0 and at != work.avoid and view.instances(now)[at].usable else ANY


def destinations(view: EngineView, work: Work, now: float) -> list[Destination]:
    """The instances that a call may go to, in order of their numbers."""
    expected = view.expected(work.keys, now)
    candidates: list[Destination] = []
    for i, seen in enumerate(view.instances(now)):
        if seen.usable and i != work.avoid:
            hit_tokens = found_tokens(work, expected.get(i, 0), view.limits[i].block_tokens)
            candidates.append(Destination(i, seen, hit_tokens, work.tokens - hit_tokens))
    return candidates


def least(
    view: EngineView,
    work: Work,
    now: float,
    cost: Callable[[Destination], float | tuple[float, ...]],
) -> int:
    """The instance where a call has to stay, else the destination of the least cost. Of equal costs
    the lowest number wins. ANY if there is no destination."""
    at = bound(view, work, now)
    if at >= 0:
        return at
    cheapest = min(destinations(view, work, now), key=cost, default=None)
    return ANY if cheapest is None else cheapest.instance


def compared(because: Because, at: int, unit: str, figures: Mapping[int, float]) -> Reason:
    """The reason that a call goes to instance `at`: its figure, and the least figure of the
    others."""
    others = [i for i in figures if i != at]
    other = min(others, key=lambda i: (figures[i], i), default=ANY)
    return Reason(because, unit, figures.get(at, 0.0), figures.get(other), other)


def times_of(profile: EngineProfile) -> StepTime:
    """The step times of an instance: its profile's, or typical ones where it has none."""
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


def memory_wait_s(
    profile: EngineProfile,
    kv_tokens: int,
    calls: int,
    context: int,
    tokens: int,
    answer: float,
    written_s: float = 0.0,
) -> float:
    """Seconds until a call of so many tokens has room in a KV memory of `kv_tokens` beside `calls`
    others, whose prompts have `context` tokens. answer: tokens of a mean answer. written_s: for how
    long these calls have been writing, all together; those that run are the long ones.

        each   = max(answer, written_s / seconds of a step / calls), tokens of an answer there
        held   = context + calls x each, no more than there is
        ends   = ceil((held + tokens - kv_tokens) / (held / calls)), calls that have to end first
        ends x each / calls x seconds of a step
    """
    step = times_of(profile)
    step_s = step.seconds(calls, context)
    if not calls or step_s <= 0.0:
        return 0.0
    each = max(answer, written_s / step_s / calls)
    wanted = context + calls * each
    excess, held = wanted + tokens - kv_tokens, min(float(kv_tokens), wanted)
    if excess <= 0:
        return 0.0
    return ceil(excess * calls / held) * each / calls * step.seconds(calls, held)
