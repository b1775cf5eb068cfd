"""EngineQueue: the scheduler of one engine (paper, section 6.2), as a state machine.

It holds primitives of many queries, lets the batching policy choose what goes together and the
routing policy where to, keeps each instance's capacity, joins the slices of a primitive, and
retries what may be retried. What is sent to an instance is bounded by what it can run now, so the
order is decided here and not in the engine's own queue.

An instance that keeps failing is ejected for a while (`health`), unless it is the last one. One
that is gone takes nothing until it is up again; when none is left that is worth waiting for, what
is queued fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from teola.errors import EngineUnavailable
from teola.policies.batching.base import BatchingPolicy
from teola.policies.routing.base import RoutingPolicy
from teola.policies.work import Slice, Work
from teola.schedule.asking import Asking
from teola.schedule.events import (
    AbortRequest,
    Cause,
    Completed,
    Dispatch,
    Ejected,
    Failed,
    FirstToken,
    InstanceChanged,
    InstanceDown,
    MemberCompleted,
    Piece,
    Recovered,
    Retried,
    SetTimer,
    SliceCompleted,
    SliceFailed,
)
from teola.schedule.instances import Instances, Limits

RETRY_BUDGET: Final = 0.1
RETRY_FLOOR: Final = 10
"""Retries may be 10 % of an engine's requests, and always at least this many."""


class Tell(NamedTuple):
    """For the core: an event of one of its runs."""

    run: str
    event: Completed | Failed


@dataclass(slots=True)
class Flight:
    """A work that has slices dispatched. counts: what completed slices delivered so far. streamed:
    its tokens have begun to leave for the client."""

    work: Work
    done: int = 0
    counts: dict[str, int] | None = None
    slices: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    prefilling: bool = False
    streamed: bool = False
    failed: bool = False


Output = Dispatch | AbortRequest | SetTimer | Retried | Ejected | Recovered | Tell


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
        self.instances = Instances(limits, instances)
        self.flights: dict[tuple[str, int], Flight] = {}
        self.queued = 0
        self._asking = Asking()
        self._next_batch = 0
        self._requests = 0
        self._retries = 0
        self._timer: float | None = None
        self._refusal: EngineUnavailable | None = None

    # --- what comes in --------------------------------------------------------------------

    def submit(self, work: Work, now: float) -> None:
        """Queue a primitive; `dispatch` will send it."""
        work.spans = [(0, work.total)]
        if work.affinity >= 0 and not self.instances[work.affinity].usable(now):
            work.affinity = -1
        self.flights[work.run, work.primitive] = Flight(work)
        self._requests += 1
        self._queue(work, now)

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
        if flight is None:
            return []
        out: list[Output] = []
        health = self.instances[event.instance].health
        if health is not None:
            ramp = health.succeeded(now)
            out += [Recovered(self.engine, event.instance)] if ramp else []
            out += [SetTimer(self.engine, at) for at in ramp]
        if not flight.failed:
            out += self._join(flight, event)
        return out

    def _join(self, flight: Flight, event: SliceCompleted) -> list[Output]:
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
        if flight is None:
            return []
        out = self._blame(event, now) if event.cause.retryable else []
        if flight.failed:
            return out
        work = flight.work
        if self._may_retry(flight, event.cause):
            self._retry(flight, event, now)
            return [*out, Retried(work.run, work.primitive, event.cause)]
        out.append(Tell(work.run, Failed(work.primitive, event.cause)))
        return out + self.withdraw(work.run, work.primitive, now)

    def _blame(self, event: SliceFailed, now: float) -> list[Output]:
        """The instance may be at fault: eject it if that is certain enough, but never the last."""
        i = event.instance
        if not self.instances[i].up or not self.instances.others(i, now):
            return []
        lost = isinstance(event.cause.error, EngineUnavailable)
        until = self.instances.failed(i, now, lost=lost)
        if until is None:
            return []
        self._unbind(i, now)
        return [Ejected(self.engine, i, until, event.cause), SetTimer(self.engine, until)]

    def _unbind(self, i: int, now: float) -> None:
        """What should have gone to instance `i` may go anywhere, and is computed anew there.

        That is another try, which costs none; fifo puts it before the others, hence the order.
        """
        for flight in reversed(self.flights.values()):
            old = flight.work
            if old.affinity == i and old.queued:
                self._unqueue(old, now)
                tries, retries = old.tries + 1, old.retries + 1
                flight.work = replace(old, affinity=-1, tries=tries, retries=retries, queued=True)
                self._queue(flight.work, now)

    def _retry(self, flight: Flight, event: SliceFailed, now: float) -> None:
        """Queue the failed slice, with what is still queued of the same primitive, anew."""
        old = flight.work
        self._unqueue(old, now)
        elsewhere = self.instances.others(event.instance, now)
        self._retries += 1
        flight.work = replace(
            old,
            spans=[(event.lo, event.hi), *old.spans],
            tries=old.tries + 1,
            affinity=-1,
            avoid=event.instance if elsewhere else -1,
            queued=True,
        )
        self._queue(flight.work, now)

    def first_token(self, event: FirstToken, now: float) -> list[Output]:
        """The prefilling of a group is over: its tokens no longer count against the budget."""
        flight = self.flights.get((event.run, event.primitive))
        if flight is None or not flight.prefilling:
            return []
        if all(instance != event.instance for instance, _ in flight.slices.values()):
            return []  # from an instance that is gone
        flight.prefilling, flight.streamed = False, event.to_client
        self.instances.prefilled(event.instance, flight.work.total)
        if flight.failed:
            return []
        done = Completed(event.primitive, {"sequence": 1}, None, event.instance)
        return [Tell(event.run, done)]

    def member(self, event: MemberCompleted, now: float) -> list[Output]:
        """A decoding of a group delivered."""
        flight = self.flights.get((event.run, event.head))
        if flight is None or flight.failed:
            return []
        if all(instance != event.instance for instance, _ in flight.slices.values()):
            return []  # from an instance that is gone
        return [Tell(event.run, Completed(event.primitive, event.counts))]

    def down(self, event: InstanceDown, now: float, cause: Cause) -> list[Output]:
        """An instance is gone: everything on it has failed there."""
        self.instances.down(event.instance, event.healing)
        self._unbind(event.instance, now)
        self._asking.forget()
        out: list[Output] = []
        for (run, primitive), flight in list(self.flights.items()):
            flight.work.avoid = -1
            for (lo, hi), (instance, batch) in list(flight.slices.items()):
                if instance == event.instance:
                    where = (self.engine, instance, batch, run, primitive)
                    out += self.failed(SliceFailed(*where, lo, hi, cause), now)
        return out

    def draining(self, instance: int, now: float) -> None:
        """An instance is sent nothing more; what it has goes on."""
        self.instances.down(instance, healing=True)
        self._unbind(instance, now)

    def up(self, instance: int) -> None:
        """An instance can take work, as a fresh one."""
        self.instances.restored(instance)

    def changed(self, event: InstanceChanged) -> None:
        """An instance told how much more its KV memory can take."""
        self.instances.told(event.instance, event.free_tokens)

    def refuse(self, why: EngineUnavailable | None) -> None:
        """No instance could be started, so what is queued fails for that reason; None: they are."""
        self._refusal = why
        for i in range(len(self.instances)):
            self.instances.found(i, why is None)

    def woken(self) -> None:
        """The timer fired, perhaps a little early: it may be set again for the same time."""
        self._timer = None

    # --- what goes out --------------------------------------------------------------------

    def dispatch(self, now: float) -> list[Output]:
        """One scheduling round: fill every instance that has room."""
        if self.queued and self.instances.lost:
            return self._give_up(now)
        out: list[Output] = []
        while self.queued:
            sent = self._round(now)
            if sent is None:
                break
            out.append(sent)
        wake = self._asking.wake(now) if self.queued else None
        if wake is not None and wake != self._timer:
            self._timer = wake
            out.append(SetTimer(self.engine, wake))
        return out

    def _give_up(self, now: float) -> list[Output]:
        """No instance is left, and none is worth waiting for."""
        gone = EngineUnavailable(f"engine {self.engine!r}: all its instances are gone")
        error = self._refusal or gone
        out: list[Output] = []
        for flight in [f for f in self.flights.values() if f.work.queued]:
            work = flight.work
            out.append(Tell(work.run, Failed(work.primitive, Cause(error))))
            out += self.withdraw(work.run, work.primitive, now)
        return out

    def _round(self, now: float) -> Dispatch | None:
        for i in self._candidates(now):
            slots = self.instances.room(i, now)
            slices = self.batching.choose(slots, now) if slots else None
            if slices:
                self.routing.dispatched(i, now)
                return self._send(i, self._share(i, slices, now), now)
            self._asking.declined(i, self.batching.wake_at(now))
        return None

    def _share(self, i: int, slices: list[Slice], now: float) -> list[Slice]:
        """What goes to instance `i` of a batch for it. While several LLM instances have no work,
        none takes more than its part of the calls: those that share a prefill wait for each other's
        tokens, and elsewhere they need not."""
        if len(slices) < 2 or not self.limits.continuous:
            return slices
        idle = self.instances.open(now).idle
        return slices if idle < 2 else slices[: self._asking.part(i, idle)]

    def _candidates(self, now: float) -> Iterable[int]:
        """The instances to ask."""
        if len(self.instances) == 1:
            return (0,)
        loads = self.instances.open(now)
        self._asking.changed(self.instances.changed)
        self.instances.changed.clear()
        return self._asking.candidates(self.routing, loads, now)

    def _send(self, i: int, slices: list[Slice], now: float) -> Dispatch:
        batch, weight = self._next_batch, 0
        self._next_batch += 1
        pieces = []
        for work, lo, hi in slices:
            flight = self.flights[work.run, work.primitive]
            flight.slices[lo, hi] = (i, batch)
            flight.prefilling = self.limits.continuous
            self._take(work, lo, hi, now)
            pieces.append(Piece(work.run, work.primitive, lo, hi, work.arrival, work.total))
            weight += hi - lo
        self.instances.send(i, batch, weight, len(pieces))
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

    def _queue(self, work: Work, now: float) -> None:
        self.queued += 1
        self._asking.queued(work)
        self.batching.add(work, now)

    def _unqueue(self, work: Work, now: float) -> None:
        if work.queued:
            work.queued = False
            self.queued -= 1
            self._asking.left(work)
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
        weight = event.hi - event.lo if flight.prefilling or not self.limits.continuous else 0
        flight.prefilling = False
        self.instances.land(event.instance, event.batch, weight)
        if flight.failed and not flight.slices:
            del self.flights[event.run, event.primitive]
        return flight

    def _may_retry(self, flight: Flight, cause: Cause) -> bool:
        return (
            cause.retryable
            and not flight.streamed
            and flight.work.tries < flight.work.retries
            and self._retries < max(RETRY_FLOOR, RETRY_BUDGET * self._requests)
        )

    @property
    def retries(self) -> int:
        """How often something was tried again so far."""
        return self._retries

    @property
    def idle(self) -> bool:
        """Nothing queued, nothing in flight."""
        return not self.flights and not self.instances.busy
