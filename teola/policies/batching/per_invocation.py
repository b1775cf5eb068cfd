"""per_invocation: the paper's PO: the requests of one call are a bundle, one bundle at a time."""

from __future__ import annotations

from collections import OrderedDict

from teola.policies.work import Slice, Slots, Taker, Work


class PerInvocation:
    """Bundles are what one component of one query has queued, cut at the maximum batch size."""

    def __init__(self) -> None:
        self._bundles: OrderedDict[tuple[str, str], list[Work]] = OrderedDict()

    def add(self, work: Work, now: float) -> None:
        self._bundles.setdefault((work.run, work.component), []).append(work)

    def remove(self, work: Work, now: float) -> None:
        self._prune()

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        self._prune()
        for bundle in self._bundles.values():
            taker = Taker(slots)
            for work in bundle:
                if work.queued and taker.fits(work) and not taker.take(work):
                    break
            if taker.slices:
                return taker.slices
        return []

    def wake_at(self, now: float) -> float | None:
        return None

    def _prune(self) -> None:
        for key, bundle in list(self._bundles.items()):
            bundle[:] = [work for work in bundle if work.queued]
            if not bundle:
                del self._bundles[key]
            else:
                break
