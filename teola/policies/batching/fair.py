"""fair: tenants and applications share an engine by weight (start-time fair queueing).

Works form *flows*: one for each tenant, application, or both. What a flow was given, in items
(prompt tokens) divided by its weight, moves its tag on; the flow with the lowest tag goes first,
and what it leaves of a batch is filled from the next one, so batches are as full as without
fairness. Within a flow another policy decides.

Of two flows that always have something queued for an instance, neither is ever ahead by more than
one batch (divided by its weight): the one that is served was behind before. A flow that comes, or
comes back, begins at the tag of what was served last: it gets nothing for the time in which it
wanted nothing, and it still owes what it had too much. When nothing at all is queued, all start
anew.

Where applications have flows of their own, those of a tenant that hold nothing but rows of tables
come behind the tenant's calls: rows share with other tenants, and wait for their own one's calls.

    Goyal, Vin, Cheng: Start-time Fair Queueing, SIGCOMM 1996.

Flows are in a heap by tag: a choice costs O(log n) for each flow that it asks, besides the inner
policy's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import chain
from math import inf
from sys import maxsize
from typing import Final

from teola.errors import InputError, UnknownName
from teola.policies.batching.base import Attached, BatchingPolicy, by_keys, is_eager, priorities
from teola.policies.routing.base import EngineView
from teola.policies.work import Slice, Slots, Work

BY: Final[Mapping[str, Callable[[Work], str]]] = {
    "tenant": lambda work: work.asker.tenant,
    "app": lambda work: work.asker.app,
    "both": lambda work: f"{work.asker.tenant}/{work.asker.app}",
}
"""What makes a flow, and its name, by which `weights` knows it."""


class Flow:
    """Works that are entitled to a share together.

    tag: what it was given, divided by its weight, since all began anew. entry: its place in the
    heap of those that have something queued. rows: how many of its works are windows of rows that
    leave room to calls. priority: of one of its works, by its own policy.
    """

    __slots__ = (
        *("entry", "inner", "live", "name", "priority", "rows", "seq", "tag", "tenant", "weight"),
    )

    def __init__(
        self, name: str, tenant: str, seq: int, weight: float, tag: float, inner: BatchingPolicy
    ) -> None:
        self.name, self.seq, self.weight, self.tag, self.inner = name, seq, weight, tag, inner
        self.tenant, self.live, self.rows = tenant, 0, 0
        self.priority = priorities(inner)
        self.entry: FlowEntry | None = None


FlowEntry = tuple[float, int, Flow]


class Fair:
    """inner: makes the policy of a flow. by: see BY. weights: of flows by name (1 if not named)."""

    def __init__(
        self, inner: Callable[[], BatchingPolicy], by: str, weights: Mapping[str, float]
    ) -> None:
        if by not in BY:
            raise UnknownName("way to form flows", by, BY, "batching policy 'fair'")
        for name, weight in weights.items():
            if (
                isinstance(weight, bool)
                or not isinstance(weight, (int, float))
                or not 0 < weight < inf
            ):
                raise InputError(
                    f"batching policy 'fair': the weight of {name!r} must be a number above 0, "
                    f"got {weight!r}"
                )
        example = inner()  # what is wrong with its name or options is told now
        self._eager, self._priority = is_eager(example), priorities(example)
        self._make, self._name, self._weights = inner, BY[by], dict(weights)
        self._defers = by == "both"
        """Whether a tenant's rows and calls are in flows of their own."""
        self.wants_keys = by_keys(example)
        self._view: EngineView | None = None
        self._begin_anew()

    @property
    def eager(self) -> bool:
        """Whether the policy within flows is: of what is alone, no flow is kept."""
        return self._eager

    def attach(self, view: EngineView) -> None:
        self._view = view

    def _inner(self) -> BatchingPolicy:
        """The policy of a flow."""
        made = self._make()
        if self._view is not None and isinstance(made, Attached):
            made.attach(self._view)
        return made

    def _begin_anew(self) -> None:
        self._flows: dict[str, Flow] = {}
        self._queued: list[FlowEntry] = []
        self._idle: list[FlowEntry] = []
        self._live, self._made, self._clock = 0, 0, 0.0
        self._offered: list[tuple[Flow, Work, int]] = []
        self._asked: list[Flow] = []
        self._calling: dict[str, int] = {}
        """How many works of each tenant are queued that are no rows, where a tenant has flows."""

    def _count(self, flow: Flow, work: Work, change: int) -> None:
        if work.spec.yields:
            flow.rows += change
        elif self._defers:
            self._calling[flow.tenant] = self._calling.get(flow.tenant, 0) + change

    def add(self, work: Work, now: float) -> None:
        self._settle()
        name = self._name(work)
        flow = self._flows.get(name)
        if flow is None:
            self._made += 1
            weight = self._weights.get(name, 1.0)
            tenant = work.asker.tenant
            flow = Flow(name, tenant, self._made, weight, self._clock, self._inner())
            self._flows[name] = flow
        if flow.live == 0:
            self._enter(flow)
        flow.live += 1
        self._live += 1
        self._count(flow, work, 1)
        flow.inner.add(work, now)

    def remove(self, work: Work, now: float) -> None:
        flow = self._flows[self._name(work)]
        flow.inner.remove(work, now)
        flow.live -= 1
        self._live -= 1
        self._count(flow, work, -1)
        if self._live == 0:
            self._begin_anew()
        elif flow.live == 0:
            flow.entry = None
            heappush(self._idle, (flow.tag, flow.seq, flow))

    def choose(self, slots: Slots, now: float) -> list[Slice]:
        self._settle()
        self._asked = []
        batch = _Batch(slots, now)
        aside: list[FlowEntry] = []
        flows = self._in_order(aside)
        waiting = self._first(batch, flows)
        for flow in chain(waiting if slots.running else (), flows):
            if not batch.slices or batch.full:
                break
            self._ask(flow, batch)
        for entry in aside:
            heappush(self._queued, entry)
        return batch.slices

    def priority(self, work: Work, now: float) -> int:
        """As within its flow: what was sent has had its turn among the flows."""
        flow = self._flows.get(self._name(work))
        return self._priority(work, now) if flow is None else flow.priority(work, now)

    def wake_at(self, now: float) -> float | None:
        times = (flow.inner.wake_at(now) for flow in self._asked)
        return min((at for at in times if at is not None), default=None)

    # --- flows ------------------------------------------------------------------------------

    def _first(self, batch: _Batch, flows: Iterator[Flow]) -> list[Flow]:
        """Ask until one begins the batch; those that wait for others to begin it.

        Where a flow has something that is only too large for now, the room is kept for it.
        """
        waiting: list[Flow] = []
        for flow in flows:
            if self._ask(flow, batch) or batch.too_large(flow):
                break
            waiting.append(flow)
        return waiting

    def _ask(self, flow: Flow, batch: _Batch) -> bool:
        self._asked.append(flow)
        slices = batch.take(flow)
        self._offered += [
            (flow, work, work.remaining) for work in dict.fromkeys(s.work for s in slices)
        ]
        return bool(slices)

    def _in_order(self, aside: list[FlowEntry]) -> Iterator[Flow]:
        """Flows by tag, taken off the heap and laid aside; a tenant's rows behind all its calls."""
        later: list[Flow] = []
        while self._queued:
            entry = heappop(self._queued)
            flow = entry[-1]
            if entry is not flow.entry:
                continue
            if flow.rows == flow.live and self._calling.get(flow.tenant):
                flow.tag = max(flow.tag, self._clock)  # it does not save up what it waits for
                flow.entry = (flow.tag, flow.seq, flow)
                later.append(flow)
                aside.append(flow.entry)
                continue
            aside.append(entry)
            yield flow
        yield from later

    def _enter(self, flow: Flow) -> None:
        flow.entry = (flow.tag, flow.seq, flow)
        heappush(self._queued, flow.entry)

    def _settle(self) -> None:
        """Charge what was dispatched of the last batch that was offered."""
        items_by_flow: dict[Flow, int] = {}
        for flow, work, before in self._offered:
            items_by_flow[flow] = items_by_flow.get(flow, 0) + work.weighs(before - work.remaining)
        self._offered = []
        served = [flow for flow, items in items_by_flow.items() if items]
        if served:
            self._clock = max(self._clock, served[0].tag)
        for flow in served:
            flow.tag += items_by_flow[flow] / flow.weight
            if flow.live:
                self._enter(flow)
        self._forget()

    def _forget(self) -> None:
        """Flows that are idle and owe nothing."""
        while self._idle and self._idle[0][0] <= self._clock:
            _, seq, flow = heappop(self._idle)
            if flow.live == 0 and flow.tag > self._clock:
                heappush(self._idle, (flow.tag, seq, flow))
            elif flow.live == 0 and self._flows.get(flow.name) is flow:
                del self._flows[flow.name]


class _Batch:
    """A batch that several flows fill: of one lane, which the first one sets."""

    def __init__(self, slots: Slots, now: float) -> None:
        self.room, self.now = slots, now
        self.slices: list[Slice] = []

    def take(self, flow: Flow) -> list[Slice]:
        """What the flow puts into the room that is left."""
        slices = flow.inner.choose(self.room, self.now)
        if slices:
            self.slices += slices
            weight, entries, kept = self.room.weight, self.room.entries, self.room.kept
            for work, lo, hi in slices:
                weight -= (hi - lo) * work.missing if work.row_tokens else hi - lo
                entries -= work.entries(hi - lo)
            lane = slices[0].work.spec.lane
            self.room = Slots(
                self.room.instance,
                weight,
                entries,
                False,
                lane=lane,
                rationed=self.room.rationed,
                kept=kept,
            )
        return slices

    def too_large(self, flow: Flow) -> bool:
        """Whether the flow would begin a batch if nothing else were running there."""
        if self.room.idle:
            return False
        return bool(flow.inner.choose(self.room._replace(weight=maxsize, idle=True), self.now))

    @property
    def full(self) -> bool:
        return self.room.weight <= 0 or self.room.entries <= 0
