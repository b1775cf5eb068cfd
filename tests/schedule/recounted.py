"""The life of an engine's queue, drawn from a seed, and beside it a record in plain lists.

The record knows what was submitted, sent and told, and adds it all up anew whenever it is asked.
Only where calls go is read from the queue.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from teola.errors import EngineError
from teola.policies import batching
from teola.policies.routing import RoutingPolicy
from teola.policies.routing.base import InstanceView
from teola.policies.work import Work
from teola.profile import EngineProfile, StepTime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    CallEnded,
    Cause,
    Dispatch,
    FirstToken,
    InstanceChanged,
    InstanceDown,
    InstanceUp,
    PrefixChanged,
)
from teola.schedule.instances import Limits
from tests.policies.routed import call

BLOCK = 4
"""Tokens of a block."""
LIMITS = [
    Limits(300, 40, 1, True, 60, BLOCK),
    Limits(500, 6, 1, True, None, BLOCK),
    Limits(300, 40, 1, True, 200, BLOCK),
    Limits(200, 3, 1, True, 25, BLOCK),
]
PROFILES = [
    EngineProfile(step=StepTime(0.01, 0, 3e-7, 1e-4, 1e-8), max_batch=300),
    EngineProfile(step=StepTime(0.02, 0, 1e-7, 2e-4, 5e-8), max_batch=500),
    EngineProfile(step=StepTime(0.01, 0, 3e-7, 1e-4, 1e-8), max_batch=300),
    EngineProfile(step=StepTime(0.005, 0, 2e-7, 5e-5, 1e-8), max_batch=200),
]


@dataclass
class Call:
    """state: queued, prefilling or decoding. at: the instance that it is bound to, or runs on.
    found: tokens that it was to find there."""

    run: str
    total: int
    keys: tuple[Hashable, ...]
    at: int = -1
    found: int = 0
    state: str = "queued"
    batch: int = -1


@dataclass
class Server:
    """kept: keys of the blocks that it says it keeps. told: tokens of free memory that it told
    last (None: never), and sent: the prompts that went there since."""

    up: bool = True
    told: int | None = None
    sent: list[int] = field(default_factory=list)
    kept: set[Hashable] = field(default_factory=set)


class Life:
    """One queue and its record. last: the instance that was sent something last. answers: tokens
    of each that came back."""

    def __init__(self, seed: int, routing: RoutingPolicy) -> None:
        self.draw, self.now, self.last = random.Random(seed), 0.0, -1
        self.calls: list[Call] = []
        self.servers = [Server() for _ in LIMITS]
        self.answers: list[int] = []
        self.more: list[Callable[[], None]] = []
        """What happens besides."""
        self.queue = EngineQueue("e", LIMITS, batching.make("fifo"), routing, PROFILES)
        for i in range(len(LIMITS)):  # each tells, so that nothing is assumed
            self.queue.prefixes(PrefixChanged("e", i), 0.0)

    def steps(self, count: int) -> Iterator[str]:
        """Live on; what has just happened."""
        kinds = [
            *[self.submit] * 6,
            *[self.first] * 6,
            *[self.end] * 4,
            *[self.tell] * 3,
            *[self.forget] * 2,
            self.memory,
            self.withdraw,
            self.flood,
            self.down,
            self.up,
            self.up,
            *self.more,
        ]
        for k in range(count):
            self.now = float(k)
            happens = self.draw.choice(kinds)
            happens()
            yield happens.__name__
            self.send()
            yield f"{happens.__name__}, sent"

    # --- what happens -----------------------------------------------------------------------

    def prompt(self) -> tuple[int, tuple[Hashable, ...]]:
        """Tokens of a prompt, and the keys of its full blocks: what stands there up to their end.
        Few ways to go on, so that prompts begin alike."""
        total = self.draw.choice([1, 3, 4, 5, 16, 17, 40, 41, 120, 150])
        said: tuple[int, ...] = ()
        keys: list[Hashable] = []
        for _ in range(total // BLOCK):
            said = (*said, self.draw.choice([0, 0, 0, 1]))
            keys.append(said)
        return total, tuple(keys)

    def probe(self) -> Work:
        """A call that nobody has submitted."""
        total, keys = self.prompt()
        avoid = self.draw.choice([-1, -1, 0, 1, 2, 3])
        return call("probe", keys, self.now, total=total, avoid=avoid)

    def submit(self, home: int | None = None) -> None:
        total, keys = self.prompt()
        run = f"q{self.queue.retry_budget.requests}"
        if home is None:
            home = self.draw.choice([-1, -1, -1, 0, 1, 2, 3])
        one = Call(run, total, keys)
        self.calls.append(one)
        self.queue.submit(call(run, keys, self.now, total=total, affinity=home), self.now)
        self.bind(one, self.queue.works[run, 0].affinity)

    def bind(self, one: Call, at: int) -> None:
        """It is bound there (-1: nowhere)."""
        one.at, one.state, one.found, one.batch = -1, "queued", 0, -1
        found = self.found(at, one.keys, one.total) if at >= 0 else 0
        one.at, one.found = at, found

    def flood(self) -> None:
        """Many calls at once for one instance."""
        home = self.draw.randrange(len(LIMITS))
        for _ in range(self.draw.choice([5, 20, 70])):
            self.submit(home)

    def send(self) -> None:
        for sent in self.queue.dispatch(self.now):
            if isinstance(sent, Dispatch):
                self.last = sent.instance
                for work, _, _ in sent.slices:
                    one = next(each for each in self.calls if each.run == work.run)
                    one.state, one.at, one.batch = "prefilling", sent.instance, sent.batch
                    one.found = work.found  # it may have been placed anew just now
                    self.servers[sent.instance].sent.append(one.total)
        self.read_again()

    def first(self) -> None:
        for one in self.some("prefilling"):
            one.state = "decoding"
            self.queue.first_token(FirstToken("e", one.at, one.run, 0), self.now)

    def end(self) -> None:
        for one in self.some(self.draw.choice(["prefilling", "decoding", "decoding"])):
            self.calls.remove(one)
            generated = self.draw.choice([0, 1, 7, 900])
            ended = CallEnded("e", one.batch, one.run, 0, {}, 0, generated)
            self.queue.call_ended(ended, self.now)
            self.answers.append(generated)

    def fail(self) -> None:
        """One fails, and is tried again where that may be."""
        for one in self.some(self.draw.choice(["prefilling", "decoding"]))[:1]:
            cause = Cause(EngineError("it broke", retryable=True), retryable=True)
            ended = CallEnded("e", one.batch, one.run, 0, cause, None, None)
            self.queue.call_ended(ended, self.now)
        self.read_again()

    def some(self, state: str) -> Sequence[Call]:
        """One, or all, of those in flight there."""
        there = [one for one in self.calls if one.state == state]
        self.draw.shuffle(there)
        return there if self.draw.random() < 0.2 else there[:1]

    def withdraw(self) -> None:
        queued = [one for one in self.calls if one.state == "queued"]
        for one in queued[: self.draw.choice([1, 30])]:
            self.calls.remove(one)
            self.queue.withdraw(one.run, 0, self.now)

    def tell(self) -> None:
        i, (_, keys) = self.draw.randrange(len(LIMITS)), self.prompt()
        if self.servers[i].up:
            self.servers[i].kept.update(keys)
            self.queue.prefixes(PrefixChanged("e", i, keys), self.now)

    def forget(self) -> None:
        """An instance evicts a block, and all that stands behind it."""
        i = self.draw.randrange(len(LIMITS))
        kept = sorted(self.servers[i].kept, key=repr)
        if kept:
            gone = self.draw.choice(kept)
            evicted = [key for key in kept if key[: len(gone)] == gone]  # type: ignore[index,arg-type]
            self.servers[i].kept -= {*evicted}
            self.queue.prefixes(PrefixChanged("e", i, (), evicted), self.now)

    def memory(self) -> None:
        i = self.draw.randrange(len(LIMITS))
        free = self.draw.choice([0, 50, 100, 2000])
        self.servers[i].told, self.servers[i].sent = free, []
        self.queue.changed(InstanceChanged("e", i, free), self.now)

    def down(self) -> None:
        up = [i for i, server in enumerate(self.servers) if server.up]
        if len(up) > 1:
            i = self.draw.choice(up)
            self.servers[i].up = False
            self.servers[i].kept.clear()
            self.queue.down(InstanceDown("e", i), self.now)
            self.queue.prefixes(PrefixChanged("e", i), self.now)
            self.read_again()

    def up(self) -> None:
        down = [i for i, server in enumerate(self.servers) if not server.up]
        if down:
            i = self.draw.choice(down)
            self.servers[i] = Server()
            self.queue.up(InstanceUp("e", i), self.now)
            self.queue.prefixes(PrefixChanged("e", i), self.now)
            self.read_again()

    def read_again(self) -> None:
        """Where calls are that were placed anew."""
        for one in [*self.calls]:
            work = self.queue.works.get((one.run, 0))
            if work is None:
                self.calls.remove(one)
            elif not work.flying:
                one.at, one.found = work.affinity, work.found
                one.state, one.batch = "queued", -1

    # --- what follows from it ---------------------------------------------------------------

    def flying(self, i: int) -> list[Call]:
        return [one for one in self.calls if one.at == i and one.state != "queued"]

    def bound(self, i: int) -> list[Call]:
        return [one for one in self.calls if one.at == i and one.state == "queued"]

    def free(self, i: int) -> int | None:
        server = self.servers[i]
        return None if server.told is None else server.told - sum(server.sent)

    def pending(self, i: int) -> int:
        """Prompt tokens that it has still to compute."""
        return sum(
            one.total - one.found for one in self.calls if one.at == i and one.state != "decoding"
        )

    def context(self, i: int) -> int:
        return sum(one.total for one in self.flying(i))

    def kept(self, i: int, keys: Sequence[Hashable]) -> int:
        """Blocks from the first on that it says it keeps."""
        return _leading(keys, self.servers[i].kept)

    def expected(self, i: int, keys: Sequence[Hashable]) -> int:
        """The same, with those that calls on their way there are to compute."""
        coming = set(self.servers[i].kept)
        for one in self.calls:
            if one.at == i and one.state != "decoding":
                coming.update(one.keys[one.found // BLOCK :])
        return _leading(keys, coming)

    def found(self, i: int, keys: Sequence[Hashable], total: int) -> int:
        """Tokens of a prompt that it need not compute; the last token it always computes."""
        blocks = self.expected(i, keys) if self.queue.placing.by_keys else 0
        while blocks * BLOCK >= total and blocks:
            blocks -= 1
        return blocks * BLOCK

    def view(self, i: int) -> InstanceView:
        flying, bound = self.flying(i), self.bound(i)
        return InstanceView(
            usable=self.servers[i].up,
            running=len(flying),
            prefilling=sum(one.total - one.found for one in flying if one.state == "prefilling"),
            context=self.context(i),
            queued=sum(one.total - one.found for one in bound),
            free=self.free(i),
            waiting=len(bound),
            awaited=sum(one.total for one in bound),
            kept=len(self.servers[i].kept) if self.queue.placing.by_keys else 0,
        )

    def room(self, i: int) -> int:
        """Tokens that it may be sent (0: nothing)."""
        flying, limits = self.flying(i), LIMITS[i]
        if not self.servers[i].up or len(flying) >= limits.max_sequences:
            return 0
        begun = sum(one.total - one.found for one in flying if one.state == "prefilling")
        room, free = limits.max_batch - begun, self.free(i)
        if flying and free is not None and free < room:
            room = free
        return max(0, room)


def _leading(keys: Sequence[Hashable], known: set[Hashable]) -> int:
    count = 0
    for key in keys:
        if key not in known:
            return count
        count += 1
    return count
