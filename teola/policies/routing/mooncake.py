"""mooncake: the earliest first token (Mooncake, FAST 2025, algorithm 1, without remote prefixes).

The least of the time until what is pending is computed + the time that the call's own prompt takes
with what is found of it.
"""

from __future__ import annotations

from teola.policies.routing.base import RoutingPolicy
from teola.policies.routing.destinations import Destination, least, prefill_s, wait_s
from teola.policies.work import Work


class Mooncake(RoutingPolicy):
    """The call's own first token, whomever it delays."""

    wants_keys = True

    def place(self, work: Work, now: float) -> int:
        def first_s(to: Destination) -> float:
            profile = self.view.profiles[to.instance]
            return wait_s(profile, to.seen.pending) + prefill_s(profile, to.missing, work.tokens)

        return least(self.view, work, now, first_s)
