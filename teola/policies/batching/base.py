"""What a batching policy is: a deterministic state machine that decides what shares a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from teola.policies.routing.base import EngineView
from teola.policies.work import Slice, Slots, Work


class BatchingPolicy(Protocol):
    """No I/O, no clock, no randomness; ties are broken by (arrival, seq).

    What else it may have is told by the protocols below: `Attached`, `WantsKeys`, `Prioritises`.

    A policy's class may also declare `eager = True` (or a property), if it never holds back the
    only work that is queued for an engine whose batches do not disturb each other, and keeps
    nothing of it: it is not asked about such a work then. `whole = True`: it is the routing policy
    of its queue, too, and has the same name there. `overfills = True`: it may send an LLM call for
    which the room of a step is too small, as long as there is any.
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


def is_whole(policy: Any) -> bool:
    """Whether a policy is order and routing in one: one object for both places of its queue."""
    return bool(getattr(policy, "whole", False))


@runtime_checkable
class Attached(Protocol):
    """A policy that is given the view of its engine: instances, what they hold, profiles."""

    def attach(self, view: EngineView) -> None:
        """Called once, before anything else."""
        ...


@runtime_checkable
class WantsKeys(Protocol):
    """wants_keys: LLM calls come with the keys of their prompts' blocks, and the view knows which
    instance keeps which."""

    @property
    def wants_keys(self) -> bool: ...


@runtime_checkable
class Prioritises(Protocol):
    """A policy that knows how urgent the server's own queue is to take an LLM call."""

    def priority(self, work: Work, now: float) -> int:
        """More is sooner; asked when the call is sent. It has to be the order in which `choose`
        would have sent them."""
        ...


def by_keys(policy: Any) -> bool:
    """Whether a policy wants the keys of prompts."""
    return isinstance(policy, WantsKeys) and bool(policy.wants_keys)


def priorities(policy: Any) -> Callable[[Work, float], int]:
    """The policy's `priority`; of one that has none, all works are equal."""
    return policy.priority if isinstance(policy, Prioritises) else _equal


def _equal(work: Work, now: float) -> int:
    return 0
