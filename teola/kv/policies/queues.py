"""Offered blocks by category, where of one category those go first that were used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heapreplace

Category = Hashable
Worth = Callable[[Category, float, float], float]
"""What keeping a block is worth: (its category, when it was last used, now)."""
Front = tuple[float, int, float, int, Category]


class Queues:
    """A queue for each category, in the order of offering. Worth falls with age, so that the front
    of each queue is its least; only fronts are compared, and their order is kept until something
    changes. Of equal worth, the block deepest in its prompt goes first."""

    def __init__(self, worth: Worth) -> None:
        self._worth = worth
        self._queues: dict[Category, OrderedDict[int, tuple[float, int]]] = {}
        self._queue: dict[int, Category] = {}
        self._fronts: list[Front] = []
        self._fronts_at: float | None = None

    def __contains__(self, block: int) -> bool:
        return block in self._queue

    def put(self, block: int, category: Category, position: int, now: float) -> None:
        """A block was offered. position: in its prompt."""
        queue = self._queues.get(category)
        if queue is None:
            queue = self._queues[category] = OrderedDict()
            self._fronts_at = None
        queue[block] = now, -position
        self._queue[block] = category

    def drop(self, block: int) -> None:
        """It is offered no longer."""
        category = self._queue.pop(block)
        queue = self._queues[category]
        del queue[block]
        if not queue:
            del self._queues[category]
        self._fronts_at = None

    def changed(self) -> None:
        """What categories are worth is not what it was."""
        self._fronts_at = None

    def first(self, now: float) -> Front | None:
        """The block that is worth least, behind its worth; None if there is none."""
        if self._fronts_at != now:
            self._fronts = [self._front(name, now) for name in self._queues]
            heapify(self._fronts)
            self._fronts_at = now
        return self._fronts[0] if self._fronts else None

    def pop(self, now: float) -> int:
        """Take that block out. There is one."""
        found = self.first(now)
        assert found is not None, "nothing is offered"
        block, category = found[3], found[4]
        self.drop(block)
        if category in self._queues:
            heapreplace(self._fronts, self._front(category, now))
        else:
            heappop(self._fronts)
        self._fronts_at = now
        return block

    def _front(self, category: Category, now: float) -> Front:
        block, (last, deep) = next(iter(self._queues[category].items()))
        return self._worth(category, last, now), deep, last, block, category
