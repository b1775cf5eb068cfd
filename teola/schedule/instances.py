"""The instances of one engine as its queue sees them: what is in flight, how much room is left.

A *batch* engine's instance is full until one of its `concurrency` batches is done, or waits for
queries that it began itself: they may need its place. A *continuous* engine's (an LLM's) takes
calls while prompt tokens in prefilling stay below `max_batch` and within its free KV memory, and
calls below `max_sequences`; with nothing in flight it always takes one, because its caches can be
evicted. Each instance has limits of its own. Long because it is one state, kept in order.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from teola.engine import EngineKind
from teola.policies.routing.base import Capacity, Load, Loads
from teola.policies.work import Slots
from teola.profile import DIFFER, unlike
from teola.schedule.health import Health
from teola.schedule.quota import ApiAccount, Quota, Refusal

CALLS_S: Final = 1.0
"""For so long after a call that is no row, places are left to others like it."""
KEPT: Final = 8
"""One place in so many, and at least one of two or more."""
LOOKS_S: Final = 30.0
"""So often a slow instance gets a call, from which one learns whether it still is."""
MOST_LOOKED_AT: Final = 64
"""Fast instances that are looked at for room."""
ALL: Final[Container[int]] = range(2**31)
"""Instances."""


def kept_for_calls(places: int) -> int:
    """How many of an instance's places are not given to rows while calls come."""
    return max(1, places // KEPT) if places > 1 else 0


class Limits(NamedTuple):
    """Capacity of one instance; see EngineSpec. continuous: an LLM. kv_blocks: of its cache, where
    that is known, of block_tokens tokens each. independent: no call there holds another one up."""

    max_batch: int
    max_sequences: int
    concurrency: int
    continuous: bool
    kv_blocks: int | None = None
    block_tokens: int = 16
    independent: bool = False

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that its cache holds, where that is known."""
        return None if self.kv_blocks is None else self.kv_blocks * self.block_tokens

    def by_text(self, block_tokens: int) -> Limits:
        """The same with blocks of so many tokens, as prompts are known by there."""
        held = self.kv_tokens
        blocks = None if held is None else held // block_tokens
        return self._replace(kv_blocks=blocks, block_tokens=block_tokens)

    @classmethod
    def of(cls, declared: Capacity, kind: EngineKind) -> Limits:
        """As `declared`, by its EngineSpec or EngineProfile, of an instance of an engine of this
        kind."""
        return cls(
            declared.max_batch,
            declared.max_sequences,
            declared.concurrency,
            kind is EngineKind.LLM,
            declared.kv_blocks,
            declared.block_tokens,
        )


@dataclass(slots=True)
class Instance:
    """What one instance can take, and what is in flight there.

    up: it can be reached.
    gone: nothing need wait for it, though it may come back.
    weight: items in flight, or tokens to be computed of calls that have given none.
    context: tokens of all calls in flight.
    entries: calls, or slices of batches, in flight.
    free: tokens its KV memory could take when it last told, less what was sent since (None: it
        does not tell).
    ejections, restarts: how often so far.
    waiting: batches that have left their places to others.
    sent_at: when it was sent something last.
    batches: slices left in each batch.
    health: None while nothing ever failed there.
    quota: None while nobody said that its server takes only so much.
    refused: the last batch that it did not take.
    rows: those of `entries` that leave room to calls.
    """

    limits: Limits
    up: bool = True
    gone: bool = False
    weight: int = 0
    context: int = 0
    entries: int = 0
    free: int | None = None
    ejections: int = 0
    restarts: int = 0
    waiting: int = 0
    sent_at: float = 0.0
    batches: dict[int, int] = field(default_factory=dict)
    health: Health | None = None
    quota: Quota | None = None
    refused: int = -1
    rows: int = 0

    @property
    def running(self) -> int:
        """Batches that need their places."""
        return len(self.batches) - self.waiting

    def left(self, weight: int, entries: int) -> int:
        """Tokens that an LLM may still be sent, if it takes so many, and so many calls, in all."""
        if self.entries >= entries:
            return 0
        left = weight - self.weight
        return min(left, self.free) if self.free is not None and self.entries else left

    def usable(self, now: float) -> bool:
        """Whether it may be sent anything."""
        return (
            self.up
            and (self.health is None or not self.health.ejected(now))
            and (self.quota is None or not self.quota.closed(now))
        )

    @property
    def calls(self) -> int:
        """In flight, as its server counts them: a batch is one."""
        return self.entries if self.limits.continuous else len(self.batches)


class Instances:
    """All instances of an engine. Those with room are kept in order, whichever changes."""

    def __init__(self, limits: Sequence[Limits]) -> None:
        self._all = [Instance(limit) for limit in limits]
        self._whole = [
            Slots(i, limit.max_batch, limit.max_sequences, True) for i, limit in enumerate(limits)
        ]
        self._open = Loads(Load(i, 0.0) for i in range(len(limits)))
        self._weak: set[int] = set()
        self._gone = 0
        self.lost = not limits
        """Whether all are gone."""
        self.least = min((limit.max_batch for limit in limits), default=0)
        """What each of them has room for, while nothing else is there."""
        self.changed: set[int] = set()
        """For `open`, and whoever else wants to know; cleared by the latter."""
        self.stale: set[int] = set()
        """The same, for the view."""
        self.last_call, self.leaves_room = -inf, False
        """When the last call came that is no row, and whether rows are there that leave room."""
        self.slowness: Sequence[float] = ()
        """How many times as long as the fastest each takes; empty where they are alike."""
        self._fastest: tuple[int, ...] = ()
        self._slow: tuple[int, ...] = ()
        self._items = self._entries = 0
        self.usual_items = 1.0
        """Tokens of a call, about, as long as that has not moved by a quarter."""
        self.has_limited = False
        """Whether anything ever waited because no server took anything."""
        self._limited_s, self._limited_since = 0.0, -1.0

    def __getitem__(self, i: int) -> Instance:
        return self._all[i]

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def weak(self) -> Iterable[int]:
        """Instances that were ejected or refused something: only the time tells whether they are
        usable."""
        return self._weak

    def others(self, i: int, now: float) -> bool:
        """Whether an instance besides `i` may be sent something."""
        return any(other.usable(now) for k, other in enumerate(self._all) if k != i)

    @property
    def busy(self) -> bool:
        """Whether anything is in flight."""
        return any(instance.batches or instance.weight for instance in self._all)

    @property
    def mean_tokens(self) -> float:
        """Tokens of a call's prompt, on average of those that were sent (0: none was)."""
        return self._items / self._entries if self._entries else 0.0

    def fits(self, some: Sequence[Instance]) -> float:
        """How many calls, with prompts as long as they were on average, some of the instances have
        KV memory for. Infinite where one of them does not tell, or nothing was sent yet."""
        if not self._items:
            return inf
        held = [instance.limits.kv_tokens for instance in some]
        known = sum(tokens for tokens in held if tokens is not None)
        return inf if None in held else known * self._entries / self._items

    # --- what changes ---------------------------------------------------------------------

    def down(self, i: int, healing: bool) -> None:
        """Instance `i` is gone."""
        self._here(i, up=False, gone=not healing)
        self._changed(i)

    def found(self, i: int, there: bool) -> None:
        """Whether instance `i` could be started."""
        self._here(i, up=there, gone=not there)
        self._changed(i)

    def restored(self, i: int) -> None:
        """Instance `i` can take work, as a fresh one."""
        instance = self._all[i]
        self._here(i, up=True, gone=False)
        instance.free = None
        instance.restarts += 1
        if instance.health is not None:
            instance.health.reset()
        if instance.quota is not None:
            instance.quota.restored()
        self._changed(i)

    def failed(self, i: int, now: float, *, lost: bool) -> float | None:
        """A request failed on instance `i` by its fault; when it is ejected: until when."""
        instance = self._all[i]
        health = instance.health = instance.health or Health()
        until = health.failed(now, lost=lost)
        if until is not None:
            instance.ejections += 1
            self._weak.add(i)
            self.stale.add(i)
        return until

    def limit(self, i: int, engine: str, account: ApiAccount | None = None) -> Quota:
        """What the server of instance `i` takes, of which something is known now. account: what it
        shares with others."""
        instance = self._all[i]
        if instance.quota is None:
            instance.quota = Quota(f"{engine}/{i}", account)
            self._weak.add(i)
            self.stale.add(i)
        return instance.quota

    def refused(
        self, i: int, engine: str, why: Refusal, batch: int, after: int, now: float
    ) -> float:
        """A slice of this batch was refused by instance `i`; until when that is left alone. after:
        the number of the next batch."""
        quota, instance = self.limit(i, engine), self._all[i]
        if instance.limits.continuous:
            quota.refused(why, batch, after, instance.calls, now)
        elif batch != instance.refused:  # it was one call, of which the first slice tells
            quota.refused(why, batch, after, instance.calls - (batch in instance.batches), now)
        instance.refused = batch
        self._changed(i)
        return quota.closed_until

    def began(self, i: int) -> None:
        """A call on instance `i` gave its first token."""
        if (quota := self._all[i].quota) is not None:
            quota.began()

    def came_back(self, i: int, batch: int, now: float) -> None:
        """A slice of this batch came back from instance `i`."""
        instance = self._all[i]
        if instance.quota is None:
            return
        if instance.limits.continuous or batch not in instance.batches:
            instance.quota.came_back(instance.calls + 1, now)

    def limited(self, now: float, *, waits: bool) -> None:
        """Whether something waits. If it does because no server takes anything, count that."""
        if not self._weak and self._limited_since < 0:
            return
        closed = waits and not any(instance.usable(now) for instance in self._all)
        if closed and self._limited_since < 0 and self.opens_at(now) is not None:
            self._limited_since, self.has_limited = now, True
        elif not closed and self._limited_since >= 0:
            self._limited_s += now - self._limited_since
            self._limited_since = -1.0

    def limited_s(self, now: float) -> float:
        """Seconds for which something has waited because no server took anything."""
        since = self._limited_since
        return self._limited_s + (now - since if since >= 0 else 0.0)

    def opens_at(self, now: float) -> float | None:
        """When the first of those that take nothing now, for no reason but the time, takes
        something; None: there are none."""
        if not self._weak:
            return None
        times = (
            quota.opens_at(now)
            for i in self._weak
            if (quota := self._all[i].quota) is not None and self._all[i].up and quota.closed(now)
        )
        return min(times, default=None)

    def weigh(self, seconds: Sequence[float]) -> None:
        """So long typical work takes on each of them; they are alike if none takes much longer than
        another."""
        apart, least = unlike(seconds), min(seconds)
        if not apart and not self.slowness:
            return
        self.slowness = [value / least for value in seconds] if apart else ()
        fast = [slowness <= DIFFER for slowness in self.slowness]
        self._fastest = tuple(i for i, value in enumerate(fast) if value)
        self._slow = tuple(i for i, value in enumerate(fast) if not value)
        self._reckon()

    def _reckon(self) -> None:
        """Put all of them in order anew."""
        self.usual_items = self._items / self._entries if self._entries else 1.0
        self.changed |= set(range(len(self._all)))

    def due(self, now: float) -> Iterator[int]:
        """Slow ones that have had nothing for so long that one does not know whether they still
        are."""
        for i in self._slow:
            instance = self._all[i]
            idle = now >= instance.sent_at + LOOKS_S and not instance.entries
            if idle and instance.usable(now) and self.room(i, now) is not None:
                yield i

    def worth(self, i: int, waiting: int, now: float, among: Container[int] = ALL) -> bool:
        """Whether one of so many works that wait for any instance is done on `i` sooner than if it
        waited for the fastest, all of whose places are taken. among: only these count."""
        if not self.slowness or self.slowness[i] <= DIFFER:
            return True
        places = 0
        for k in islice(self._fastest, MOST_LOOKED_AT):
            if k not in among:
                continue
            instance = self._all[k]
            if k in self._open:
                return True  # it was asked before, and what is left does not go there
            if instance.usable(now) and instance.entries:
                places += instance.entries
        return not places or self.slowness[i] <= 1 + waiting / places

    def _changed(self, i: int) -> None:
        self.changed.add(i)
        self.stale.add(i)

    def _here(self, i: int, *, up: bool, gone: bool) -> None:
        instance = self._all[i]
        self._gone += gone - instance.gone
        self.lost = self._gone == len(self._all)
        instance.up, instance.gone = up, gone

    def told(self, i: int, free_tokens: int) -> None:
        """Instance `i` says how much more its KV memory can take."""
        self._all[i].free = free_tokens
        self._changed(i)

    def waits(self, i: int, change: int) -> None:
        """So many more batches on instance `i` have left their places to others."""
        self._all[i].waiting += change
        self._changed(i)

    def send(self, i: int, batch: int, items: int, entries: int, found: int = 0) -> Instance:
        """A batch of so many items (tokens, some of which are found) and slices goes to instance
        `i`."""
        instance = self._all[i]
        self._items += items
        self._entries += entries
        if self.slowness and abs(self._items / self._entries - self.usual_items) > (
            self.usual_items / 4
        ):
            self._reckon()
        instance.weight += items - found
        instance.context += items
        instance.entries += entries
        if instance.free is not None:
            instance.free -= items
        instance.batches[batch] = entries
        self._changed(i)
        return instance

    def land(self, i: int, batch: int, items: int, weight: int, entries: int = 1) -> Instance:
        """A slice of a batch has ended on instance `i`, or so many rows of one: `items` of it, and
        gives `weight` back."""
        instance = self._all[i]
        instance.entries -= entries
        instance.weight -= weight
        instance.context -= items
        entries_left = instance.batches.pop(batch) - entries
        if entries_left:
            instance.batches[batch] = entries_left
        self._changed(i)
        return instance

    def prefilled(self, i: int, weight: int) -> None:
        """So many tokens of a call that is still there are prefilled."""
        self._all[i].weight -= weight
        self._changed(i)

    def validate(self, now: float) -> None:
        """Raises AssertionError if one that has not changed is in the wrong place. O(n): for tests;
        how much one takes that was ejected is only worked out when it is asked for."""
        gone = sum(instance.gone for instance in self._all)
        assert self._gone == gone, f"{self._gone} instances are counted as gone, and not {gone}"
        loads = dict(self._open)
        for i in range(len(self)):
            if i in self.changed or i in self._weak:
                continue
            room = self.room(i, now) is not None
            assert (i in loads) == room, f"instance {i} has room: {room}, but is listed: {not room}"
            assert not room or loads[i] == self._load(i), f"instance {i} is listed with {loads[i]}"

    # --- room -----------------------------------------------------------------------------

    def open(self, now: float) -> Loads:
        """Instances with room. How much one may take that was ejected depends on the time."""
        if self._weak:
            self.changed |= self._weak
            for i in [i for i in self._weak if self._well(i, now)]:
                self._weak.discard(i)
                self.stale.add(i)
        for i in self.changed:
            if self._takes(i, now):
                self._open.put(i, load := self._load(i), self._rank(i, load))
            else:
                self._open.drop(i)
        return self._open

    def _well(self, i: int, now: float) -> bool:
        """Whether what instance `i` takes depends on the time no more."""
        instance = self._all[i]
        return instance.quota is None and (instance.health is None or instance.health.well(now))

    def _takes(self, i: int, now: float) -> bool:
        """Whether there is `room`."""
        instance = self._all[i]
        limits = instance.limits
        if self._weak and i in self._weak:
            return self.room(i, now) is not None
        if limits.continuous:
            return instance.up and instance.left(limits.max_batch, limits.max_sequences) > 0
        return instance.up and instance.running < limits.concurrency

    def _load(self, i: int) -> float:
        instance = self._all[i]
        limits = instance.limits
        if limits.continuous:
            return instance.context / limits.max_batch
        return instance.weight / limits.max_batch + instance.running

    def _rank(self, i: int, load: float) -> float | None:
        """When one more would be done, where instances differ."""
        if not self.slowness:
            return None
        limits, more = self._all[i].limits, 1.0
        if limits.continuous:
            more = self.usual_items / limits.max_batch
        return (load + more) * self.slowness[i]

    def room(self, i: int, now: float) -> Slots | None:
        """What instance `i` can take; None: nothing."""
        instance = self._all[i]
        limits = instance.limits
        if not instance.up:
            return None
        if self._weak and i in self._weak:
            return self._room_of_weak(i, now)
        if limits.continuous:
            return self._room_of_llm(i, limits.max_batch, limits.max_sequences, now)
        return self._whole[i] if instance.running < limits.concurrency else None

    def _room_of_llm(self, i: int, weight: int, entries: int, now: float) -> Slots | None:
        instance = self._all[i]
        left, running = instance.left(weight, entries), instance.entries
        if left <= 0:
            return None
        held_up = 0 if instance.limits.independent else running - instance.rows
        room = Slots(i, left, entries - running, instance.weight == 0, held_up)
        if not self.leaves_room or now >= self.last_call + CALLS_S:
            return room
        return room._replace(kept=kept_for_calls(entries))

    def _room_of_weak(self, i: int, now: float) -> Slots | None:
        """Room of one that was ejected or refused something: none, that of a probe, or a share."""
        instance = self._all[i]
        limits = instance.limits
        health, quota = instance.health, instance.quota
        spare_calls = quota.room(instance.calls, now) if quota is not None else limits.max_sequences
        if spare_calls < 1 or (health is not None and health.ejected(now)):
            return None
        if health is not None and health.half_open(now):
            return None if instance.entries else Slots(i, limits.max_batch, 1, True)
        share = health.share(now) if health is not None else 1.0
        weight = max(1, int(limits.max_batch * share))
        entries = max(1, int(limits.max_sequences * share))
        if limits.continuous:
            return self._room_of_llm(
                i, weight, int(min(entries, instance.entries + spare_calls)), now
            )
        if instance.running >= max(1, int(limits.concurrency * share)):
            return None
        rationed = instance.quota is not None and instance.quota.rationed
        return Slots(i, weight, entries, True, rationed=rationed)
