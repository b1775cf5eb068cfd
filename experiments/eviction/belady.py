"""belady: the block that is read again latest, as the whole trace says; the end of a prompt before
its beginning. No policy that sees the past alone finds more, as long as blocks are all alike."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from math import inf

from experiments.eviction.traces import Asked
from teola.kv import Access
from teola.kv.policies.ranks import Ranked


class Belady(Ranked):
    """It is given all requests that will come, in order."""

    def __init__(self, requests: Iterable[Asked]) -> None:
        super().__init__()
        self._coming: dict[Hashable, deque[float]] = defaultdict(deque)
        for one in requests:
            for key in one.keys:
                self._coming[key].append(one.at)

    def touch(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        position: int,
        access: Access,
        now: float,
    ) -> None:
        for block, key in zip(blocks, keys, strict=True):
            coming = self._coming[key]
            while coming and coming[0] <= now:
                coming.popleft()
            self.ranks[block] = -coming[0] if coming else -inf
