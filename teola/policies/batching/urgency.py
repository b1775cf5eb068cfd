"""urgency: the call that is furthest behind its share of its query's objective goes first.

(Hexgen-Text2SQL, sections 4.2 and 4.3.) What is left until a query's objective is shared by how
long its calls take; a call's share is its budget, worked out when it is queued and never later:

    t_slo   = (finish_by - now) x t-bar / (t-bar of it and of what is expected to follow)
    urgency = t_comp - (t_slo - waited)

t_comp is its time on the instance that it is bound to, t-bar the mean over instances, which stands
for t_comp while it is bound to none. All that wait age alike, so `t_comp - t_slo - queued at`
orders them for good. An overdue query has a negative budget: its calls come first.

What has no objective follows, the oldest query first. With `drop_hopeless`, calls whose query
cannot keep its objective even if all engines were free come last, so that they do not make others
miss theirs.
"""

from __future__ import annotations

from math import inf
from typing import Final

from teola.errors import InputError
from teola.policies.ordered import Ordered, PolicyKey
from teola.policies.routing.base import EngineView
from teola.policies.routing.call_seconds import InstanceKinds
from teola.policies.work import Work

PROMISED, UNPROMISED, HOPELESS = 0.0, 1.0, 2.0
CLASS_MS: Final = 10**10
"""Between the priorities of one class and the next, in ms: more than any objective is away."""


def budget_s(left_s: float, own_s: float, rest_s: float) -> float:
    """A call's share of what is left until its query's objective. own_s: of the call; rest_s: of it
    and all that follows."""
    return left_s * own_s / rest_s


class Urgency(Ordered):
    """drop_hopeless: what cannot be in time any more comes last. skip_unfit: those that fit go
    before one that is too large for what an instance can take now; else it is waited for."""

    eager = True

    def __init__(self, drop_hopeless: bool = False, skip_unfit: bool = False) -> None:
        super().__init__()
        for name, value in (("drop_hopeless", drop_hopeless), ("skip_unfit", skip_unfit)):
            if not isinstance(value, bool):
                raise InputError(
                    f"batching policy 'urgency': {name} must be true or false, got {value!r}"
                )
        self.drop_hopeless, self.skips = drop_hopeless, skip_unfit
        self._kinds: InstanceKinds | None = None

    def attach(self, view: EngineView) -> None:
        self._kinds = InstanceKinds(view)

    def key(self, work: Work, now: float) -> PolicyKey:
        finish_by = work.asker.finish_by
        if finish_by == inf:
            return UNPROMISED, work.admitted
        mean_s, here_s, least_s = self._seconds(work)
        rest_s = max(mean_s, work.spec.estimate.rest_s + work.behind_s)
        if work.budget_s is None:
            known = mean_s > 0  # else rest_s is no time
            left_s = finish_by - now
            work.budget_s = budget_s(left_s, mean_s, rest_s) if known else left_s
        hopeless = self.drop_hopeless and mean_s > 0 and finish_by - now < rest_s * least_s / mean_s
        return HOPELESS if hopeless else PROMISED, work.budget_s + work.arrival - here_s

    def priority(self, work: Work, now: float) -> int:
        """More is sooner, in ms."""
        where, behind = self.key(work, now)
        return -round(where * CLASS_MS + 1000 * behind)

    def _seconds(self, work: Work) -> tuple[float, float, float]:
        """Seconds of a work: the mean over instances, where it is bound, and the least (0: not
        known)."""
        kinds = self._kinds
        if work.spec.lane is not None or kinds is None:
            takes_s = work.spec.estimate.takes_s
            return takes_s, takes_s, takes_s
        kinds.renew()
        if not kinds.timed:
            return 0.0, 0.0, 0.0
        seconds = kinds.seconds(work)
        mean_s = kinds.mean(seconds)
        here_s = seconds[kinds.of[work.affinity]] if work.affinity >= 0 else mean_s
        return mean_s, here_s, min(seconds)
