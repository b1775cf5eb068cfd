"""What a batching policy is: a deterministic state machine that decides what shares a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

from teola.policies.routing.base import EngineView
from teola.policies.work import Slice, Slots, Work


class BatchingPolicy(Protocol):
    """No I/O, no clock, no randomness; ties are broken by (arrival, seq).

    A policy's class may declare `eager = True` (or a property), if it never holds back the only
    work that is queued for an engine whose batches do not disturb each other, and keeps nothing of
    it: it is not asked about such a work then.

    It may have a method `priority(work, now) -> int`, asked when an LLM call is sent: how urgent
    the server's own queue is to take it; more is sooner. It has to be the order in which `choose`
    would have sent them.

    If its class declares `wants_keys = True`, LLM calls come with the keys of their prompts'
    blocks, and `attach(view)` is called once, before anything else: the view
    (teola.policies.routing) knows which instance keeps which.
    """

    def add(self, work: Work, now: float) -> None:
        """`work` was queued (again: after a failure)."""
        ...

    def remove(self, work: Work, now: float) -> None:
        """`work` left the queue, dispatched or withdrawn; `work.queued` is already False."""
        ...

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        """A batch for an instance, [] for none. The queue takes the slices off `work.spans`."""
        ...

    def wake_at(self, now: float) -> float | None:
        """When to ask again although nothing happened, if it waits for a batch to fill."""
        ...


def is_eager(policy: Any) -> bool:
    """Whether a policy's own class declares it `eager`. A subclass may do more with each work than
    the class that it inherits from, and has to say so again."""
    return "eager" in vars(type(policy)) and bool(policy.eager)


class ByKeys(Protocol):
    """A policy that goes by what instances keep."""

    wants_keys: bool

    def attach(self, view: EngineView) -> None:
        """Called once, before anything else."""
        ...


def by_keys(policy: Any) -> TypeGuard[ByKeys]:
    """Whether a policy wants the keys of prompts."""
    return bool(getattr(policy, "wants_keys", False))


def priorities(policy: Any) -> Callable[[Work, float], int]:
    """The policy's `priority`; of one that has none, all works are equal."""
    found: Callable[[Work, float], int] = getattr(policy, "priority", _equal)
    return found


def _equal(work: Work, now: float) -> int:
    return 0
