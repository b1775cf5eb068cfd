"""per_invocation: the paper's PO: the requests of one call are a bundle, one bundle at a time."""

from __future__ import annotations

from teola.policies.work import Slice, Slots, Taker, Work


class PerInvocation:
    """Bundles are what one component of one query has queued, cut at the maximum batch size."""

    eager = True

    def __init__(self) -> None:
        self._bundles: dict[tuple[str, str], list[Work]] = {}

    def add(self, work: Work, now: float) -> None:
        self._bundles.setdefault((work.run, work.spec.component), []).append(work)

    def remove(self, work: Work, now: float) -> None:
        key = (work.run, work.spec.component)
        left = [other for other in self._bundles[key] if other.queued]
        if left:
            self._bundles[key] = left
        else:
            del self._bundles[key]

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        for bundle in self._bundles.values():
            taker = Taker(slots)
            for work in bundle:
                if taker.fits(work) and not taker.take(work):
                    break
            if taker.slices:
                return taker.slices
        return []

    def priority(self, work: Work, now: float) -> int:
        """The earlier it was queued, the more."""
        return -work.seq

    def wake_at(self, now: float) -> float | None:
        return None
