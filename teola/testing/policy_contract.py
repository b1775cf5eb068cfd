"""check_policy: does a batching or routing policy keep its promises, whatever happens?

A real queue of the scheduler asks the policy, and what happens is random: work comes and is
withdrawn, batches end or fail, instances die and come back, timers fire. Then everything is well
for as long as it takes, and nothing may be left. The time is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final, TypeAlias

from teola.errors import EngineError, EngineUnavailable, InputError
from teola.graph import Op
from teola.policies import batching, routing
from teola.policies.batching.base import BatchingPolicy
from teola.policies.routing.base import RoutingPolicy
from teola.policies.work import Estimate, Slice, Slots, Work, WorkSpec
from teola.profile import Cost, EngineProfile, StepTime
from teola.registry import lacking, methods_of
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    BatchCompleted,
    CallEnded,
    Cause,
    Completed,
    Dispatch,
    FirstToken,
    InstanceDown,
    InstanceUp,
    Outcome,
    PrefixChanged,
    ProgramPaused,
    SetTimer,
    Tell,
    Timer,
)
from teola.schedule.faults import PolicyFailed
from teola.schedule.instances import Limits
from teola.testing.checking import ContractBroken

CASES: Final = 20
WORKS: Final = 60
"""That come in one case."""
NEWCOMERS: Final = 1500
"""That come after a work which waits: by then it has to have had its turn."""
PATIENCE_S: Final = 3600.0
"""Of made-up time, for what is left to be sent when nothing goes wrong any more."""
STEPS: Final = 20_000
"""Events of one case; a policy that asks to be woken for ever is stopped."""
BLOCK: Final = 4
"""Tokens of a block of a prompt's keys."""

Factory: TypeAlias = "Callable[[], BatchingPolicy | RoutingPolicy]"


def check_policy(policy: Factory, *, cases: int = CASES, seed: int = 0) -> None:
    """Let a batching or a routing policy schedule random events. policy: its class, or a function
    that makes a fresh one (`partial(Mine, weight=2)`).

    In each case some instances of an engine that takes batches, or of a language model, get about
    60 works of several queries, which have all that a policy may go by.

    Raises ContractBroken, which names the promise and the case, where

    * a method raises, or what it returns cannot be: an instance that is not, a slice of what is not
      queued, a batch of two lanes, for another instance, or larger than its room;
    * asking changes something: `choose`, asked twice, answers otherwise;
    * a work is lost, sent twice, or never sent though everything is well, or though only newcomers
      keep coming;
    * the same events have other consequences the second time, or works that are all alike are not
      sent in the order in which they came.

    Raises InputError for what is no policy of these two kinds.
    """
    one = policy()
    name = type(one).__name__
    if not lacking(one, methods_of(BatchingPolicy)):
        kind = "batching"
        pair = partial(_batching, policy)
    elif not lacking(one, methods_of(RoutingPolicy)):
        kind = "routing"
        pair = partial(_routing, policy)
    else:
        raise InputError(
            f"check_policy checks batching and routing policies, and {name} has the methods of "
            "neither"
        )
    for case in range(seed, seed + cases):
        where = f"{kind} policy {name}, case {case}"
        first = _Case(case, *pair(), where).run()
        again = _Case(case, *pair(), where).run()
        if first != again:
            k = next(k for k, (a, b) in enumerate(zip(first, again, strict=False)) if a != b)
            raise ContractBroken(
                f"{where}: the same events have other consequences the second time: "
                f"{first[k]} and then {again[k]}"
            )
    if kind == "batching":
        _Line(*pair(), f"batching policy {name}").run()
    for continuous in (False, True):
        for like in _LIKES:
            where = f"{kind} policy {name}, newcomers that are {like}"
            _Stream(like, continuous, *pair(), where).run()


def _batching(policy: Callable[[], Any]) -> tuple[BatchingPolicy, RoutingPolicy]:
    return policy(), routing.make("least_loaded")


def _routing(policy: Callable[[], Any]) -> tuple[BatchingPolicy, RoutingPolicy]:
    return batching.make("fifo"), policy()


class _Asked:
    """A batching policy, whose choices are looked at."""

    def __init__(self, inner: BatchingPolicy, where: str) -> None:
        self._inner, self._where = inner, where

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

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
        if wrong := _misfit(chosen, slots):
            raise ContractBroken(f"{self._where}: for {slots} it chose {_told(chosen)}: {wrong}")
        return chosen


def _told(slices: Sequence[Slice]) -> str:
    return str([f"{s.work.run}/{s.work.primitive}[{s.lo}:{s.hi}]" for s in slices])


def _misfit(chosen: Sequence[Slice], slots: Slots) -> str:
    """What is wrong with a batch for these slots, if anything."""
    weight = sum(hi - lo - work.found for work, lo, hi in chosen)
    lanes = {work.spec.lane for work, _, _ in chosen}
    works = {id(work) for work, _, _ in chosen}
    if len(works) > slots.entries:
        return f"{len(works)} works, where {slots.entries} have room"
    if weight > slots.weight and (len(chosen) > 1 or not slots.idle):
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


class _World:
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


class _Case(_World):
    """About `WORKS` works on one to three instances, of which most things go wrong."""

    def __init__(
        self, seed: int, policy: BatchingPolicy, router: RoutingPolicy, where: str
    ) -> None:
        self.random = draw = Random(seed)
        self.continuous = seed % 2 == 1
        self.instances = draw.randint(1, 3)
        self.troubled = True
        self.came: list[tuple[str, int]] = []
        weight = draw.choice([40, 200]) if self.continuous else draw.choice([1, 4, 16])
        limits = Limits(
            weight,
            draw.choice([2, 8]) if self.continuous else 1024,
            1 if self.continuous else draw.randint(1, 2),
            self.continuous,
            draw.choice([None, 64]),
            BLOCK,
        )
        profile = EngineProfile(
            {} if self.continuous else {op: Cost(0.05, 0.01) for op in _LANES},
            StepTime(0.01, 0.001),
            max_batch=weight,
        )
        queue = _queue([limits] * self.instances, profile, policy, router, where)
        super().__init__(queue, where)

    def run(self, until: float = float("inf"), steps: int = STEPS) -> list[str]:  # type: ignore[override]
        """All of it; what the queue commanded."""
        draw = self.random
        for k in range(WORKS):
            self.at(draw.uniform(0, 10), partial(self._comes, k))
        for _ in range(draw.randint(0, 4)):
            i, when = draw.randrange(self.instances), draw.uniform(0, 10)
            self.at(when, partial(self._dies, i))
            self.at(when + draw.uniform(0.1, 3), partial(self._returns, i))
        if self.continuous:
            for k in range(8):
                paused = ProgramPaused("e", f"p{k % 4}", "tool", ended=k > 5)
                self.at(draw.uniform(0, 10), partial(self._pauses, paused))
        super().run(until=10.0)
        self.troubled = False
        for i in range(self.instances):
            self._returns(i)
        self.round()
        super().run(until=self.now + PATIENCE_S)
        left = [key for key in self.queue.works if key not in self.ended]
        if left:
            raise self.broken(
                f"{len(left)} works are left after {PATIENCE_S:.0f} s in which nothing goes wrong, "
                f"of which {self.queue.queued} were not sent, such as {left[0]}"
            )
        lost = set(self.came) - self.ended
        if lost:
            raise self.broken(f"{len(lost)} works were lost, such as {min(lost)}")
        if not self.queue.idle:
            raise self.broken("no work is left, but the queue takes an instance to be busy")
        return self.log

    # --- what happens -------------------------------------------------------------------------

    def _comes(self, k: int) -> Any:
        draw = self.random
        work = _work(k, self.now, draw, self.continuous)
        self.came.append((work.run, work.primitive))
        self.queue.submit(work, self.now)
        if draw.random() < 0.1:
            self.at(self.now + draw.expovariate(2), partial(self._withdraws, work))
        return ()

    def _withdraws(self, work: Work) -> Any:
        key = work.run, work.primitive
        if key in self.queue.works:
            self.ended.add(key)
        return self.queue.withdraw(work.run, work.primitive, self.now)

    def _pauses(self, paused: ProgramPaused) -> Any:
        return self.queue.paused(paused, self.now)

    def _dies(self, i: int) -> Any:
        if i not in self.alive:
            return None
        self.alive.discard(i)
        for key, sent in self.flying.items():
            self.flying[key] = {span: at for span, at in sent.items() if at.instance != i}
        return self.queue.down(InstanceDown("e", i), self.now)

    def _returns(self, i: int) -> Any:
        if i in self.alive:
            return None
        self.alive.add(i)
        return self.queue.up(InstanceUp("e", i), self.now)

    def takes(self, sent: Dispatch) -> None:
        draw = self.random
        if not self.continuous:
            self.at(self.now + draw.uniform(0.05, 0.5), partial(self._ends, sent))
            return
        for k, (work, _, _) in enumerate(sent.slices):
            first = self.now + draw.uniform(0.02, 0.3)
            self.at(first, partial(self._first, sent, work))
            self.at(first + draw.uniform(0.01, 0.5), partial(self._call_ends, sent, k))

    def _first(self, sent: Dispatch, work: Work) -> Any:
        if sent.instance not in self.alive:
            return None
        if work.keys and self.random.random() < 0.5:
            self.queue.prefixes(PrefixChanged("e", sent.instance, work.keys), self.now)
        event = FirstToken("e", sent.instance, work.run, work.primitive)
        return self.queue.first_token(event, self.now)

    def _outcome(self) -> Outcome:
        if self.troubled and self.random.random() < 0.15:
            lost = self.random.random() < 0.3
            error = EngineUnavailable("lost") if lost else EngineError("failed", retryable=True)
            return Cause(error, retryable=True)
        return {"out": 1}

    def _ends(self, sent: Dispatch) -> Any:
        outcomes = [self._outcome() for _ in sent.slices]
        for k, outcome in enumerate(outcomes):
            self.landed(sent, k, outcome)
        return self.queue.completed(BatchCompleted("e", sent.batch, outcomes), self.now)

    def _call_ends(self, sent: Dispatch, k: int) -> Any:
        work, outcome = sent.slices[k].work, self._outcome()
        if self.landed(sent, k, outcome) and not isinstance(outcome, Cause):
            self.ended.add((work.run, work.primitive))
        cached = self.random.choice([None, 0, work.total // 2])
        event = CallEnded("e", sent.batch, work.run, work.primitive, outcome, cached, 9)
        return self.queue.call_ended(event, self.now)


_LANES: Final = (Op.SEARCHING, Op.INGESTION)


def _work(k: int, now: float, draw: Random, continuous: bool) -> Work:
    """Work number `k`, with all that a policy may go by."""
    query = draw.randrange(8)
    rest = draw.uniform(0.1, 10)
    estimate = Estimate(rest, draw.uniform(0, 5), rest * draw.uniform(1, 3), 0.05, 0.1, 0.01)
    op = Op.PREFILLING if continuous else draw.choice(_LANES)
    spec = WorkSpec(
        engine="e",
        op=op,
        component=f"c{draw.randrange(4)}",
        lane=None if continuous else op,
        cuttable=not continuous and draw.random() < 0.7,
        depth=draw.randrange(6),
        members=(9,) if continuous else (),
        retries=2,
        estimate=estimate if draw.random() < 0.8 else Estimate(float(draw.randrange(6))),
        planned_output=50,
    )
    total = draw.randint(1, 120) if continuous else draw.randint(1, 24)
    shared = draw.randrange(3)
    blocks = total // BLOCK if continuous else 0
    keys = tuple(("k", shared if b < 10 else k, b) for b in range(blocks))
    return Work(
        spec=spec,
        run=f"q{query}",
        primitive=k,
        total=total,
        arrival=now,
        seq=k,
        tenant=f"t{query % 3}",
        app=f"a{query % 2}",
        admitted=max(0.0, now - draw.uniform(0, 1)),
        program=f"p{query % 4}",
        keys=keys,
    )


_LIKES: Final[dict[str, dict[str, Any]]] = {
    "alike": {},
    "short": {"rest_s": 0.1, "depth": 0},
    "long": {"rest_s": 100.0, "depth": 50},
    "of another tenant": {"tenant": "other"},
    "of the same prompt": {"shared": True},
}
"""What is said of newcomers beside a work that waits."""


def _queue_of_one(
    continuous: bool, weight: int, policy: BatchingPolicy, router: RoutingPolicy, where: str
) -> EngineQueue:
    """Of one instance."""
    costs = {} if continuous else {op: Cost(0.05, 0.01) for op in _LANES}
    profile = EngineProfile(costs, StepTime(0.01, 0.001), max_batch=weight)
    limits = Limits(weight, 4, 1, continuous, None, BLOCK)
    return _queue([limits], profile, policy, router, where)


def _queue(
    limits: Sequence[Limits],
    profile: EngineProfile,
    policy: BatchingPolicy,
    router: RoutingPolicy,
    where: str,
) -> EngineQueue:
    """A queue that asks the policy, and is looked at when it does."""
    asked: Any = _Asked(policy, where)
    queue = EngineQueue("e", limits, asked, router, [profile] * len(limits))
    queue.faults.batching = type(policy).__name__
    return queue


class _Line(_World):
    """Works that differ in nothing but when they came, on an instance that takes one at a time."""

    def __init__(self, policy: BatchingPolicy, router: RoutingPolicy, where: str) -> None:
        super().__init__(_queue_of_one(False, 1, policy, router, where), where)
        self.order: list[int] = []

    def run(self, until: float = float("inf"), steps: int = STEPS) -> None:
        spec = WorkSpec("e", Op.SEARCHING, "c", Op.SEARCHING, True, 1, retries=2)
        for k in range(12):
            self.now = float(k // 2)
            self.queue.submit(Work(spec, "q", k, 1, self.now, k, admitted=0.0), self.now)
        self.round()
        super().run(until, steps)
        if self.order != sorted(self.order) or len(self.order) < 12:
            raise self.broken(
                f"works that are alike were sent in the order {self.order}; ties are broken by "
                "(arrival, seq)"
            )

    def takes(self, sent: Dispatch) -> None:
        self.order += [work.seq for work, _, _ in sent.slices]
        done = BatchCompleted("e", sent.batch, [{"out": 1}] * len(sent.slices))
        self.at(self.now + 0.1, lambda: self.queue.completed(done, self.now))


class _Stream(_World):
    """One work waits; newcomers come as fast as they are done. It has to have its turn."""

    def __init__(
        self,
        like: str,
        continuous: bool,
        policy: BatchingPolicy,
        router: RoutingPolicy,
        where: str,
    ) -> None:
        self.like, self.continuous = _LIKES[like], continuous
        weight = 40 if continuous else 4
        super().__init__(_queue_of_one(continuous, weight, policy, router, where), where)
        self.came = 0

    def run(self, until: float = float("inf"), steps: int = STEPS) -> None:
        self._submit(0, "old", {})
        for k in range(1, 9):
            self._submit(k, f"q{k // 2}", self.like)
        self.came = 9
        self.round()
        super().run(steps=STEPS)
        if ("old", 0) not in self.done:
            raise self.broken(
                f"a work starves: it was never sent while {NEWCOMERS} newcomers were, in "
                f"{self.now:.0f} s"
            )

    def _submit(self, k: int, run: str, like: dict[str, Any]) -> None:
        rest, depth = like.get("rest_s", 5.0), like.get("depth", 3)
        op = Op.PREFILLING if self.continuous else Op.SEARCHING
        spec = WorkSpec(
            engine="e",
            op=op,
            component="c" if like.get("shared") is None or k else "d",
            lane=None if self.continuous else op,
            cuttable=False,
            depth=depth,
            members=(9,) if self.continuous else (),
            estimate=Estimate(rest, 0.0, rest, 0.05, 0.1, 0.01),
        )
        total = 10 if self.continuous else 1
        owner = "same" if like.get("shared") else run
        keys = tuple((owner, b) for b in range(total // BLOCK)) if self.continuous else ()
        work = Work(
            spec=spec,
            run=run,
            primitive=k,
            total=total,
            arrival=self.now,
            seq=k,
            tenant=like.get("tenant", "default"),
            admitted=self.now,
            program=run,
            keys=keys,
        )
        self.queue.submit(work, self.now)

    def takes(self, sent: Dispatch) -> None:
        if self.continuous:
            for k, (work, _, _) in enumerate(sent.slices):
                first = FirstToken("e", 0, work.run, work.primitive)
                self.at(self.now + 0.1, partial(self.queue.first_token, first, self.now + 0.1))
                self.at(self.now + 0.2, partial(self._ends, sent, [k]))
        else:
            self.at(self.now + 0.1, partial(self._ends, sent, range(len(sent.slices))))

    def _ends(self, sent: Dispatch, which: Sequence[int]) -> Any:
        outcomes: list[Outcome] = [{"out": 1}] * len(sent.slices)
        for k in which:
            self.landed(sent, k, outcomes[k])
            if self.came < NEWCOMERS and ("old", 0) not in self.done:
                self._submit(self.came, f"q{self.came // 2}", self.like)
                self.came += 1
        if not self.continuous:
            return self.queue.completed(BatchCompleted("e", sent.batch, outcomes), self.now)
        work = sent.slices[which[0]].work
        event = CallEnded("e", sent.batch, work.run, work.primitive, {"out": 1}, None, 9)
        return self.queue.call_ended(event, self.now)
