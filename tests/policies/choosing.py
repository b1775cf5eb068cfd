"""Asking a batching policy by hand, as a queue asks it."""

from __future__ import annotations

from typing import Any

from teola.policies.batching import BatchingPolicy
from teola.policies.batching.critical_path import CriticalPath
from teola.policies.batching.fair import Fair
from teola.policies.batching.fifo import Fifo
from teola.policies.batching.per_invocation import PerInvocation
from teola.policies.batching.prefix_groups import PrefixGroups
from teola.policies.batching.topology import Topology
from teola.policies.ordered import Ordered
from teola.policies.work import Slots, Work


def slots(
    weight: int = 4,
    entries: int = 1024,
    instance: int = 0,
    idle: bool = True,
    running: int = 0,
) -> Slots:
    return Slots(instance, weight, entries, idle, running)


def chosen(policy: BatchingPolicy, given: Slots | None = None, now: float = 0.0) -> list[Any]:
    """(seq, lo, hi) of each slice."""
    return [(w.seq, lo, hi) for w, lo, hi in policy.choose(given or slots(), now)]


def take(policy: BatchingPolicy, given: Slots | None = None, now: float = 0.0) -> list[Work]:
    """Choose, and take the slices off as the queue does; the works chosen."""
    found = []
    for w, lo, hi in policy.choose(given or slots(), now):
        found.append(w)
        w.spans = [s for a, b in w.spans for s in ((a, min(b, lo)), (max(a, hi), b)) if s[0] < s[1]]
        if not w.spans:
            w.queued = False
            policy.remove(w, now)
    return found


def add(policy: BatchingPolicy, *works: Work) -> None:
    for w in works:
        policy.add(w, w.arrival)


def kept(policy: BatchingPolicy, works_only: bool = True) -> int:
    """Entries that a policy holds."""
    if isinstance(policy, Topology):
        return len(policy._arrivals) + sum(map(len, policy._buckets.values())) * works_only
    if isinstance(policy, Fifo):
        return len(policy._queue) + len(policy._again)
    if isinstance(policy, PrefixGroups):
        return max(len(policy._queue), len(policy._kept))
    if isinstance(policy, CriticalPath | Ordered):
        by_lane = policy.waiting.by_lane.values()
        return sum(len(heap) for heaps in by_lane for heap in heaps.values())
    if isinstance(policy, Fair):
        inside = sum(kept(flow.inner, works_only) for flow in policy._flows.values())
        return max(inside, len(policy._flows), len(policy._queued), len(policy._idle))
    assert isinstance(policy, PerInvocation)
    return sum(map(len, policy._bundles.values())) if works_only else len(policy._bundles)
