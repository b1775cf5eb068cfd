"""Blocks that instances are to compute for calls on their way.

A call brings a chain: the blocks of its prompt from those on that its instance will find. Each is
filed under a few of its keys only: the first one, and those at multiples of `STRIDE`. A block at
some depth is then in the chains that are filed under one of the last `STRIDE` keys before it, if
the keys agree at that depth: since keys are chained, they do so at all depths above.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

STRIDE: Final = 32


@dataclass(slots=True, eq=False)
class Chain:
    """Blocks that an instance will compute: those of a prompt's keys from `start` on. marks: the
    keys that it is filed under."""

    instance: int
    keys: Sequence[Hashable]
    start: int
    marks: Sequence[Hashable]

    def has(self, keys: Sequence[Hashable], depth: int) -> bool:
        """Whether the block at that depth of a prompt is one of these."""
        mine = self.keys
        return self.start <= depth < len(mine) and mine[depth] == keys[depth]

    def end(self, keys: Sequence[Hashable], depth: int) -> int:
        """Up to which depth of a prompt it goes, of which it has the block at `depth`."""
        mine, stop = self.keys, min(len(self.keys), len(keys))
        if mine[depth:stop] == keys[depth:stop]:
            return stop
        return bisect_left(range(stop), True, lo=depth, key=lambda k: mine[k] != keys[k])


class Coming:
    """All chains. kept: by key, a bit for each instance that keeps the block."""

    def __init__(self, kept: Mapping[Hashable, int]) -> None:
        self._kept = kept
        self._chains: dict[Hashable, list[Chain]] = {}

    def __bool__(self) -> bool:
        return bool(self._chains)

    def add(self, instance: int, keys: Sequence[Hashable], start: int) -> Chain:
        """A call will compute these blocks there from `start` on."""
        later = start - start % STRIDE + STRIDE
        chain = Chain(instance, keys, start, (*keys[start : start + 1], *keys[later::STRIDE]))
        chains = self._chains
        for key in chain.marks:
            if key in chains:
                chains[key].append(chain)
            else:
                chains[key] = [chain]
        return chain

    def remove(self, chain: Chain) -> None:
        """The call of a chain has computed its blocks, or never will."""
        chains = self._chains
        for key in chain.marks:
            if len(chains[key]) == 1:
                del chains[key]
            else:
                chains[key].remove(chain)

    def depths(self, keys: Sequence[Hashable], depth: int, instances: int) -> dict[int, int]:
        """How many blocks of a prompt each of these instances (a bit for each), which keep the
        first `depth`, keeps or is to compute; those left out that are to compute no more."""
        there = {chain.instance for chain in self._with(keys, depth)}
        return {i: self._depth(keys, depth, i) for i in there if instances >> i & 1}

    def _depth(self, keys: Sequence[Hashable], depth: int, i: int) -> int:
        while depth < len(keys):
            ends = (c.end(keys, depth) for c in self._with(keys, depth) if c.instance == i)
            end = max(ends, default=depth)
            if end == depth:
                if not self._kept.get(keys[depth], 0) >> i & 1:
                    break
                end += 1
            depth = end
        return depth

    def _with(self, keys: Sequence[Hashable], depth: int) -> Iterator[Chain]:
        """Chains that have the block at that depth."""
        if depth >= len(keys):
            return
        marks = keys[depth - depth % STRIDE : depth + 1]
        for chains in filter(None, map(self._chains.get, marks)):
            for chain in chains:
                if chain.has(keys, depth):
                    yield chain
