"""A queue whose policies are looked at, and the made-up time in which things happen to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from teola.graph import Op
from teola.policies.batching.base import Attached, BatchingPolicy, by_keys, priorities
from teola.policies.routing.base import EngineView, RoutingPolicy
from teola.policies.work import Slice, Slots, Work
from teola.profile import Cost, EngineProfile, StepTime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    Cause,
    Completed,
    Dispatch,
    Outcome,
    RowsBegan,
    SetTimer,
    Tell,
    Timer,
)
from teola.schedule.faults import PolicyFailed
from teola.schedule.instances import Limits
from teola.testing.checking import ContractBroken

STEPS: Final = 20_000
"""Events of one case; a policy that asks to be woken for ever is stopped."""
BLOCK: Final = 4
"""Tokens of a block of a prompt's keys."""
LANES: Final = (Op.SEARCHING, Op.INGESTION)


class AskedPolicy:
    """A batching policy, whose choices are looked at."""

    def __init__(self, inner: BatchingPolicy, where: str) -> None:
        self._inner, self._where = inner, where
        self.wants_keys, self.priority = by_keys(inner), priorities(inner)
        self._overfills = bool(getattr(inner, "overfills", False))

    def attach(self, view: EngineView) -> None:
        if isinstance(self._inner, Attached):
            self._inner.attach(view)

    def add(self, work: Work, now: float) -> None:
        self._inner.add(work, now)

    def remove(self, work: Work, now: float) -> None:
        self._inner.remove(work, now)

    def wake_at(self, now: float) -> float | None:
        return self._inner.wake_at(now)

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        chosen = self._inner.choose(slots, now)
        again = self._inner.choose(slots, now)
        if chosen != again:
            raise ContractBroken(
                f"{self._where}: `choose`, asked twice, chose {_told(chosen)} and then "
                f"{_told(again)}; what is chosen leaves the queue by `remove`"
            )
        if wrong := _misfit(chosen, slots, self._overfills):
            raise ContractBroken(f"{self._where}: for {slots} it chose {_told(chosen)}: {wrong}")
        return chosen


def _told(slices: Sequence[Slice]) -> str:
    return str([f"{s.work.run}/{s.work.primitive}[{s.lo}:{s.hi}]" for s in slices])


def _misfit(chosen: Sequence[Slice], slots: Slots, overfills: bool) -> str:
    """What is wrong with a batch for these slots, if anything."""
    weight = sum(hi - lo - work.found for work, lo, hi in chosen)
    lanes = {work.spec.lane for work, _, _ in chosen}
    works = {id(work) for work, _, _ in chosen}
    if len(works) > slots.entries:
        return f"{len(works)} works, where {slots.entries} have room"
    alone = len(chosen) == 1 and (slots.idle or overfills)
    if weight > slots.weight and not alone:
        return f"a weight of {weight}, where {slots.weight} has room"
    if len(lanes) > 1 or (slots.lane is not None and lanes - {slots.lane}):
        return "works of different lanes"
    for work, lo, hi in chosen:
        if not work.queued:
            return f"{work.run}/{work.primitive} is queued no more"
        if not any(a <= lo < hi <= b for a, b in work.spans):
            return f"of {work.run}/{work.primitive} only {work.spans} are queued"
        if not work.spec.cuttable and hi - lo < work.total:
            return f"{work.run}/{work.primitive} cannot be cut"
        if work.affinity not in (-1, slots.instance):
            return f"{work.run}/{work.primitive} is bound to instance {work.affinity}"
        if work.avoid == slots.instance:
            return f"{work.run}/{work.primitive} failed there, and is to avoid it"
    return ""


class QueueWorld:
    """A queue, the time, and what is to happen. log: what the queue commanded."""

    def __init__(
        self,
        queue: EngineQueue,
        where: str,
    ) -> None:
        self.queue, self.where = queue, where
        self.now = 0.0
        self.log: list[str] = []
        self.ended: set[tuple[str, int]] = set()
        self.flying: dict[tuple[str, int], dict[tuple[int, int], Dispatch]] = {}
        self.done: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self.alive: set[int] = set(range(len(queue.instances)))
        self._timer = 0
        self._happens: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = count()

    def at(self, when: float, what: Callable[[], Any]) -> None:
        """Let `what` happen then. It returns what the queue commands; None: nothing happened."""
        heappush(self._happens, (when, next(self._order), what))

    def broken(self, what: str) -> ContractBroken:
        return ContractBroken(f"{self.where}: {what}")

    def run(self, until: float = float("inf"), steps: int = STEPS) -> None:
        """Let happen what is to happen until then."""
        for _ in range(steps):
            if not self._happens or self._happens[0][0] > until:
                return
            self.now, _, what = heappop(self._happens)
            commands = what()
            if commands is not None:
                self.heed(commands)
                self.round()
        raise self.broken(f"it wakes its queue without end: {steps} events in {self.now:.0f} s")

    def round(self) -> None:
        """A scheduling round."""
        commands = self.queue.dispatch(self.now)
        self.heed(commands)
        error = self.queue.faults.error
        if error is not None:
            cause = error.__cause__
            if isinstance(cause, ContractBroken):
                raise cause
            raise self.broken(str(error)) from error

    def heed(self, commands: Sequence[Any]) -> None:
        for command in commands:
            match command:
                case Dispatch():
                    self._sent(command)
                case SetTimer(at=at):
                    self._timer += 1  # it takes the place of the one before
                    self.at(max(at, self.now), partial(self._wakes, self._timer))
                case Tell(event=RowsBegan()):
                    pass  # its rows go on
                case Tell(run=run, event=event):
                    key = run, event.primitive
                    self.log.append(f"{self.now:.6f} {key} {type(event).__name__}")
                    if self.queue.continuous and isinstance(event, Completed):
                        continue  # its prompt is read; the call goes on
                    self.ended.add(key)
                case PolicyFailed(error=error):
                    raise self.broken(str(error))

    def _wakes(self, timer: int) -> Any:
        return self.queue.woken(Timer("e"), self.now) if timer == self._timer else None

    def _sent(self, sent: Dispatch) -> None:
        self.log.append(f"{self.now:.6f} to {sent.instance}: {_told(sent.slices)}")
        if sent.instance not in self.alive:
            raise self.broken(
                f"instance {sent.instance} is down, and was sent {_told(sent.slices)}"
            )
        for work, lo, hi in sent.slices:
            key = work.run, work.primitive
            for a, b in (*self.flying.get(key, ()), *self.done.get(key, ())):
                if lo < b and a < hi:
                    raise self.broken(f"items {lo}..{hi} of {key} were sent twice")
            self.flying.setdefault(key, {})[lo, hi] = sent
        self.takes(sent)

    def takes(self, sent: Dispatch) -> None:
        """Let a batch end some time."""
        raise NotImplementedError

    def landed(self, sent: Dispatch, k: int, outcome: Outcome) -> bool:
        """A slice of a batch has come back; whether that was still to come."""
        work, lo, hi = sent.slices[k]
        key = work.run, work.primitive
        if self.flying.get(key, {}).get((lo, hi)) is not sent:
            return False  # its instance died meanwhile
        del self.flying[key][lo, hi]
        if not isinstance(outcome, Cause):
            self.done.setdefault(key, []).append((lo, hi))
        return True


def queue_of_one(
    continuous: bool, weight: int, policy: BatchingPolicy, router: RoutingPolicy, where: str
) -> EngineQueue:
    """Of one instance."""
    costs = {} if continuous else {op: Cost(0.05, 0.01) for op in LANES}
    profile = EngineProfile(costs, StepTime(0.01, 0.001), max_batch=weight)
    limits = Limits(weight, 4, 1, continuous, None, BLOCK)
    return watched_queue([limits], profile, policy, router, where)


def watched_queue(
    limits: Sequence[Limits],
    profile: EngineProfile,
    policy: BatchingPolicy,
    router: RoutingPolicy,
    where: str,
) -> EngineQueue:
    """A queue that asks the policy, and is looked at when it does."""
    asked: Any = AskedPolicy(policy, where)
    queue = EngineQueue("e", limits, asked, router, [profile] * len(limits))
    queue.faults.batching = type(policy).__name__
    return queue
