"""A second tier of blocks, in the memory of the host: what was evicted from the instance's own.

    the instance's --evicted--> host's --dropped, by a policy of its own--> forgotten
          ^                       |
          +------ found again ----+

This module holds no KV either: who does copies it as `Swap` says, in the order of the swaps.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol, runtime_checkable

from teola.kv.policies import Access, Policy
from teola.kv.policies.lru import Lru


class Swap(NamedTuple):
    """What one request moved. back: (slot of the host, block), all read before anything is written;
    down: (block, slot), written before `back` is."""

    back: tuple[tuple[int, int], ...]
    down: tuple[tuple[int, int], ...]


class Use(NamedTuple):
    """The last use of a block: where it stood in the prompt, whose that was, and when."""

    position: int
    access: Access
    now: float


class HostTier:
    """`slots` blocks, each with what is in none of the instance's own. policy: chooses what is
    dropped; it is told of what comes down as of its last use."""

    def __init__(self, slots: int, policy: Policy) -> None:
        if slots < 1:
            raise ValueError("a host tier needs at least one block")
        self.slots = slots
        self._policy = policy
        self._slots: dict[Hashable, int] = {}
        self._keys: dict[int, Hashable] = {}
        self._free: list[int] = []

    def __contains__(self, key: Hashable) -> bool:
        return key in self._slots

    def __len__(self) -> int:
        return len(self._slots)

    def keys(self) -> list[Hashable]:
        """Those of all blocks that are here."""
        return list(self._slots)

    def put(self, key: Hashable, use: Use, now: float) -> tuple[int, Hashable | None]:
        """A block comes down: the slot that it gets, and the key of what was dropped for it."""
        dropped = None
        if self._free:
            slot = self._free.pop()
        elif len(self._slots) < self.slots:
            slot = len(self._slots)
        else:
            slot = self._policy.evict(now)
            dropped = self._keys.pop(slot)
            del self._slots[dropped]
        self._slots[key], self._keys[slot] = slot, key
        self._policy.touch([slot], [key], use.position, use.access, use.now)
        self._policy.offer([slot], use.now)
        return slot, dropped

    def take(self, key: Hashable) -> int:
        """It is here no longer; the slot where it was."""
        slot = self._slots.pop(key)
        del self._keys[slot]
        self._policy.withdraw([slot])
        self._free.append(slot)
        return slot


@runtime_checkable
class HasBelow(Protocol):
    """A policy that makes that of the tier below it."""

    def below(self) -> Policy:
        """A fresh one."""
        ...


def below(policy: Policy) -> Policy:
    """The policy of the tier below: as it says itself, else lru."""
    return policy.below() if isinstance(policy, HasBelow) else Lru()
