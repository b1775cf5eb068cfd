"""oracle_partition: the static division of the prompts that somebody makes who knows all of them.

(Preble's strongest baseline.) Calls are told apart by the key of their prompts, the deepest run of
blocks in the tree of all prompts that is longer than all before it. All calls of a key go to one
instance; keys are given out by the time that their calls take, the longest first, each to the
instance that has got least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.replay.calls import TracedCall
from teola.policies.routing import RoutingPolicy
from teola.policies.routing.destinations import prefill_s
from teola.policies.routing.e2 import majority
from teola.policies.routing.radix import RadixNode, RadixTree
from teola.policies.work import Work
from teola.profile import EngineProfile
from teola.runtime.values import number_of

TENANT = number_of("default")
"""The salt of keys: replays have one tenant."""


class OraclePartition(RoutingPolicy):
    """calls: all that will come. profile: of each instance."""

    wants_keys = True

    def __init__(self, calls: Sequence[TracedCall], profile: EngineProfile, instances: int) -> None:
        self._tree = RadixTree(instances, profile.block_tokens)
        prompts = [call.prompt.keys(profile.block_tokens, TENANT) for call in calls]
        for keys in prompts:
            self._tree.insert(keys)
        seconds: dict[RadixNode | None, float] = {}
        for call, keys in zip(calls, prompts, strict=True):
            key = self._key(keys)
            kept = key.context + key.length if key is not None else 0
            total = int(call.prompt)
            whole = seconds.get(key, prefill_s(profile, kept, kept) if kept else 0.0)
            seconds[key] = whole + prefill_s(profile, total - kept, total)
        given = [0.0] * instances
        self._of: dict[RadixNode | None, int] = {}
        for key in sorted(seconds, key=lambda key: (-seconds[key], key.number if key else 0)):
            least = min(range(instances), key=lambda i: given[i])
            self._of[key] = least
            given[least] += seconds[key]

    def place(self, work: Work, now: float) -> int:
        return self._of[self._key(work.keys)]

    def _key(self, keys: Sequence[Any]) -> RadixNode | None:
        """None: the prompt has no full block. The key is shared, unless nothing is."""
        path = self._tree.insert(keys)
        shared = [node for node in path if node.children]
        return majority(shared or path) if path else None
