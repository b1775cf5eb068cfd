"""EngineQueue: the scheduler of one engine (paper, section 6.2), as a state machine.

It holds primitives of many queries, lets the batching policy choose what goes together and the
routing policy where to, keeps each instance's capacity, joins the slices of a primitive, and
retries what may be retried. What is sent to an instance is bounded by what it can run now, so the
order is decided here and not in the engine's own queue.

Two kinds of engines. A *batch* engine runs `concurrency` batches at a time; an instance is full
until one of them is done. A *continuous* engine (an LLM) takes calls while prompt tokens in
prefilling stay below `max_batch` and within its free KV memory, and calls below `max_sequences`.
An instance with nothing in flight always takes one call: its caches can be evicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from teola.policies.batching.base import BatchingPolicy
from teola.policies.routing.base import Load, RoutingPolicy
from teola.policies.work import Slice, Slots, Work
from teola.schedule.events import (
    AbortRequest,
    Cause,
    Completed,
    Dispatch,
    Failed,
    FirstToken,
    InstanceChanged,
    InstanceDown,
    MemberCompleted,
    Piece,
    Retried,
    SetTimer,
    SliceCompleted,
    SliceFailed,
)

RETRY_BUDGET: Final = 0.1
RETRY_FLOOR: Final = 10
"""Retries may be 10 % of an engine's requests, and always at least this many."""


class Limits(NamedTuple):
    """Capacity of one instance; see EngineSpec. continuous: an LLM."""

    max_batch: int
    max_sequences: int
    concurrency: int
    continuous: bool


class Tell(NamedTuple):
    """For the core: an event of one of its runs."""

    run: str
    event: Completed | Failed


@dataclass(slots=True)
class Instance:
    """What is in flight on one instance. batches: slices left in each. free: tokens its KV memory
    could take when it last told, less what was sent since (None: it does not tell)."""

    up: bool = True
    weight: int = 0
    entries: int = 0
    free: int | None = None
    batches: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Flight:
    """A work that has slices dispatched. counts: what completed slices delivered so far."""

    work: Work
    done: int = 0
    counts: dict[str, int] | None = None
    slices: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    prefilling: bool = False
    delivered: bool = False
    failed: bool = False


Output = Dispatch | AbortRequest | SetTimer | Retried | Tell


class EngineQueue:
    """State of one engine. Methods take what happened and return what follows from it."""

    def __init__(
        self,
        engine: str,
        limits: Limits,
        instances: int,
        batching: BatchingPolicy,
        routing: RoutingPolicy,
    ) -> None:
        self.engine, self.limits = engine, limits
        self.batching, self.routing = batching, routing
        self.instances = [Instance() for _ in range(instances)]
        self._whole = [
            Slots(i, limits.max_batch, limits.max_sequences, True) for i in range(instances)
        ]
        self.flights: dict[tuple[str, int], Flight] = {}
        self.queued = 0
        self._next_batch = 0
        self._requests = 0
        self._retries = 0
        self._timer: float | None = None

    # --- what comes in --------------------------------------------------------------------

    def submit(self, work: Work, now: float) -> None:
        """Queue a primitive; `dispatch` will send it."""
        work.spans = [(0, work.total)]
        if work.affinity >= 0 and not self.instances[work.affinity].up:
            work.affinity = -1
        self.flights[work.run, work.primitive] = Flight(work)
        self._requests += 1
        self.queued += 1
        self.batching.add(work, now)

    def withdraw(self, run: str, primitive: int, now: float) -> list[Output]:
        """Forget a primitive: dequeue it, abort what runs, free its slot when that has ended."""
        flight = self.flights.get((run, primitive))
        if flight is None:
            return []
        self._unqueue(flight.work, now)
        flight.failed = True
        if not flight.slices:
            del self.flights[run, primitive]
            return []
        return [
            AbortRequest(self.engine, instance, batch, run, primitive)
            for instance, batch in flight.slices.values()
        ]

    def completed(self, event: SliceCompleted, now: float) -> list[Output]:
        """A slice is done; tell the run once all of them are."""
        flight = self._landed(event)
        if flight is None or flight.failed:
            return []
        work = flight.work
        flight.done += event.hi - event.lo
        counts: Mapping[str, int] = event.counts
        if flight.done < work.total or flight.counts:
            joined = flight.counts = flight.counts or {}
            for port, count in counts.items():
                joined[port] = joined.get(port, 0) + count
            counts = joined
        if flight.done < work.total:
            return []
        del self.flights[work.run, work.primitive]
        if work.members:
            return []
        return [Tell(work.run, Completed(work.primitive, counts, None, event.instance))]

    def failed(self, event: SliceFailed, now: float) -> list[Output]:
        """A slice failed: queue it again if the rules allow, else tell the run."""
        flight = self._landed(event)
        if flight is None or flight.failed:
            return []
        work = flight.work
        if self._may_retry(flight, event.cause):
            self._retry(flight, event, now)
            return [Retried(work.run, work.primitive, event.cause)]
        out: list[Output] = [Tell(work.run, Failed(work.primitive, event.cause))]
        return out + self.withdraw(work.run, work.primitive, now)

    def _retry(self, flight: Flight, event: SliceFailed, now: float) -> None:
        """Queue the failed slice, with what is still queued of the same primitive, anew."""
        old = flight.work
        self._unqueue(old, now)
        elsewhere = any(up.up for i, up in enumerate(self.instances) if i != event.instance)
        self._retries += 1
        flight.work = replace(
            old,
            spans=[(event.lo, event.hi), *old.spans],
            tries=old.tries + 1,
            affinity=-1,
            avoid=event.instance if elsewhere else -1,
            queued=True,
        )
        self.queued += 1
        self.batching.add(flight.work, now)

    def first_token(self, event: FirstToken, now: float) -> list[Output]:
        """The prefilling of a group is over: its tokens no longer count against the budget."""
        flight = self.flights.get((event.run, event.primitive))
        if flight is None or not flight.prefilling:
            return []
        if all(instance != event.instance for instance, _ in flight.slices.values()):
            return []  # from an instance that is gone
        flight.prefilling = False
        self.instances[event.instance].weight -= flight.work.total
        if flight.failed:
            return []
        done = Completed(event.primitive, {"sequence": 1}, None, event.instance)
        return [Tell(event.run, done)]

    def member(self, event: MemberCompleted, now: float) -> list[Output]:
        """A decoding of a group delivered."""
        flight = self.flights.get((event.run, event.head))
        if flight is None or flight.failed:
            return []
        flight.delivered = True
        return [Tell(event.run, Completed(event.primitive, event.counts))]

    def down(self, event: InstanceDown, now: float, cause: Cause) -> list[Output]:
        """An instance is gone: everything on it has failed there."""
        self.instances[event.instance].up = False
        out: list[Output] = []
        for (run, primitive), flight in list(self.flights.items()):
            flight.work.avoid = -1
            if flight.work.affinity == event.instance:
                flight.work.affinity = -1
            for (lo, hi), (instance, batch) in list(flight.slices.items()):
                if instance == event.instance:
                    where = (self.engine, instance, batch, run, primitive)
                    out += self.failed(SliceFailed(*where, lo, hi, cause), now)
        return out

    def up(self, instance: int) -> None:
        """An instance can take work."""
        self.instances[instance].up = True

    def changed(self, event: InstanceChanged) -> None:
        """An instance told how much more its KV memory can take."""
        self.instances[event.instance].free = event.free_tokens

    # --- what goes out --------------------------------------------------------------------

    def dispatch(self, now: float) -> list[Output]:
        """One scheduling round: fill every instance that has room."""
        out: list[Output] = []
        while self.queued:
            sent = self._round(now)
            if sent is None:
                break
            out.append(sent)
        wake = self.batching.wake_at(now) if self.queued else None
        if wake is not None and wake > now and wake != self._timer:
            self._timer = wake
            out.append(SetTimer(self.engine, wake))
        return out

    def _round(self, now: float) -> Dispatch | None:
        free = self._free()
        if not free:
            return None
        if len(free) > 1:
            order = self.routing.order([Load(i, self._load(i)) for i in free], now)
        else:
            order = tuple(free)
        for instance in order:
            slices = self.batching.choose(free[instance], now)
            if slices:
                self.routing.dispatched(instance, now)
                return self._send(instance, slices, now)
        return None

    def _free(self) -> dict[int, Slots]:
        """Instances with room, and how much."""
        limits, found = self.limits, {}
        for i, instance in enumerate(self.instances):
            if not instance.up:
                continue
            if limits.continuous:
                weight = limits.max_batch - instance.weight
                if instance.free is not None and instance.entries:
                    weight = min(weight, instance.free)
                entries = limits.max_sequences - instance.entries
                if weight > 0 and entries > 0:
                    found[i] = Slots(i, weight, entries, instance.weight == 0)
            elif len(instance.batches) < limits.concurrency:
                found[i] = self._whole[i]
        return found

    def _load(self, i: int) -> float:
        instance, limits = self.instances[i], self.limits
        if limits.continuous:
            return instance.weight / limits.max_batch + instance.entries / limits.max_sequences
        return len(instance.batches) + instance.weight / limits.max_batch

    def _send(self, i: int, slices: list[Slice], now: float) -> Dispatch:
        instance, batch = self.instances[i], self._next_batch
        self._next_batch += 1
        pieces = []
        for work, lo, hi in slices:
            flight = self.flights[work.run, work.primitive]
            flight.slices[lo, hi] = (i, batch)
            flight.prefilling = self.limits.continuous
            self._take(work, lo, hi, now)
            pieces.append(Piece(work.run, work.primitive, lo, hi, work.arrival, work.total))
            instance.weight += hi - lo
            instance.entries += 1
            if instance.free is not None:
                instance.free -= hi - lo
        instance.batches[batch] = len(pieces)
        return Dispatch(self.engine, i, batch, tuple(pieces))

    def _take(self, work: Work, lo: int, hi: int, now: float) -> None:
        spans = work.spans
        if len(spans) == 1 and spans[0] == (lo, hi):
            spans.clear()
            self._unqueue(work, now)
            return
        for k, (a, b) in enumerate(spans):
            if a <= lo < b:
                spans[k : k + 1] = [span for span in ((a, lo), (hi, b)) if span[0] < span[1]]
                break
        if not spans:
            self._unqueue(work, now)

    def _unqueue(self, work: Work, now: float) -> None:
        if work.queued:
            work.queued = False
            self.queued -= 1
            self.batching.remove(work, now)

    def _landed(self, event: SliceCompleted | SliceFailed) -> Flight | None:
        """Free what the slice held; its flight, unless nobody waits for it."""
        flight = self.flights.get((event.run, event.primitive))
        if flight is None or flight.slices.get((event.lo, event.hi)) != (
            event.instance,
            event.batch,
        ):
            return None
        del flight.slices[event.lo, event.hi]
        instance = self.instances[event.instance]
        instance.entries -= 1
        if flight.prefilling or not self.limits.continuous:
            instance.weight -= event.hi - event.lo
            flight.prefilling = False
        instance.batches[event.batch] -= 1
        if instance.batches[event.batch] == 0:
            del instance.batches[event.batch]
        if flight.failed and not flight.slices:
            del self.flights[event.run, event.primitive]
        return flight

    def _may_retry(self, flight: Flight, cause: Cause) -> bool:
        return (
            cause.retryable
            and not flight.delivered
            and flight.work.tries < flight.work.retries
            and self._retries < max(RETRY_FLOOR, RETRY_BUDGET * self._requests)
        )

    @property
    def idle(self) -> bool:
        """Nothing queued, nothing in flight."""
        return not self.flights and not any(i.batches or i.weight for i in self.instances)
