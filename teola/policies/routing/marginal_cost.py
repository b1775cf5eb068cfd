"""marginal_cost: where a call makes everybody's time longest by the least.

What a call costs on an instance, in seconds of its profile:

* its own wait for prompt tokens that are pending there;
* its own prefill, less what is found of it, times those whom that stalls: the call itself, and a
  part of the calls that run or wait there (`STALLED`), but no more than `MOST` in all;
* the decoding that its own answer shares with the context of the calls there.

The answer's length is the mean of what calls of its category (app and component) were answered
with. Both the bound and the decoding matter: without either it falls behind where prompts are long.
"""

from __future__ import annotations

from typing import Final

from teola.policies.routing.base import Finished, Happening, RoutingPolicy
from teola.policies.routing.destinations import Destination, least, prefill_s, times_of, wait_s
from teola.policies.work import Work

STALLED: Final = 0.3
"""Of the calls on an instance, the part that a prefill stalls."""
MOST: Final = 6.0
"""For so many calls, itself included, a prefill counts at most."""
ANSWER: Final = 256.0
"""Tokens of an answer before any has come."""


class MarginalCost(RoutingPolicy):
    """Of the published routers' means, all in seconds."""

    wants_keys = True
    observes = (Finished,)

    def __init__(self) -> None:
        self._answer = ANSWER
        self._answers = 0

    def place(self, work: Work, now: float) -> int:
        def cost(to: Destination) -> float:
            profile = self.view.profiles[to.instance]
            stalls = min(MOST, 1 + STALLED * to.calls)
            context = to.seen.context + to.seen.awaited
            return (
                wait_s(profile, to.seen.pending)
                + stalls * prefill_s(profile, to.missing, work.total)
                + self._answer * times_of(profile).per_context_s * context
            )

        return least(self.view, work, now, cost)

    def observe(self, event: Happening, now: float) -> None:
        if isinstance(event, Finished) and event.generated:
            self._answers += 1
            self._answer += (event.generated - self._answer) / min(self._answers, 1000)
