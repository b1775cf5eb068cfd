"""dualmap: two instances a prefix (DualMap, ICLR 2026, arXiv 2602.06502).

Two hashes of a call's beginning name two instances. Of these the call goes where more of it is
found while its first token is expected there within the objective, else to the less loaded one. The
beginning adapts: it is as long as it must be for no more than its share of the last calls to have
the same one, so that a popular prefix is spread.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from hashlib import blake2b
from typing import Final

from teola.errors import InputError
from teola.plain_number import is_number
from teola.policies.routing.base import ANY, RoutingPolicy
from teola.policies.routing.destinations import Destination, bound, destinations, prefill_s, wait_s
from teola.policies.work import Work

LAST: Final = 400
"""Calls whose beginnings are counted."""


class DualMap(RoutingPolicy):
    """objective_s: seconds within which a first token should come."""

    wants_keys = True

    def __init__(self, objective_s: float = 2.0) -> None:
        if not is_number(objective_s) or not objective_s > 0:
            raise InputError(
                "routing policy 'dualmap': objective_s, within which a first token should come, "
                f"must be a number of seconds above 0, got {objective_s!r}"
            )
        self.objective_s = objective_s
        self._begun: Counter[Hashable] = Counter()
        self._last: deque[tuple[Hashable, ...]] = deque()

    def place(self, work: Work, now: float) -> int:
        at = bound(self.view, work, now)
        candidates = [] if at >= 0 else destinations(self.view, work, now)
        if not candidates:
            return at if at >= 0 else ANY
        prefix = self._prefix(work)
        pair = [candidates[_number(salt, prefix) % len(candidates)] for salt in (1, 2)]
        quicker = sorted(pair, key=lambda to: self._first_s(work, to))
        nearer = max(quicker, key=lambda to: to.found)
        if self._first_s(work, nearer) <= self.objective_s:
            return nearer.instance
        return quicker[0].instance

    def _prefix(self, work: Work) -> Hashable:
        """The beginning of a prompt that is hashed: 1, 2, 4, ... blocks."""
        if not work.keys:
            return work.run
        lengths = [1 << k for k in range(len(work.keys).bit_length())]
        begun = tuple(work.keys[length - 1] for length in lengths)
        self._begun.update(begun)
        self._last.append(begun)
        if len(self._last) > LAST:
            gone = self._last.popleft()
            self._begun.subtract(gone)
            for key in gone:
                if not self._begun[key]:
                    del self._begun[key]
        share = LAST / len(self.view)
        return next((key for key in begun if self._begun[key] <= share), begun[-1])

    def _first_s(self, work: Work, to: Destination) -> float:
        profile = self.view.profiles[to.instance]
        return wait_s(profile, to.seen.pending) + prefill_s(profile, to.missing, work.tokens)


def _number(salt: int, prefix: Hashable) -> int:
    """A hash that is the same in every process, unlike `hash`."""
    digest = blake2b(repr((salt, prefix)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
