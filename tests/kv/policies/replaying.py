"""Requests that come and go at once, as in a trace."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from teola.kv import Access, BlockCache, Policy, make_policy


class Watched:
    """A cache that is asked for requests, which end where they begin. evicted: keys, in order."""

    def __init__(self, capacity: int | None, policy: str | Policy) -> None:
        self.policy = make_policy(policy) if isinstance(policy, str) else policy
        self.cache = BlockCache(capacity, 1, self.policy, noting=True)
        self.capacity = capacity
        self.evicted: list[Hashable] = []
        self.hits = 0

    def ask(self, keys: Sequence[Hashable], access: Access | None = None, now: float = 0.0) -> int:
        """How many blocks the request found."""
        keys = keys[: self.capacity]
        before = set(self.cache.keys())
        table = self.cache.acquire(keys, len(keys), access or Access(), now)
        assert table is not None
        self.evicted += sorted(before.difference(self.cache.keys()), key=repr)
        found = table.found
        self.cache.commit(table, keys, now)
        self.cache.release(table, now)
        self.cache.check()
        assert self.capacity is None or self.cache.cached <= self.capacity
        self.hits += found
        return found


def asked(policy: str | Policy, capacity: int | None, keys: str) -> Watched:
    """Single blocks, a second apart."""
    made = Watched(capacity, policy)
    for now, key in enumerate(keys):
        made.ask([key], now=float(now))
    return made
