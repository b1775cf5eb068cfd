"""Timetable: when each primitive of a graph would run if its query had all engines for itself.

    embed.1 ▓▓▓▓                     one instance: the stages follow one another,
    embed.2     ▓▓▓▓                 and what is ready at one moment shares a batch
    ingest.1    ░
    ingest.2        ░

List scheduling: whenever an instance is free, it takes of what is ready the primitive with the
longest path behind it, and of the same kind of work as much as its batch holds; prefills that are
ready together are shared by the instances that have nothing to do. Decodings run beside each other;
a prefilling stops those that run on its instance, so it waits for them as long as that delays
nothing. Branches that are not expected take no instance. Backwards (from the outputs to the
inputs), the same schedule says how long the query goes on after a primitive begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from teola.graph import Graph, Op, Primitive, Ref
from teola.graph.ops import CONTROL, DECODES, PREFILLS
from teola.passes.estimate import expected, planned_tokens, seconds
from teola.profile import Profile


@dataclass(frozen=True, slots=True)
class Timetable:
    """ends_s: primitive -> when it is done, in seconds from the start. after: primitive -> what it
    waited for last: one that it follows, or one that had its instance before."""

    ends_s: Mapping[str, float]
    after: Mapping[str, str | None]
    last: str | None

    @property
    def length_s(self) -> float:
        """When the last expected primitive is done."""
        return self.ends_s[self.last] if self.last else 0.0

    @property
    def path(self) -> list[str]:
        """What the length is made of, first to last."""
        path: list[str] = []
        id = self.last
        while id is not None:
            path.append(id)
            id = self.after[id]
        return path[::-1]


def timetable(graph: Graph, profile: Profile, *, backwards: bool = False) -> Timetable:
    """The schedule of `graph` by the times of `profile`."""
    return _Scheduling(graph, profile, backwards).run()


@dataclass(slots=True, eq=False)
class _Instance:
    """free_s: when what it runs is done. last: what that is. decoding: what it generates."""

    free_s: float = 0.0
    last: str | None = None
    decoding: set[str] = field(default_factory=set)


class _Scheduling:
    def __init__(self, graph: Graph, profile: Profile, backwards: bool) -> None:
        self.graph, self.profile = graph, profile
        order = graph.order[::-1] if backwards else graph.order
        before = graph.children if backwards else graph.parents
        after = graph.parents if backwards else graph.children
        self.order, self.before = order, before
        self.certain = {id for id in order if expected(graph, graph[id], profile)}
        self.seconds = {id: seconds(graph, graph[id], profile) for id in order}
        self.next = {id: [q for q in after[id] if q in self.certain] for id in order}
        self.behind: dict[str, float] = {}
        for id in reversed(order):
            longest = max((self.behind[q] for q in after[id]), default=0.0)
            self.behind[id] = longest + self.seconds[id]
        self.place = {id: k for k, id in enumerate(order)}
        self.waits = {id: sum(q in self.certain for q in before[id]) for id in order}
        self.ends: dict[str, float] = {}
        self.after: dict[str, str | None] = {}
        self._events: list[tuple[float, int, str]] = []
        self._ready: dict[tuple[str, Op], list[tuple[float, int, str]]] = {}
        self._instances: dict[str, list[_Instance]] = {}
        self._instance: dict[str, _Instance] = {}
        self._longest = max(self.behind.values(), default=0.0)
        self._due: dict[str, float] = {}

    def run(self) -> Timetable:
        for id in self.order:
            if id in self.certain and not self.waits[id]:
                self._arrive(id, 0.0, None)
        self._dispatch(0.0)
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] <= now:
                _, place, id = heappop(self._events)
                if not id:  # only the time has come for what could wait
                    continue
                if (resumes_s := self._due.get(id, now)) > now:  # it was stopped for a while
                    heappush(self._events, (resumes_s, place, id))
                else:
                    self._finish(id, now)
            self._dispatch(now)
        last = max(self.ends, key=lambda id: (self.ends[id], self.place[id]), default=None)
        for id in self.order:
            if id not in self.certain:
                begins = max((self.ends[q] for q in self.before[id]), default=0.0)
                self.ends[id] = begins + self.seconds[id]
        return Timetable(self.ends, self.after, last)

    def _finish(self, id: str, now: float) -> None:
        self.ends[id] = now
        if self._due.pop(id, None) is not None:
            self._instance[id].decoding.remove(id)
        for follower in self.next[id]:
            self.waits[follower] -= 1
            if self.waits[follower] == 0:
                self._arrive(follower, now, id)

    def _arrive(self, id: str, now: float, after: str | None) -> None:
        """All that `id` waits for has ended; `after` was the last of it."""
        self.after[id] = after
        p = self.graph[id]
        if p.op in CONTROL or p.op in DECODES:
            if p.op in DECODES and after is not None:
                self._decode(p, now)
            heappush(self._events, (now + self.seconds[id], self.place[id], id))
            return
        lane = Op.PREFILLING if p.op in PREFILLS else p.op
        entry = (-self.behind[id], self.place[id], id)
        heappush(self._ready.setdefault((p.engine, lane), []), entry)
        if p.engine not in self._instances:
            engine = self.profile.engine(p.engine)
            count = engine.instances * engine.concurrency
            self._instances[p.engine] = [_Instance() for _ in range(count)]

    def _decode(self, p: Primitive, now: float) -> None:
        """`p` generates where its sequence is, if that is known yet."""
        sequence = p.input("sequence")
        instance = self._instance.get(sequence.producer) if isinstance(sequence, Ref) else None
        if instance is not None:
            self._instance[p.id] = instance
            self._due[p.id] = now + self.seconds[p.id]
            instance.decoding.add(p.id)

    def _dispatch(self, now: float) -> None:
        for (engine, lane), ready in sorted(self._ready.items(), key=lambda lane: lane[1][:1]):
            while ready and (instance := self._room(engine, lane, ready[0], now)):
                batch = self._batch(ready, self._part(engine, lane, len(ready), now))
                taken_s = self._batch_seconds(batch)
                if lane is Op.PREFILLING:
                    for id in instance.decoding:
                        self._due[id] += taken_s
                for id in batch:
                    if instance.last is not None and self.ends.get(instance.last) == now:
                        self.after[id] = instance.last
                    self._instance[id] = instance
                    heappush(self._events, (now + taken_s, self.place[id], id))
                instance.free_s, instance.last = now + taken_s, batch[0]

    def _room(
        self, engine: str, lane: Op, first: tuple[float, int, str], now: float
    ) -> _Instance | None:
        """An instance for the batch that `first` leads, if it should go now."""
        free = [i for i in self._instances[engine] if i.free_s <= now]
        if lane is Op.PREFILLING and free:
            latest = self._longest + first[0]
            quiet = [i for i in free if not i.decoding]
            if not quiet and latest > now:
                heappush(self._events, (latest, -1, ""))
            free = quiet if quiet or latest > now else free
        return free[0] if free else None

    def _part(self, engine: str, lane: Op, ready: int, now: float) -> int:
        """How many of `ready` one instance takes: prefills are shared evenly by the instances
        without work."""
        if lane is not Op.PREFILLING:
            return ready
        idle = sum(i.free_s <= now and not i.decoding for i in self._instances[engine])
        return -(-ready // max(1, idle))

    def _batch(self, ready: list[tuple[float, int, str]], most: int) -> list[str]:
        """The most urgent primitive and what has room beside it, `most` at most."""
        first = heappop(ready)[2]
        batch, p = [first], self.graph[first]
        room = self.profile.engine(p.engine).max_batch - self._weight(p)
        while len(batch) < most and ready:
            weight = self._weight(self.graph[ready[0][2]])
            if weight > room:
                break
            room -= weight
            batch.append(heappop(ready)[2])
        return batch

    def _weight(self, p: Primitive) -> int:
        return planned_tokens(self.graph, p) if p.op in PREFILLS else p.items

    def _batch_seconds(self, batch: list[str]) -> float:
        """Seconds of `batch`: what a batch costs besides its items is paid once."""
        p = self.graph[batch[0]]
        base_s = self.profile.dispatch_s + self.profile.engine(p.engine).cost(p.op).base_s
        return sum(self.seconds[id] for id in batch) - base_s * (len(batch) - 1)
