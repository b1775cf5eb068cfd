"""What is queued at one engine, and who was told of it.

The batching policy is told of every work, but for one: where nothing disturbs anything, the only
work in the queue needs no policy to be put in order, and waits alone for its instance or for
company.
"""

from __future__ import annotations

from teola.policies.batching.base import BatchingPolicy
from teola.policies.work import Work
from teola.schedule.asking import Asking
from teola.schedule.faults import Faults


class WaitingLine:
    """lone: whether the policy need not be told of the only work. asking: what is bound where.
    faults: takes what the policy raises."""

    def __init__(self, policy: BatchingPolicy, faults: Faults, *, lone: bool) -> None:
        self.policy, self.asking, self.faults = policy, Asking(faults), faults
        self.count = 0
        self.alone: Work | None = None
        """The only work, while the policy has not been told of it."""
        self.held: dict[tuple[str, int], Work] = {}
        """What the routing policy does not want to be sent yet, of which nobody was told."""
        self._lone = lone

    @property
    def ready(self) -> int:
        """How many may be sent."""
        return self.count - len(self.held)

    def hold(self, work: Work, now: float) -> None:
        """`work` is queued, but not to be sent yet."""
        self.count += 1
        self.held[work.run, work.primitive] = work

    def release(self, work: Work, now: float) -> None:
        """`work` is held no longer."""
        del self.held[work.run, work.primitive]
        self.count -= 1
        self.add(work, now)

    def add(self, work: Work, now: float) -> None:
        """`work` was queued."""
        self.count += 1
        if self._lone:
            if self.count == 1 and not work.tries:
                self.alone = work
                return
            if self.alone is not None:
                self.tell(now)
        self._add(work, now)

    def tell(self, now: float) -> None:
        """Tell the policy of the work that was alone."""
        work, self.alone = self.alone, None
        assert work is not None
        self._add(work, now)

    def _add(self, work: Work, now: float) -> None:
        self.asking.queued(work)
        try:
            self.policy.add(work, now)
        except Exception as error:  # noqa: BLE001 - anybody's code; the queue fails its work
            self.faults.of_batching(error)

    def remove(self, work: Work, now: float) -> None:
        """`work` is queued no more, if it was."""
        if not work.queued:
            return
        work.queued = False
        self.count -= 1
        if work is self.alone:
            self.alone = None
            return
        if self.held and self.held.pop((work.run, work.primitive), None) is not None:
            return
        self.asking.left(work)
        try:
            self.policy.remove(work, now)
        except Exception as error:  # noqa: BLE001 - as above
            self.faults.of_batching(error)
