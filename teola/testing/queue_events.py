"""What happens to a queue whose policies are checked: random events, equal works, and newcomers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final

from teola.errors import EngineError, EngineUnavailable
from teola.graph import Op
from teola.policies.asker import Asker
from teola.policies.batching.base import BatchingPolicy
from teola.policies.routing.base import RoutingPolicy
from teola.policies.work import Estimate, Work, WorkSpec
from teola.profile import Cost, EngineProfile, StepTime
from teola.schedule.events import (
    BatchCompleted,
    CallEnded,
    Cause,
    Dispatch,
    FirstToken,
    InstanceDown,
    InstanceUp,
    Outcome,
    PrefixChanged,
    ProgramPaused,
)
from teola.schedule.instances import Limits
from teola.testing.queue_world import BLOCK, LANES, STEPS, QueueWorld, queue_of_one, watched_queue

WORKS: Final = 60
"""That come in one case."""
MOST_NEWCOMERS: Final = 1500
"""That come after a work which waits: by then it has to have had its turn."""
PATIENCE_S: Final = 3600.0
"""Of made-up time, for what is left to be sent when nothing goes wrong any more."""


class RandomCase(QueueWorld):
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
            {} if self.continuous else {op: Cost(0.05, 0.01) for op in LANES},
            StepTime(0.01, 0.001),
            max_batch=weight,
        )
        queue = watched_queue([limits] * self.instances, profile, policy, router, where)
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


def _work(k: int, now: float, draw: Random, continuous: bool) -> Work:
    """Work number `k`, with all that a policy may go by."""
    query = draw.randrange(8)
    rest = draw.uniform(0.1, 10)
    estimate = Estimate(rest, draw.uniform(0, 5), rest * draw.uniform(1, 3), 0.05, 0.1, 0.01)
    op = Op.PREFILLING if continuous else draw.choice(LANES)
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
        asker=Asker(f"t{query % 3}", f"a{query % 2}", f"p{query % 4}"),
        began=max(0.0, now - draw.uniform(0, 1)),
        keys=keys,
    )


NEWCOMERS_LIKE: Final[dict[str, dict[str, Any]]] = {
    "alike": {},
    "short": {"rest_s": 0.1, "depth": 0},
    "long": {"rest_s": 100.0, "depth": 50},
    "of another tenant": {"tenant": "other"},
    "of the same prompt": {"shared": True},
}
"""What is said of newcomers beside a work that waits."""


class EqualWorks(QueueWorld):
    """Works that differ in nothing but when they came, on an instance that takes one at a time."""

    def __init__(self, policy: BatchingPolicy, router: RoutingPolicy, where: str) -> None:
        super().__init__(queue_of_one(False, 1, policy, router, where), where)
        self.order: list[int] = []

    def run(self, until: float = float("inf"), steps: int = STEPS) -> None:
        spec = WorkSpec("e", Op.SEARCHING, "c", Op.SEARCHING, True, 1, retries=2)
        for k in range(12):
            self.now = float(k // 2)
            self.queue.submit(Work(spec, "q", k, 1, self.now, k), self.now)
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


class Newcomers(QueueWorld):
    """One work waits; newcomers come as fast as they are done. It has to have its turn."""

    def __init__(
        self,
        like: str,
        continuous: bool,
        policy: BatchingPolicy,
        router: RoutingPolicy,
        where: str,
    ) -> None:
        self.like, self.continuous = NEWCOMERS_LIKE[like], continuous
        weight = 40 if continuous else 4
        super().__init__(queue_of_one(continuous, weight, policy, router, where), where)
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
                f"a work starves: it was never sent while {MOST_NEWCOMERS} newcomers were, in "
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
            asker=Asker(like.get("tenant", "default"), program=run, admitted=self.now),
            began=self.now,
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
            if self.came < MOST_NEWCOMERS and ("old", 0) not in self.done:
                self._submit(self.came, f"q{self.came // 2}", self.like)
                self.came += 1
        if not self.continuous:
            return self.queue.completed(BatchCompleted("e", sent.batch, outcomes), self.now)
        work = sent.slices[which[0]].work
        event = CallEnded("e", sent.batch, work.run, work.primitive, {"out": 1}, None, 9)
        return self.queue.call_ended(event, self.now)
