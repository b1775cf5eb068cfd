"""Replays each trace over caches of several sizes with each policy.

A request comes and goes at once, so that only the policy matters: its prompt's blocks are looked
up, what is missing is put there. Only prompts are kept, since traces do not tell outputs. The first
half of a trace is to learn from.

Time to the first token, in a queue: one server takes prompts as they come, and computes what was
not found, at the speed at which it would be busy for all of the time if nothing were ever found.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from rich.progress import Progress

from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.eviction import traces
from experiments.eviction.belady import Belady
from experiments.eviction.traces import Asked, Trace
from teola.kv import BlockCache, Policy, make_policy
from teola.profile import StepTime

STEP: Final = StepTime(0.0067, 0.0, 4.6e-8, 2.3e-5, 1.06e-9)
"""An 8B model on an H100."""
ENDLESS: Final = "workload_aware_endless"
POLICIES: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "lru": ("lru", {}),
    "fifo": ("fifo", {}),
    "lfu": ("lfu", {}),
    "gdfs": ("gdfs", {}),
    "workload_aware": ("workload_aware", {}),
    ENDLESS: ("workload_aware", {"life_s": float("inf")}),
    "next_use": ("next_use", {}),
}
BELADY: Final = "belady"
UNLIMITED: Final = "unlimited"


class Found(NamedTuple):
    """What one run found, of the counted part."""

    hit_ratio: float
    qttft_mean_s: float
    capacity: int


def measure(options: Options, progress: Progress) -> Report:
    """Every trace with every policy and capacity."""
    file, asked = options.given.trace, options.given.capacities
    jobs, told = [], []
    for name in traces.names(options.data, file):
        where = (name, options.data, file, options.quick, options.seed)
        trace = traces.load(*where)
        for capacity in asked or trace.capacities:
            policies = [*POLICIES, *([BELADY] if trace.graphs else [])]
            jobs += [(run, (where, policy, capacity)) for policy in policies]
            told += [(name, policy) for policy in policies]
        jobs.append((run, (where, UNLIMITED, None)))
        told.append((name, UNLIMITED))
    found: list[Found] = pool.run(jobs, options.workers, progress, "replaying")
    rows, belady = [], dict[str, dict[str, Any]]()
    for (name, policy), one in zip(told, found, strict=True):
        if policy == BELADY:
            belady.setdefault(name, {})[str(one.capacity)] = one.hit_ratio
            continue
        rows.append(
            {
                "trace": name,
                "capacity": one.capacity,
                "policy": policy,
                "hit_ratio": one.hit_ratio,
                "qttft_mean_s": one.qttft_mean_s,
            }
        )
    return {"about": options.about(), "rows": rows, "belady": belady}


Where = tuple[str, Path | None, Path | None, bool, int]


def run(where: Where, policy: str, capacity: int | None) -> Found:
    """One policy on one trace."""
    trace = traces.load(*where)
    return replayed(trace, policy_of(policy, trace), capacity)


def policy_of(policy: str, trace: Trace) -> Policy:
    """A fresh one."""
    if policy == BELADY:
        return Belady(trace.requests)
    name, given = POLICIES.get(policy, ("lru", {}))
    return make_policy(name, **given)


def replayed(trace: Trace, policy: Policy, capacity: int | None) -> Found:
    """The whole trace over a cache of so many blocks (None: without bound)."""
    cache = BlockCache(capacity, 1, policy)
    hits = blocks = 0
    queue = _Queue(trace)
    for one in trace.requests:
        # What does not fit is not cached, and evicts nothing of its own request.
        keys = one.keys[:capacity]
        table = cache.acquire(keys, len(keys), one.access, one.at)
        assert table is not None
        if one.at >= trace.since:
            hits += table.found
            blocks += -(-one.tokens // trace.block_tokens)
        queue.serve(one, table.found * trace.block_tokens)
        cache.commit(table, keys, one.at)
        cache.release(table, one.at)
    return Found(round(hits / blocks, 5), round(fmean(queue.waited), 4), capacity or cache.cached)


class _Queue:
    """One server. waited: seconds to the first token, of counted requests."""

    def __init__(self, trace: Trace) -> None:
        self.waited: list[float] = []
        self._since, self._free = trace.since, 0.0
        whole = sum(_seconds(one.tokens, 0) for one in trace.requests)
        self._speed = whole / max(trace.requests[-1].at, 1e-9)

    def serve(self, one: Asked, found: int) -> None:
        self._free = max(self._free, one.at) + _seconds(one.tokens, found) / self._speed
        if one.at >= self._since:
            self.waited.append(self._free - one.at)


def _seconds(tokens: int, found: int) -> float:
    computed = max(1, tokens - found)
    pairs = computed * (2 * (tokens - computed) + computed + 1) // 2
    return STEP.seconds(0, 0, computed, pairs)
