"""Orders to compare with: they know a query's objective, or how long a call takes, and nothing
else.

Each is a batching policy for this experiment alone. Where work goes, another policy decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Any, Final, TypeVar

from teola.policies.batching.urgency import Urgency
from teola.policies.ordered import Ordered, PolicyKey
from teola.policies.routing.base import ANY, EngineView, RoutingPolicy
from teola.policies.routing.call_seconds import InstanceKinds
from teola.policies.routing.destinations import bound
from teola.policies.routing.paced import Paced
from teola.policies.routing.workload_balanced import WorkloadBalanced
from teola.policies.work import Work
from teola.registering import register


class EarliestDeadline(Ordered):
    """The query's objective, then the longest expected rest."""

    eager = True

    def key(self, work: Work, now: float) -> PolicyKey:
        return work.asker.finish_by, -work.spec.estimate.rest_s - work.behind_s


class LeastSlack(Ordered):
    """The objective less the expected rest."""

    eager = True

    def key(self, work: Work, now: float) -> PolicyKey:
        finish_by = work.asker.finish_by
        if finish_by == inf:
            return 1.0, work.asker.admitted
        return 0.0, finish_by - work.spec.estimate.rest_s - work.behind_s


class ShortestJob(Ordered):
    """The call that takes the least time, by its prompt and its expected answer."""

    eager = True

    def __init__(self) -> None:
        super().__init__()
        self._kinds: InstanceKinds | None = None

    def attach(self, view: EngineView) -> None:
        self._kinds = InstanceKinds(view)

    def key(self, work: Work, now: float) -> PolicyKey:
        if self._kinds is None or work.spec.lane is not None:
            return (work.spec.estimate.takes_s,)
        return (self._kinds.mean(self._kinds.seconds(work)),)


class EarlyTurns(RoutingPolicy):
    """Round robin as a dispatcher does it that gives each call away when it comes."""

    def __init__(self) -> None:
        self._last = -1

    def place(self, work: Work, now: float) -> int:
        at = bound(self.view, work, now)
        if at >= 0 or work.spec.cuttable:
            return at
        instances = self.view.instances(now)
        for k in range(1, len(instances) + 1):
            i = (self._last + k) % len(instances)
            if instances[i].usable and i != work.avoid:
                self._last = i
                return i
        return ANY


class PacedInTurn(Paced):
    """The bound of `paced` alone: calls in the order in which they came."""

    eager = True

    def key(self, work: Work, now: float) -> PolicyKey:
        return ()


class KnownLengths:
    """Tells policies each call's true answer, as a perfect prediction of lengths would."""

    def __init__(self) -> None:
        self.answer: Callable[[Work], float] = lambda work: work.spec.answer_tokens

    def balanced(self, **options: Any) -> RoutingPolicy:
        return _told(WorkloadBalanced(**options), self)

    def paced(self, **options: Any) -> RoutingPolicy:
        return _told(Paced(**options), self)

    def urgency(self, **options: Any) -> Urgency:
        return _told(Urgency(**options), self)


P = TypeVar("P")


def _told(policy: P, lengths: KnownLengths) -> P:
    attach = policy.attach  # type: ignore[attr-defined]

    def attached(view: EngineView) -> None:
        attach(view)
        policy._kinds.answer = lengths.answer  # type: ignore[attr-defined]

    policy.attach = attached  # type: ignore[attr-defined]
    return policy


ORDERS: Final = {"edf": EarliestDeadline, "least_slack": LeastSlack, "sjf": ShortestJob}


@contextmanager
def registered(lengths: KnownLengths | None = None) -> Iterator[None]:
    """As long as this lasts they have names."""
    known = lengths or KnownLengths()
    both: dict[str, Any] = {"paced_fcfs": PacedInTurn, "paced_oracle": known.paced}
    batching: dict[str, Any] = {**ORDERS, **both, "urgency_oracle": known.urgency}
    routing: dict[str, Any] = {
        "round_robin_early": EarlyTurns,
        **both,
        "balanced_oracle": known.balanced,
    }
    with ExitStack() as stack:
        for name, policy in batching.items():
            stack.enter_context(register("batching", name, policy))
        for name, policy in routing.items():
            stack.enter_context(register("routing", name, policy))
        yield
