"""What a queue tells whoever learns how long its engine's work takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from teola.learning.lessons import EngineTimes, Slowness
from teola.policies.work import Slice, Work


class Observer:
    """An observer that learns nothing. Others override what they need."""

    def sent(self, i: int, batch: int, slices: Sequence[Slice], now: float) -> None:
        """A batch (calls) went to instance `i`."""

    def completed(
        self, batch: int, slices: Sequence[Slice], outcomes: Sequence[object], now: float
    ) -> None:
        """A batch came back; an outcome that tells no counts failed."""

    def first(self, i: int, work: Work, now: float) -> None:
        """A call's prompt is computed on instance `i`."""

    def ended(
        self, work: Work, failed: bool, cached: int | None, generated: int | None, now: float
    ) -> None:
        """A call is over. cached: tokens of its prompt that the instance had kept. generated:
        tokens that it wrote, also if it was withdrawn meanwhile. (None: it does not tell.)"""

    def late(self, work: Work, now: float) -> None:
        """A call has given no token for several times as long as nearly all others needed; told
        again as that goes on."""

    def outrun(self, work: Work, now: float) -> None:
        """A call is ended that has given no token, for another try of it has given one."""
        self.ended(work, True, None, None, now)

    def rows(self, i: int, change: int, now: float) -> None:
        """So many rows more (less) run on instance `i`, beside its calls."""

    def lost(self, i: int, now: float) -> None:
        """Instance `i` is gone, with all that it ran."""

    def times(self) -> EngineTimes | None:
        """What is known by now (None: too little)."""
        return None

    def recall(self, times: EngineTimes) -> None:
        """Take over what was known at an earlier time."""

    def instances(self) -> Mapping[str, Slowness]:
        """How slow single instances are, as far as that is known by now, by name."""
        return {}
