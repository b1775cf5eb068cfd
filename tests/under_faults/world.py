"""One simulated run: engines behind wires, queries, faults; and a record of all that happened.

Long because one world holds all that may happen in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from random import Random
from typing import Any, Final

from teola.engine import Call, QueryContext, Request
from teola.errors import EngineUnavailable
from teola.policies.asker import Asker
from teola.policies.batching import BATCHING
from teola.policies.ledger import BudgetAccount, Ledger
from teola.policies.routing import RoutingPolicy
from teola.policies.routing.e2 import E2
from teola.policies.routing.graph_aware import GraphAware
from teola.policies.routing.prefix_affinity import PrefixAffinity
from teola.policies.work import Work
from teola.query.spec import program_of
from teola.runtime.engines import EngineConfig, queue_for
from teola.runtime.hosts.local import LocalHost
from teola.runtime.hosts.server import Recipe
from teola.runtime.hosts.supervisor import Supervisor
from teola.runtime.in_flight import Query
from teola.runtime.live.kept_answers import KeptAnswers
from teola.runtime.live.live import Live
from teola.runtime.live.nesting import Terms
from teola.runtime.live.query import Ending, Token
from teola.runtime.observe.trace import Trace
from teola.runtime.runtime import Runtime
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import Cause, Finish, ProgramPaused, State
from teola.schedule.hedging import Hedging
from teola.schedule.overdue import Overdue
from teola.schedule.plan import Plan
from teola.testing.hash_engines import hash_number
from tests.recording import RecordingCore
from tests.under_faults import templates
from tests.under_faults.clock import VirtualLoop
from tests.under_faults.engines import (
    TOKEN_S,
    CrowdedModel,
    Database,
    Embedder,
    KeyedModel,
    Model,
    Python,
    Reranker,
    Scattered,
    Store,
    UnevenModel,
    texts_of,
)
from tests.under_faults.far import FarEngine
from tests.under_faults.faults import Fault, Kind, draw, draw_refusals

TENANTS: Final = ("t0", "t1")
BATCHINGS: Final = sorted(BATCHING.keys() - {"urgency"})  # another one would change all draws
QUESTIONS: Final = 6
DEADLINE_S: Final = 120.0
FINISH_S: Final = 60.0
"""Once faults have stopped, every query is to end within this time."""
BUSY_S: Final = 1.5
SHARED_S, PLENTY = 30.0, 10_000_000
ONCE: Final = ("choice", "effects")
"""Templates with effects."""


@dataclass(slots=True)
class Asked:
    """A query, and how it ended. ending: None if its caller went away first."""

    id: str
    template: str
    passes: bool
    question: str
    tenant: str
    at: float
    deadline_s: float = DEADLINE_S
    gone_s: float | None = None
    streams: bool = False
    session: str = ""
    tokens: list[str] = field(default_factory=list)
    ending: Ending | None = None
    ended: float | None = None
    left: tuple[str, ...] = ()


ROUTINGS: Final = (
    "least_loaded",
    "scattered",
    "least_loaded",
    "prefix_affinity",
    "graph_aware",
    "scattered",
    "e2",
    "prefix_affinity",
)
"""By seed. `scattered` binds all that it can, `graph_aware` holds calls; where keys are wanted,
prompts are measured by the engine."""
POLICIES: Final[Mapping[str, Callable[[], RoutingPolicy]]] = {
    "scattered": Scattered,
    "prefix_affinity": PrefixAffinity,
    "graph_aware": partial(GraphAware, held_s=8.0),
    "e2": partial(E2, window_s=1.0, min_routed=2),
}
MODELS: Final = {
    "least_loaded": Recipe(Model, {}, "llm"),
    "scattered": Recipe(Model, {"max_sequences": 1}, "llm"),  # so that what is bound has to wait
    "prefix_affinity": Recipe(KeyedModel, {}, "llm"),
    "graph_aware": Recipe(CrowdedModel, {}, "llm"),
    "e2": Recipe(CrowdedModel, {}, "llm"),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A slice failed. budget: whether retries were left to its engine then."""

    cause: Cause
    streamed: bool
    budget: bool


class Hasty(Overdue):
    """Calls are late, and run twice, from the first one on."""

    def longer(self, part: float, enough: int = 0) -> float:
        return 1.5


@dataclass(slots=True)
class Scenario:
    """What is simulated. faults: in order of time."""

    seed: int
    batching: str
    routing: str
    instances: int
    queries: list[Asked]
    faults: list[Fault]

    @property
    def hedged(self) -> bool:
        """Whether late calls run twice."""
        return self.routing in ("least_loaded", "scattered") and self.instances > 1


def scenario(seed: int) -> Scenario:
    """Drawn from the seed."""
    rng = Random(seed)
    instances, count = rng.choice((1, 2, 2, 3)), rng.choice((1, 2, 3, 4))
    pairs = [(tenant, k) for tenant in TENANTS for k in range(QUESTIONS)]
    queries = [
        Asked(
            id=f"q{n}",
            template=rng.choice(list(templates.TEMPLATES)),
            passes=rng.random() < 0.7,
            question=f"{tenant}: why {k}?",
            tenant=tenant,
            at=rng.uniform(0.0, 0.5),
            streams=rng.random() < 0.3,
        )
        for n, (tenant, k) in enumerate(rng.sample(pairs, count))
    ]
    sessions = Random(f"sessions {seed}")
    for query in queries:
        query.session = sessions.choice(("", "", "a", "b"))
    _repeat(queries, Random(f"equal {seed}"))
    faults = draw(rng, instances, count, BUSY_S)
    faults += draw_refusals(Random(f"servers {seed}"), instances, BUSY_S)
    faults.sort(key=lambda fault: fault.at)
    for fault in faults:
        if fault.kind is Kind.CLIENT_GONE:
            queries[fault.query].gone_s = fault.at
        elif fault.kind is Kind.DEADLINE:
            queries[fault.query].deadline_s = fault.at
    routing = ROUTINGS[seed % len(ROUTINGS)]
    return Scenario(seed, rng.choice(BATCHINGS), routing, instances, queries, faults)


def _repeat(queries: Sequence[Asked], chance: Random) -> None:
    """Let some ask what the one before them asked, so that they have equal work. What has effects
    is asked once, since effects are counted by question."""
    for before, query in pairwise(queries):
        if before.template not in ONCE and chance.random() < 0.4:
            query.template, query.passes = before.template, before.passes
            query.question, query.tenant = before.question, before.tenant
            query.at = before.at + chance.uniform(0.0, 0.05)


class World:
    """Runs a scenario, and keeps what the invariants look at. `wrongs`: what was seen meanwhile."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.asked = {query.id: query for query in scenario.queries}
        self.database = Database()
        self.wrongs: list[str] = []
        self.failures: dict[tuple[str, int], list[Failure]] = {}
        self.stops: list[tuple[str, float]] = []
        self.account = BudgetAccount(most_tokens=PLENTY)
        """From which half of the queries are paid: nobody is refused, but all is counted."""
        self.far: dict[tuple[str, int], FarEngine] = {}
        self._operators: list[asyncio.Task[None]] = []

    def run(self) -> World:
        """To the end of all queries, and of all that they began."""
        templates.DATABASE.effects.clear()
        logging.getLogger("teola").setLevel(logging.CRITICAL)
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(self._run())
        self.database.effects = templates.DATABASE.effects.copy()
        return self

    def plan(self, asked: Asked) -> Plan:
        """How it runs: by times where the routing decides by them when a call is sent."""
        timed = self.scenario.routing == "graph_aware"
        return templates.plan(asked.template, asked.passes, timed)

    # --- what is told by the wires ----------------------------------------------------------

    def batch(self, far: FarEngine, requests: Sequence[Request]) -> None:
        if far.batches > far.spec.concurrency:
            self.wrongs.append(f"{far.spec.name} runs {far.batches} batches at once")
        for request in requests:
            self._belongs(request.context, texts_of(list(request.inputs.values())))
            scope = request.inputs.get("scope")
            if scope is not None and scope.tenant != request.context.tenant:
                self.wrongs.append(f"{request.context.query_id} reaches into another tenant's rows")

    def call(self, far: FarEngine, call: Call) -> None:
        if far.streams > far.spec.max_sequences:
            self.wrongs.append(f"{far.spec.name} runs {far.streams} calls at once")
        self._belongs(call.context, [part.text for part in call.all_parts])

    def stopped(self, query: str, at: float) -> None:
        if not self._is_shared(query):
            self.stops.append((query, at))

    def _is_shared(self, query: str) -> bool:
        """Whether a call of its goes on for others."""
        return any(
            work.run == query and queue.followers.followed(work)
            for queue in self.core.queues.values()
            for work in queue.works.values()
        )

    def _belongs(self, context: QueryContext, texts: Sequence[str]) -> None:
        asked = self.asked[context.query_id]
        if asked.ended is not None:
            self.wrongs.append(f"{asked.id} has ended and is worked on")
        foreign = [f"{tenant}:" for tenant in TENANTS if tenant != asked.tenant]
        if context.tenant != asked.tenant or any(f in text for f in foreign for text in texts):
            self.wrongs.append(f"{asked.id} carries what is another tenant's")

    # --- the run ----------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.wrongs.append(repr(context)))
        world = self

        class Watched(Live):
            def finished(self, query: Query, command: Finish, now: float) -> None:
                asked = world.asked[query.id]
                asked.ended, asked.left = now, _left(query)
                super().finished(query, command, now)

        self.live = Watched(loop)
        self.core = self.live.core = RecordingCore({}, self.live._measure, self.live.queries)
        self.supervisor = Supervisor(self.live.post)
        await self._start_engines()
        zero = self.zero = loop.time()
        for fault in self.scenario.faults:
            self._arm(fault, zero)
        queries = [loop.create_task(self._query(asked)) for asked in self.asked.values()]
        last = max([fault.over for fault in self.scenario.faults], default=0.0)
        await asyncio.wait(queries, timeout=last + FINISH_S)
        for asked, task in zip(self.asked.values(), queries, strict=True):
            if not task.done():
                self.wrongs.append(f"{asked.id} has not ended {FINISH_S:.0f} s after the faults")
        await self._settled(last + FINISH_S)
        await self.supervisor.close()
        await self.live.stop()
        await asyncio.gather(*(host.close() for host in self.live.hosts.values()))

    async def _start_engines(self) -> None:
        routing, hedged = self.scenario.routing, self.scenario.hedged
        recipes = {
            "embedding": Recipe(Embedder, {}, "embedding"),
            "vectorstore": Recipe(Store, {"database": self.database}, "vectorstore"),
            "rerank": Recipe(Reranker, {}, "rerank"),
            "llm": MODELS[routing]._replace(factory=UnevenModel) if hedged else MODELS[routing],
            "python": Recipe(Python, {}, "python"),
        }
        count = self.scenario.instances
        starts = []
        for name, recipe in recipes.items():
            for i in range(count):
                far = self.far[name, i] = FarEngine(recipe, i, self)
                host = self.live.hosts[name, i] = LocalHost(far, i)
                starts.append(host.start())
            queue = self.core.queues[name] = self.queue(name)
            queue._failed = self._noting(queue, "_failed")
            queue._left_and_failed = self._noting(queue, "_left_and_failed")  # type: ignore[method-assign]
            queue._refused = self._noting_refusals(queue)  # type: ignore[method-assign]
        await asyncio.gather(*starts)
        for (name, i), far in self.far.items():
            self.supervisor.watch(name, i, far)

    def queue(self, name: str) -> EngineQueue:
        """A new queue for an engine, with nothing in it."""
        count, routing = self.scenario.instances, self.scenario.routing
        config = EngineConfig(name, instances=count, batching=self.scenario.batching)
        queue = queue_for(name, [self.far[name, i] for i in range(count)], config)
        if routing in POLICIES:
            policy = POLICIES[routing]()
            limits = [instance.limits for instance in queue.instances]
            queue = EngineQueue(name, limits, queue.line.policy, policy)
            queue.overdue = Overdue() if queue.continuous else None
        if self.scenario.hedged and queue.continuous:
            queue.overdue, queue.hedging = Hasty(least_s=60.0), Hedging(1.0)
            queue.expected_s = lambda *_: TOKEN_S  # type: ignore[method-assign]
        return queue

    def _noting(self, queue: Any, name: str) -> Any:
        failed = getattr(queue, name)

        def noting(out: Any, work: Work, *more: Any) -> None:
            cause: Cause = more[-2]
            counted = queue.retry_budget
            budget = cause.lost or counted.budgeted < max(10, 0.1 * counted.requests)
            equals = queue.followers.of(work)
            failed(out, work, *more)
            cause.error.__traceback__ = None  # its frames would hold sequences
            failure = Failure(cause, work.streamed, budget)
            found = self.failures.setdefault((work.run, work.primitive), [])
            found.append(failure)
            for one in equals:  # which are tried again as one
                self.failures[one.run, one.primitive] = found.copy()

        return noting

    def _noting_refusals(self, queue: Any) -> Any:
        """Notes those that cost a try: of a server that is away while another is there."""
        refused = queue._refused

        def noting(out: Any, work: Work, *more: Any) -> None:
            cause = more[-2]
            before = work.tries - work.excused
            refused(out, work, *more)
            cause.error.__traceback__ = None
            found = queue.works.get((work.run, work.primitive), work)
            if found is work or found.tries - found.excused > before:
                failure = Failure(cause, work.streamed, budget=True)
                self.failures.setdefault((work.run, work.primitive), []).append(failure)

        return noting

    async def _query(self, asked: Asked) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(asked.at)
        plan = self.plan(asked)
        given = templates.inputs(asked.question, asked.tenant, f"of {asked.id}")
        now = loop.time()
        part_of = program_of(asked.tenant, asked.session) if asked.session else ""
        context = QueryContext(asked.id, asked.tenant, now + asked.deadline_s, part_of=part_of)
        trace = Trace(asked.id, asked.template, plan, now)
        shares_s = SHARED_S if hash_number(asked.template, "shares") % 2 else 0.0
        terms = Terms(answers=KeptAnswers(asked.id), shares_s=shares_s)
        budget = Ledger(self.account) if hash_number(asked.id, "budget") % 2 else None
        asker = Asker(asked.tenant, asked.template, context.program, now, budget=budget)

        def watch(told: Any) -> None:
            if isinstance(told, Token):
                asked.tokens.append(told.text)

        work = self.live.execute(
            plan,
            given,
            context,
            asker,
            trace,
            watch if asked.streams else None,
            terms=terms,
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(asked.gone_s):
                asked.ending = await work
        if part_of:
            ended = hash_number(asked.id, asked.question) % 4 == 0
            self.live.post(ProgramPaused("llm", part_of, "person", ended))

    def _arm(self, fault: Fault, zero: float) -> None:
        loop, far = asyncio.get_running_loop(), self.far[fault.engine, fault.instance]
        at, until = zero + fault.at, zero + fault.at + fault.lasts_s
        match fault.kind:
            case Kind.CLIENT_GONE | Kind.DEADLINE:
                pass
            case Kind.KILL:
                loop.call_at(at, far.die, "was killed")
            case Kind.FLAP:
                for k in range(4):
                    loop.call_at(at + k * fault.lasts_s / 3, far.die, "was killed")
            case Kind.HANG:
                loop.call_at(at, far.hang, until)
            case Kind.SLOW:
                loop.call_at(at, setattr, far, "slow_until", until)
            case Kind.OUTAGE:
                for i in range(self.scenario.instances):
                    one = self.far[fault.engine, i]
                    loop.call_at(at, setattr, one, "down_until", until)
                    loop.call_at(at, one.die, "was killed")
            case Kind.REFUSE | Kind.AWAY:
                loop.call_at(at, far.refuse, until, fault.kind)
            case Kind.DRAIN:
                loop.call_at(at, self._drain, fault.engine, fault.instance)
            case _:
                far.armed.append(_at(fault, at))

    def _drain(self, engine: str, instance: int) -> None:
        async def replace() -> None:
            with suppress(EngineUnavailable):
                await runtime.replace(engine, instance)

        runtime = Runtime()
        runtime._live, runtime._loop = self.live, asyncio.get_running_loop()
        runtime._supervisor = self.supervisor
        self._operators.append(asyncio.get_running_loop().create_task(replace()))

    async def _settled(self, limit_s: float) -> None:
        """Wait until nothing runs and every instance is back."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + limit_s
        while self._busy() and loop.time() < limit:
            await asyncio.sleep(0.5)

    def _busy(self) -> bool:
        live, queues = self.live, self.core.queues.values()
        waits = live._tasks or live._batches or live._inbox or live._scheduled
        waits = waits or any(far.telling for far in self.far.values())
        return bool(waits) or not all(i.up for queue in queues for i in queue.instances)


def _at(fault: Fault, at: float) -> Fault:
    return Fault(fault.kind, fault.engine, fault.instance, at, fault.lasts_s)


def _left(query: Query) -> tuple[str, ...]:
    """What its store holds at the end, besides its outputs."""
    plan = query.plan
    kept = {ref.producer for ref in plan.graph.outputs.values()}
    left = [plan.ids[i] for i in query.store.values if plan.ids[i] not in kept]
    return (*left, *(f"a slice of {plan.ids[i]}" for i in query.store._slices))


@cache
def oracle(template: str, question: str, tenant: str) -> Any:
    """The outputs of a query that is alone, without passes and faults."""
    asked = Asked("q0", template, False, question, tenant, 0.0)
    World(Scenario(-1, "topology", "least_loaded", 1, [asked], [])).run()
    assert asked.ending is not None
    assert asked.ending.state is State.OK, asked.ending
    return asked.ending.outputs
