"""What a routing policy is, and what it may know of its engine."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from teola.policies.reason import Because, Reason
from teola.policies.work import Work
from teola.profile import EngineProfile

ANY: Final = -1
"""Bound to no instance: whichever has room."""
HELD: Final = -2
"""Bound to no instance, and not to be sent yet (`holdable`)."""
MOST_HELD_S: Final = 300.0
"""How long after its arrival a work may still be held."""


class Load(NamedTuple):
    """An instance that can take work now. load: weight in flight, relative to its size."""

    instance: int
    load: float


class Loads:
    """The instances that can take work now, the least loaded first (ties: by number). Where one is
    known to be slower than another, first comes where one more would be done soonest (`rank`).

    It is kept in order while they change, so that a policy need not look at all of them: take what
    you need from the front of it, or of `after`.
    """

    __slots__ = ("_by_number", "_by_rank", "_load", "_rank", "idle")

    def __init__(self, loads: Iterable[Load] = ()) -> None:
        self._load: dict[int, float] = {}
        self._rank: dict[int, float] = {}
        self._by_rank: list[tuple[float, int]] = []
        self._by_number: list[int] = []
        self.idle = 0
        """How many have nothing in flight."""
        for instance, load in loads:
            self.put(instance, load)

    def __len__(self) -> int:
        return len(self._load)

    def __contains__(self, instance: int) -> bool:
        return instance in self._load

    def __iter__(self) -> Iterator[Load]:
        return (Load(instance, self._load[instance]) for _, instance in self._by_rank)

    @property
    def instances(self) -> Iterator[int]:
        """Which they are."""
        return (instance for _, instance in self._by_rank)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The instances by number."""
        return tuple(self._by_number)

    def after(self, instance: int) -> Iterator[Load]:
        """By number, beginning behind `instance` and going round."""
        numbers = self._by_number
        first = bisect_left(numbers, instance + 1)
        for k in range(len(numbers)):
            number = numbers[(first + k) % len(numbers)]
            yield Load(number, self._load[number])

    def put(self, instance: int, load: float, rank: float | None = None) -> None:
        """It can take work, and is so loaded. rank: what it is ordered by, if not that."""
        rank = load if rank is None else rank
        before, was = self._load.get(instance), self._rank.get(instance)
        if before == load and was == rank:
            return
        if was is None:
            insort(self._by_number, instance)
        else:
            del self._by_rank[bisect_left(self._by_rank, (was, instance))]
        self.idle += (load == 0.0) - (before == 0.0)
        self._load[instance], self._rank[instance] = load, rank
        insort(self._by_rank, (rank, instance))

    def drop(self, instance: int) -> None:
        """It can take nothing."""
        rank = self._rank.pop(instance, None)
        if rank is not None:
            self.idle -= self._load.pop(instance) == 0.0
            del self._by_rank[bisect_left(self._by_rank, (rank, instance))]
            del self._by_number[bisect_left(self._by_number, instance)]


class Dispatched(NamedTuple):
    """A batch went to `instance`. works: what is in it."""

    instance: int
    works: Sequence[Work]


class Prefilled(NamedTuple):
    """A call's prompt is computed there: its first token has come."""

    instance: int
    work: Work


class Finished(NamedTuple):
    """A slice came back, or failed. cached: of a call's prompt, tokens that the instance found in
    its cache; generated: tokens of its answer (None: it does not tell)."""

    instance: int
    work: Work
    failed: bool
    cached: int | None
    generated: int | None = None


class Left(NamedTuple):
    """A work that was queued is so no more, and was not dispatched: nobody waits for it."""

    work: Work


class Evicted(NamedTuple):
    """An instance tells that it keeps these blocks no more."""

    instance: int
    keys: Sequence[Hashable]


class Paused(NamedTuple):
    """A program waits for something else than its engine until its next call, of which `reason`
    tells, or makes none any more (ended)."""

    program: str
    reason: str
    ended: bool


class WentDown(NamedTuple):
    """An instance is gone, or is to be sent nothing more; what it kept may be lost."""

    instance: int


class CameUp(NamedTuple):
    """An instance can take work, as a fresh one."""

    instance: int


Happening = Dispatched | Prefilled | Finished | Left | Evicted | Paused | WentDown | CameUp


class InstanceView(NamedTuple):
    """An instance as it is now. Tokens are those of prompts.

    usable: it may be sent something, if it has room.
    running: calls (slices) in flight there.
    prefilling: tokens that are to be computed of those that have given none yet (items in flight).
    context: tokens of all of them, whether computed or found.
    queued: tokens that are to be computed of what is bound to it and was not sent.
    free: how many more its KV memory could take when it last told (None: it does not tell).
    waiting: calls (works) that are bound to it and were not sent.
    awaited: tokens of those, whether computed or found.
    kept: blocks that it keeps, as far as one knows.
    """

    usable: bool
    running: int
    prefilling: int
    context: int
    queued: int
    free: int | None
    waiting: int = 0
    awaited: int = 0
    kept: int = 0

    @property
    def pending(self) -> int:
        """Tokens that it is to compute before anything that comes now."""
        return self.prefilling + self.queued

    @property
    def calls(self) -> int:
        """Calls that run on the instance or are queued for it."""
        return self.running + self.waiting


class EngineView(Protocol):
    """What a routing policy may know of its engine. Reading changes nothing."""

    limits: Sequence[Capacity]
    """What each instance can take, by its number."""
    profiles: Sequence[EngineProfile]
    """The profile of each instance, by its number."""

    def __len__(self) -> int:
        """How many instances there are."""
        ...

    def instances(self, now: float) -> Sequence[InstanceView]:
        """All instances as they are now. One that has not changed is the same object as before."""
        ...

    def hits(self, keys: Sequence[Hashable], now: float) -> Mapping[int, int]:
        """How many of these blocks, from the first on, each instance keeps (none: left out)."""
        ...

    def expected(self, keys: Sequence[Hashable], now: float) -> Mapping[int, int]:
        """The same, with what it is to compute for calls that were sent or bound there."""
        ...

    def depth(self, i: int, keys: Sequence[Hashable], before: int) -> int:
        """How many of these blocks instance `i` keeps, which kept `before` of them when one last
        looked. O(what has changed)."""
        ...


class Capacity(Protocol):
    """What one instance can take."""

    @property
    def max_batch(self) -> int: ...

    @property
    def max_sequences(self) -> int: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def block_tokens(self) -> int: ...

    @property
    def kv_blocks(self) -> int | None: ...


def found_tokens(work: Work, blocks: int, block_tokens: int) -> int:
    """Tokens of a call's prompt that an instance finds which keeps so many of its first blocks. It
    computes the last token in any case, and with it the block in which that stands."""
    return min(blocks, max(0, work.tokens - 1) // block_tokens) * block_tokens


def holdable(work: Work, now: float) -> bool:
    """Whether `place` may answer HELD: not for what was sent or bound before, nor for long."""
    return not work.tries and work.affinity < 0 and now < work.arrival + MOST_HELD_S


class RoutingPolicy:
    """Decides where work runs: late, when an instance has room (`order`), or early, when it is
    queued (`place`). No I/O, no clock, no randomness; ties are broken by instance.

    wants_keys: works come with the keys of their prompts' blocks, and the view knows which instance
    keeps which. observes: what `observe` is told; by default nothing. ordered: what an `order` of
    its own goes by, for `Work.reason`. explains: whether `why` will be asked.
    """

    wants_keys: ClassVar[bool] = False
    observes: ClassVar[tuple[type, ...]] = ()
    ordered: ClassVar[Because] = Because.ROOM
    explains: bool = False
    view: EngineView

    def attach(self, view: EngineView) -> None:
        """Once, before anything else: the engine whose work it routes."""
        self.view = view

    def order(self, loads: Loads, now: float) -> Iterable[int]:
        """Instances with room, the one to prefer first, for what is bound to none. Only the first
        few are asked for, so make it lazy. By default the least loaded first."""
        return loads.instances

    def place(self, work: Work, now: float) -> int:
        """The instance to bind `work` to, or ANY. Asked when it is queued, and again when the
        instance is not to be had or another came up. What can be cut is never bound. By default
        its home, if it has one.

        HELD, if it is `holdable`: it waits where no batching policy knows of it, until `free` names
        it or it is no longer holdable; then this is asked again."""
        return work.home

    def why(self, work: Work, at: int, now: float) -> Reason:
        """Why `place` has just answered `at`, an instance besides the work's home, or HELD. Asked
        only where somebody observes, and before anything else happens; who changes something in
        `place` remembers there what it went by, if `explains`."""
        return Reason(Because.HELD if at == HELD else Because.POLICY)

    def free(self, now: float) -> Iterable[Work]:
        """The held works that `place` is to be asked about again, in this order. Asked in every
        round while something is held; it has to be quick when nothing has changed."""
        return ()

    def wake_at(self, now: float) -> float | None:
        """When to ask `free` again, though nothing happened (a time to come)."""
        return None

    def observe(self, event: Happening, now: float) -> None:
        """Something happened that `observes` names."""
