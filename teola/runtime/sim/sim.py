"""The `sim` driver: the same core in virtual time.

An LLM's instance is the StepServer of `teola.instance`; others run at once what they are sent:
their queue sends no more than they can run. Times come from a Profile, answers from an Outcome
source. A run is a function of its inputs: same seed, same trace. Long because it is one state: the
queue of what happens, the instances, and the queries on them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any, cast
from weakref import WeakKeyDictionary

from teola.engine import EngineKind, Usage
from teola.errors import InputError, UnknownName
from teola.graph import QUERY, Growth, Op
from teola.graph.ops import CONTROL, DECODES, PREFILLS
from teola.kv import policies as eviction_policies
from teola.learning import Learner
from teola.learning.at_work import WAITS
from teola.policies import batching as batching_policies
from teola.policies import routing as routing_policies
from teola.policies.asker import Asker
from teola.policies.work import Size
from teola.profile import EngineProfile, Profile
from teola.runtime.asked_rows import AskedRows
from teola.runtime.collector import seldom_collecting
from teola.runtime.driver import Driver
from teola.runtime.in_flight import Place, Query, part_run, part_trace
from teola.runtime.observe.trace import Trace
from teola.runtime.queue_setup import queue_of
from teola.runtime.sim.content import Prefix, prompt_said, salt_of
from teola.runtime.sim.llm import Stepper
from teola.runtime.sim.outcome import Assumed, Outcomes, Planned
from teola.runtime.sim.processors import Processors, Share
from teola.runtime.sim.sim_rows import SimAsked, SimRow, SimulatedRows, came
from teola.runtime.sim.troubles import Trouble
from teola.runtime.store import Store
from teola.schedule.events import (
    AbortRequest,
    AbortRows,
    BatchCompleted,
    CallEnded,
    Cancelled,
    Cause,
    DeadlineReached,
    Dispatch,
    Finish,
    InstanceDown,
    InstanceUp,
    RowsOver,
    SetTimer,
    SourceEnded,
    State,
    Timer,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.hedging import Hedging
from teola.schedule.instances import Limits
from teola.schedule.overdue import Overdue
from teola.schedule.plan import Plan
from teola.schedule.row_run import RowRun, RowSpecs, windows

MOST_LOOKS = 10_000
"""After so many timers in a row that change nothing, nothing will: a queue looks again and again
for the first token of a call that hangs and has nowhere else to go."""
KINDS: Mapping[Op, EngineKind] = {
    **dict.fromkeys(PREFILLS | DECODES, EngineKind.LLM),
    Op.EMBEDDING: EngineKind.EMBEDDING,
    Op.RERANKING: EngineKind.RERANK,
    Op.INGESTION: EngineKind.VECTORSTORE,
    Op.SEARCHING: EngineKind.VECTORSTORE,
    Op.WEB_SEARCH: EngineKind.WEBSEARCH,
    Op.TOOL_CALL: EngineKind.TOOL,
    Op.SQL: EngineKind.SQL,
}


def _named(policy: str | Mapping[str, str], engine: str, default: str) -> str:
    return policy if isinstance(policy, str) else policy.get(engine, default)


@dataclass(frozen=True, slots=True)
class SimulatedQuery:
    """How a simulated query ended; times in virtual seconds. state: None if it never ends; it is
    infinitely long then. error: why it has no answer, where it failed."""

    id: str
    app: str
    state: State | None
    admitted: float
    finished: float
    outputs: Mapping[str, Any]
    error: Exception | None = None

    @property
    def latency_s(self) -> float:
        return self.finished - self.admitted


class Sim(Driver[Query]):
    """Simulates queries on engines described by `profile`.

    batching, routing, eviction: policy names, one for all engines or by engine name.
    policy_options, routing_options, eviction_options: keyword arguments of these policies (the
    first: of batching), by engine. hedge: by engine, of all calls of a language model the part that
    may run twice (EngineConfig). instances: by engine, where not the profile's. learner: is told
    what happens, and publishes lessons when a query ends. declared: the profile's times are known
    before it has learned any, as those of a profile that a runtime is given. explains: traces say
    why LLM calls went where they went, as live ones do. on_finish: called with (query, result)
    while the query's trace is at hand.

    Names of engines are checked when it runs: those of the profile and of the plans are known then.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        batching: str | Mapping[str, str] = batching_policies.DEFAULT,
        routing: str | Mapping[str, str] = routing_policies.DEFAULT,
        eviction: str | Mapping[str, str] = eviction_policies.DEFAULT,
        policy_options: Mapping[str, Mapping[str, Any]] | None = None,
        routing_options: Mapping[str, Mapping[str, Any]] | None = None,
        eviction_options: Mapping[str, Mapping[str, Any]] | None = None,
        hedge: Mapping[str, float] | None = None,
        instances: Mapping[str, int] | None = None,
        outcomes: Outcomes | None = None,
        learner: Learner | None = None,
        declared: bool = False,
        explains: bool = False,
        on_finish: Callable[[Query, SimulatedQuery], None] | None = None,
    ) -> None:
        super().__init__({}, learner)
        for name, count in (instances or {}).items():
            if type(count) is not int or count < 1:
                raise InputError(f"engine {name!r} needs at least one instance, got {count!r}")
        self.profile, self.outcomes = profile, outcomes or Planned()
        self._batching, self._routing, self._eviction = batching, routing, eviction
        self._options, self._instances = policy_options or {}, instances or {}
        self._routing_options = routing_options or {}
        self._eviction_options, self._hedge = eviction_options or {}, hedge or {}
        self.on_finish, self._explains, self._declared = on_finish, explains, declared
        self.now = 0.0
        self.results: list[SimulatedQuery] = []
        """Results of queries that have ended."""
        self.rows_results: list[SimulatedRows] = []
        """Results of runs of rows that have ended."""
        self.busy_s: dict[str, float] = {}
        """Seconds that the instances of each engine worked, added up: of an LLM, its steps; of
        another engine, its batches."""
        self._reads: WeakKeyDictionary[Plan, frozenset[str]] = WeakKeyDictionary()
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self.servers: dict[tuple[str, int], Stepper | object] = {}
        """Servers by engine and instance; another one after an instance has died."""
        self._profiles: dict[str, EngineProfile] = {}
        self._processors: Processors | None = None
        """What engines share, if a profile says that they do."""
        self.idle: dict[Stepper, None] = {}
        self.troubles: dict[tuple[str, int], Trouble] = {}
        """Troubles by engine and instance, of those that ever were in any."""

    # --- the caller's side ----------------------------------------------------------------

    def submit(
        self,
        plan: Plan | Callable[[], Plan],
        inputs: Mapping[str, Any],
        *,
        at: float = 0.0,
        id: str | None = None,
        app: str = "",
        tenant: str = "default",
        program: str = "",
        deadline_s: float | None = None,
        finish_by_s: float | None = None,
        cancel_after_s: float | None = None,
    ) -> str:
        """Let a query arrive at time `at`; inputs are Tokens or lists of them, or None for one that
        it comes without. plan: a function is asked for it then, when more is known. program: whose
        calls its own are (Asker). finish_by_s: its objective, from its arrival on. Raises
        UnknownName for an input that the graph has not, and InputError for one that it lacks; where
        the plan is a function, `run` does."""
        id = id or f"q{self._count}"
        if isinstance(plan, Plan):
            self._check_inputs(plan, inputs)
            self._add_engines(plan)
        deadline = inf if deadline_s is None else at + deadline_s
        self.at(at, self._arrive, id, plan, inputs, app, tenant, program, finish_by_s, deadline)
        if deadline_s is not None:
            self.at(deadline, self._tell_late, id, DeadlineReached())
        if cancel_after_s is not None:
            self.at(at + cancel_after_s, self._tell_late, id, Cancelled())
        return id

    def ask_rows(
        self,
        rows: Iterable[SimRow],
        *,
        engine: str = "llm",
        at: float = 0.0,
        id: str | None = None,
        app: str = "tables",
        tenant: str = "default",
        program: str = "",
        interactive: bool = False,
        warm: bool = False,
        shared: float = 0.0,
        deadline_s: float | None = None,
        cancel_after_s: float | None = None,
    ) -> str:
        """Let a run of rows begin at time `at`; how it ended is in `rows_results` then.
        interactive: its rows go like calls, and leave no room to them. warm, shared: see
        RowsCall."""
        id = id or f"r{self._count}"
        if engine not in self.core.queues:
            self._add_engine(engine, EngineKind.LLM)
        deadline = inf if deadline_s is None else at + deadline_s
        how = app, tenant, program, interactive, warm, shared, deadline
        self.at(at, self._ask_rows, id, engine, iter(rows), *how)
        if deadline_s is not None:
            self.at(deadline, self._tell_late, id, DeadlineReached())
        if cancel_after_s is not None:
            self.at(at + cancel_after_s, self._tell_late, id, Cancelled())
        return id

    def _ask_rows(
        self,
        id: str,
        engine: str,
        rows: Iterator[SimRow],
        app: str,
        tenant: str,
        program: str,
        interactive: bool,
        warm: bool,
        shared: float,
        deadline: float,
    ) -> None:
        asker = Asker(tenant, app, program or id, self.now)
        specs = RowSpecs(engine, "rows", interactive=interactive, output=0)
        most = windows(len(self.core.queues[engine].instances))
        run = RowRun(id, specs, asker, began=self.now, deadline=deadline, most=most, warm=warm)
        reuse = self._profiles[engine].prefix_reuse
        asked = SimAsked(run, Trace(id, app, None, self.now), rows, shared if reuse else 0.0)
        self.begin_rows(asked, self.now)

    def asked(self, run: str) -> SimAsked | None:
        """A run of rows in flight, by its id."""
        return cast("SimAsked | None", self.rows.get(run))

    def want(self, asked: AskedRows[Any], now: float) -> None:
        self.at(now, self._look, asked)

    def _look(self, asked: SimAsked) -> None:
        if asked.ended is not None:
            return
        try:
            rows = asked.take()
        except Exception as error:  # noqa: BLE001 - the caller's iterator
            self.tell(asked.id, SourceEnded(error), self.now)
            return
        if not rows:
            self.tell(asked.id, SourceEnded(), self.now)
            return
        engine = asked.run.engine
        by_keys = self.core.queues[engine].placing.by_keys
        event = came(asked, rows, self._profiles[engine], by_keys=by_keys)
        asked.opened(rows)
        self.tell(asked.id, event, self.now)

    def rows_over(self, asked: AskedRows[Any], command: RowsOver, now: float) -> None:
        given: list[Usage] = command.given or []
        for usage in given:
            asked.used(usage)
        asked.over(command.primitive, len(given), command.failed)

    def rows_ended(self, asked: AskedRows[Any], command: Finish, now: float) -> None:
        self.rows_results.append(cast("SimAsked", asked).result(now))

    def run(self, until: float = float("inf")) -> list[SimulatedQuery]:
        """Advance virtual time until nothing is left to happen, or to `until`; all results. Once
        nothing is left to happen, queries that have not ended never will: they come last, and are
        infinitely long. Raises UnknownName for an option of an engine that there is not."""
        heap, idle = self._heap, self.idle
        if self._all_plans_known():
            self._check_names()
        looks = 0
        with seldom_collecting():
            while heap and heap[0][0] <= until:
                looks = looks + 1 if heap[0][2] == self._wake else 0
                if looks > MOST_LOOKS:
                    heap.clear()
                    break
                self.now = now = heap[0][0]
                self.run_once(now)
                while idle:
                    idle.popitem()[0].kick(now)
        if heap:
            return self.results
        self._check_names()
        return [*self.results, *self.unfinished]

    def receive(self, now: float) -> None:
        heap = self._heap
        while heap and heap[0][0] == now:
            _, _, call, arguments = heappop(heap)
            call(*arguments)

    @property
    def unfinished(self) -> list[SimulatedQuery]:
        """Queries that have arrived and have not ended."""
        return [
            SimulatedQuery(query.id, query.trace.app, None, query.trace.admitted, inf, {})
            for query in self.queries.values()
            if query.place is None
        ]

    @property
    def assumed(self) -> dict[str, Assumed]:
        """Lengths, branches and times that nobody gave, as far as they were used, such as
        `generate.answer_tokens`. Of other sources of outcomes than `Planned` it knows nothing."""
        return self.outcomes.assumed if isinstance(self.outcomes, Planned) else {}

    def busy_shares(self, over_s: float) -> dict[str, float]:
        """Engine -> the share of `over_s` seconds in which its instances worked, from 0 to 1. One
        that runs several batches at once works fully when it runs as many as it can."""
        shares = {}
        for name, queue in self.core.queues.items():
            profile, count = self._profiles[name], len(queue.instances)
            places = (
                count if queue.continuous else sum(profile.of(i).concurrency for i in range(count))
            )
            shares[name] = self.busy_s.get(name, 0.0) / (places * over_s) if over_s else 0.0
        return shares

    # --- what it refuses ------------------------------------------------------------------

    def _check_inputs(self, plan: Plan, inputs: Mapping[str, Any]) -> None:
        where, declared = f"the inputs of {plan.graph.name!r}", plan.graph.inputs
        for name in inputs:
            if name not in declared:
                raise UnknownName("input", name, declared, where)
        reads = self._reads.get(plan)
        if reads is None:
            read_refs = [ref for refs in plan.refs for ref in refs]
            read_refs += plan.graph.outputs.values()
            reads = frozenset(ref.port for ref in read_refs if ref.producer == QUERY)
            self._reads[plan] = reads
        if lacks := reads - inputs.keys():
            raise InputError(
                f"{where} lack {', '.join(map(repr, sorted(lacks)))}: give Tokens(n) or a list of "
                "them, or None where the query comes without it"
            )

    def _all_plans_known(self) -> bool:
        """Whether nothing but queries with plans, and their ends, is to happen."""
        for _, _, call, arguments in self._heap:
            known = isinstance(arguments[1], Plan) if call == self._arrive else False
            if not known and call not in (self._tell_late, self._die, self._ask_rows, self._begins):
                return False
        return True

    def _check_names(self) -> None:
        """Raise UnknownName for an engine that neither the profile nor a plan names."""
        known = self.profile.engines.keys() | self.core.queues.keys()
        given: dict[str, Any] = {
            "batching": self._batching,
            "routing": self._routing,
            "eviction": self._eviction,
            "policy_options": self._options,
            "routing_options": self._routing_options,
            "eviction_options": self._eviction_options,
            "hedge": self._hedge,
            "instances": self._instances,
        }
        for option, by_engine in given.items():
            for name in by_engine if not isinstance(by_engine, str) else ():
                if name not in known:
                    raise UnknownName("engine", name, known, f"`{option}`")

    # --- engines --------------------------------------------------------------------------

    def _add_engines(self, plan: Plan) -> None:
        for p in plan.primitives:
            if p.op not in CONTROL and p.engine not in self.core.queues:
                self._add_engine(p.engine, KINDS[p.op])

    def _add_engine(self, name: str, kind: EngineKind) -> None:
        profile = self.profile.engine(name, kind)
        if profile.crowding and self._processors is None:
            self._processors = Processors(self)
        count = self._instances.get(name, profile.instances)
        limits = [Limits.of(profile.of(i), kind) for i in range(count)]
        self.core.queues[name] = queue_of(
            name,
            limits,
            profile if self.learner is None or self._declared else profile.untimed(),
            _named(self._batching, name, batching_policies.DEFAULT),
            self._options.get(name),
            _named(self._routing, name, routing_policies.DEFAULT),
            self._routing_options.get(name),
            learner=self.learner,
            explains=self._explains,
        )
        if kind is EngineKind.LLM:
            self.core.queues[name].overdue = Overdue()
            share = self._hedge.get(name)
            self.core.queues[name].hedging = None if share is None else Hedging(share)
        self._profiles[name] = profile
        for i in range(count):
            self.servers[name, i] = self._server(name, i, kind is EngineKind.LLM)

    def _server(self, name: str, i: int, continuous: bool) -> Stepper | object:
        profile = self._profiles[name].of(i)
        if not continuous:
            return object()
        tells = self.core.queues[name].placing.by_keys
        eviction = eviction_policies.make_policy(
            _named(self._eviction, name, eviction_policies.DEFAULT),
            **self._eviction_options.get(name, {}),
        )
        return Stepper(self, name, i, profile, eviction, tells=tells)

    def kill(self, engine: str, instance: int, *, at: float, back_s: float | None) -> None:
        """Let an instance die at time `at`, with all that it has and keeps; a successor is up
        `back_s` later (None: never)."""
        self.at(at, self._die, engine, instance, back_s)

    def refuse(
        self,
        engine: str,
        instance: int,
        *,
        at: float,
        lasts_s: float,
        at_once: int = 0,
        after_s: float | None = None,
        away: bool = False,
    ) -> None:
        """Let an instance refuse calls beyond `at_once` for so long, from time `at` on. after_s:
        what it says of when to come back. away: as if nobody were there."""
        state = {"at_once": at_once, "after_s": after_s, "away": away}
        self.at(at, self._begins, engine, instance, "refuses_until", lasts_s, state)

    def hang(self, engine: str, instance: int, *, at: float, lasts_s: float) -> None:
        """Let an instance do nothing for so long, and go on then."""
        self.at(at, self._begins, engine, instance, "hangs_until", lasts_s, {})

    def slow(self, engine: str, instance: int, *, at: float, lasts_s: float, factor: float) -> None:
        """Let everything take `factor` times as long on an instance."""
        state = {"factor": factor}
        self.at(at, self._begins, engine, instance, "slow_until", lasts_s, state)

    def _begins(
        self, engine: str, i: int, kind: str, lasts_s: float, state: Mapping[str, Any]
    ) -> None:
        """A trouble begins."""
        if engine not in self.core.queues:
            raise UnknownName("engine", engine, self.core.queues, "a trouble")
        if (engine, i) not in self.servers:
            return
        trouble = self.troubles.setdefault((engine, i), Trouble())
        for name, value in state.items():
            setattr(trouble, name, value)
        setattr(trouble, kind, until := self.now + lasts_s)
        if kind != "refuses_until":
            self._changes(engine, i)
            if until < inf:
                self.at(until, self._changes, engine, i)

    def _changes(self, engine: str, i: int) -> None:
        """An instance begins to hang or to be slow, or does no longer."""
        server = self.servers[engine, i]
        if isinstance(server, Stepper):
            server.disturb()

    def _die(self, engine: str, instance: int, back_s: float | None) -> None:
        if engine not in self.core.queues:
            raise UnknownName("engine", engine, self.core.queues, "`kill`")
        server = self.servers.get((engine, instance))
        if server is None or not self.core.queues[engine].instances[instance].up:
            return
        self.servers[engine, instance] = self._server(engine, instance, isinstance(server, Stepper))
        if self._processors is not None:
            self._processors.gone(server)
        if isinstance(server, Stepper):
            server.dead = True
            self.idle.pop(server, None)
        self._one_of_two_gone(engine, instance)
        self.handle(InstanceDown(engine, instance, back_s is not None), self.now)
        if back_s is not None:
            self.at(self.now + back_s, self._return, engine, instance)

    def _one_of_two_gone(self, engine: str, instance: int) -> None:
        """Of calls that run twice, the tries on this instance are over; the others go on."""
        queue = self.core.queues[engine]
        for key, backup in queue.hedging.running.items() if queue.hedging is not None else ():
            ((first, batch),) = queue.works[key].flying.values()
            if instance in (first, backup.instance):
                self._beaten(key, batch if instance == first else backup.batch)

    def _beaten(self, key: tuple[str, int], batch: int) -> None:
        """Let a call's trace say that its try in this batch is over, and that the other goes on."""
        if (query := self.queries.get(key[0])) is not None:
            query.trace.beaten(key[1], batch, self.now)

    def outrun(self, engine: str, id: tuple[str, int], batch: int) -> bool:
        """Whether another try of this call goes on alone, and the one in this batch is over."""
        queue = self.core.queues[engine]
        return queue.hedging is not None and queue.goes_on_without(id, batch)

    def _return(self, engine: str, instance: int) -> None:
        self.handle(InstanceUp(engine, instance), self.now)

    def rest(self, stepper: Stepper) -> None:
        """It has no step under way."""
        self.idle[stepper] = None

    def waits(self, engine: str, id: tuple[str, int]) -> bool:
        """Whether somebody waits for this call."""
        return id in self.core.queues[engine].works

    def holds(self, id: tuple[str, int], release: Callable[[], None]) -> None:
        """An instance keeps this prefix until it is released: once nobody reads it."""
        query = self.queries.get(id[0])
        outputs = query and query.store.values.get(id[1])
        if outputs:
            outputs["sequence"].release = release
        else:
            release()

    def forgotten(self, outputs: Mapping[str, Any] | None) -> None:
        if outputs and "sequence" in outputs:
            prefix = outputs["sequence"]
            if type(prefix) is Prefix:
                prefix.release()

    def _measure(self, run: str, i: int) -> int | Size | None:
        query = self.queries[run]
        spec = query.plan.specs[i]
        by_keys = spec.lane is None and self.core.queues[spec.engine].placing.by_keys
        profile = self._profiles[spec.engine]
        if not (by_keys and profile.prefix_reuse):
            return super()._measure(run, i)
        keys = prompt_said(query, i, profile.block_tokens, salt_of(query, profile)).keys
        return Size(query.prompt_tokens(i), keys)

    def dispatch(self, command: Dispatch, now: float) -> None:
        server = self.servers[command.engine, command.instance]
        trouble = self.troubles.get((command.engine, command.instance))
        if trouble is not None and now < trouble.refuses_until:
            taken = self._taken(command, trouble, now)
            if taken is None:
                return
            command = taken
        if isinstance(server, Stepper):
            self.at(now + self.profile.dispatch_s, server.arrive, command)
            return
        seconds = self._batch_seconds(command) + self.profile.dispatch_s
        if trouble is not None:
            seconds *= trouble.stretch(now)
        if self._processors is None or command.slices[0].work.spec.op in WAITS:
            self.at(now + seconds, self._batch_done, command, server, now)
        else:
            crowding = self._profiles[command.engine].of(command.instance).crowding
            self._processors.begin(
                server, seconds, crowding, self._batch_done, command, server, now
            )

    def _taken(self, command: Dispatch, trouble: Trouble, now: float) -> Dispatch | None:
        """What an instance takes of a batch that refuses calls; the rest fails."""
        queue, at = self.core.queues[command.engine], now + self.profile.dispatch_s
        instance = queue.instances[command.instance]
        if not queue.continuous:
            cause = trouble.refusal(instance.calls, now)
            if cause is None:
                return command
            self.at(at, self._refused, command, cause)
            return None
        taken, before = [], instance.calls - len(command.slices)
        for k, part in enumerate(command.slices):
            cause = trouble.refusal(before + k + 1, now)
            if cause is None:
                taken.append(part)
            else:
                refused = Dispatch(command.engine, command.instance, command.batch, (part,))
                self.at(at, self._refused, refused, cause)
        if not taken:
            return None
        return Dispatch(command.engine, command.instance, command.batch, tuple(taken))

    def _refused(self, command: Dispatch, cause: Cause) -> None:
        """An instance does not take these."""
        now, engine, batch = self.now, command.engine, command.batch
        for work, lo, _ in command.slices:
            query, key = self.queries.get(work.run), (work.run, work.primitive)
            if self.core.queues[engine].runs_twice(key):
                self._beaten(key, batch)
            elif query is not None:
                query.trace.failed(work.primitive, lo, now, cause.error)
        if self.core.queues[engine].continuous:
            ((work, _, _),) = command.slices
            self.handle(CallEnded(engine, batch, work.run, work.primitive, cause), now)
        else:
            outcomes = [cause] * len(command.slices)
            self.handle(BatchCompleted(engine, batch, outcomes), now)

    def work(
        self, server: Stepper, seconds: float, call: Callable[..., None], *arguments: Any
    ) -> Share | None:
        """Call it when a server has done so many seconds of work, alone. The work, where others
        hold it up."""
        if self._processors is None:
            self.at(self.now + seconds, call, *arguments)
            return None
        return self._processors.begin(server, seconds, server.profile.crowding, call, *arguments)

    def _batch_seconds(self, command: Dispatch) -> float:
        profile = self._profiles[command.engine].of(command.instance)
        items, tokens, stretch, longest_s = 0, 0, 1.0, 0.0
        cost = profile.cost(command.slices[0].work.spec.op)  # all are of one lane
        for work, lo, hi in command.slices:
            query = self.queries.get(work.run)
            if query is None:
                continue
            if self.profile.habits:
                habit_s = self.profile.habit(work.asker.app, work.spec.component).seconds
                if habit_s is not None:
                    longest_s = max(longest_s, habit_s)
                    continue
            items += hi - lo
            if cost.per_token_s:
                tokens += sum(query.store.cut(work.primitive, lo, hi))
            if cost.sigma:
                factor = self.outcomes.stretch(query, work.primitive, cost.sigma)
                stretch = max(stretch, factor) if stretch != 1.0 else factor
        return max(longest_s, cost.seconds(items, tokens) * stretch if items else 0.0)

    def worked(self, engine: str, seconds: float) -> None:
        """An instance has done so many seconds of work."""
        self.busy_s[engine] = self.busy_s.get(engine, 0.0) + seconds

    def _batch_done(self, command: Dispatch, server: object, began: float) -> None:
        now = self.now
        trouble = self.troubles.get((command.engine, command.instance))
        if trouble is not None and now < trouble.hangs_until:
            if trouble.hangs_until < inf:
                self.at(trouble.hangs_until, self._batch_done, command, server, began)
            return
        self.worked(command.engine, now - began)
        if self.servers[command.engine, command.instance] is not server:
            return  # it died meanwhile
        outcomes: list[Mapping[str, int]] = []
        for work, lo, hi in command.slices:
            query, i = self.queries.get(work.run), work.primitive
            counts: Mapping[str, int] = {}
            if query is not None:
                result = self.outcomes.result(query, i, lo, hi)
                counts = query.store.put_slice(i, lo, hi, work.total, result)
                query.trace.ended(i, lo, now)
            outcomes.append(counts)
        self.handle(BatchCompleted(command.engine, command.batch, outcomes), now)

    def abort(self, command: AbortRequest, now: float) -> None:
        server, key = (
            self.servers[command.engine, command.instance],
            (command.run, command.primitive),
        )
        if self.outrun(command.engine, key, command.batch):
            self._beaten(key, command.batch)
        if isinstance(server, Stepper):
            self.at(self.now, server.abort, command)

    def abort_rows(self, command: AbortRows, now: float) -> None:
        server = self.servers[command.engine, command.instance]
        assert isinstance(server, Stepper)
        self.at(self.now, server.abort_rows, command)

    def set_timer(self, command: SetTimer, now: float) -> None:
        self.at(command.at, self._wake, command.engine)

    # --- queries --------------------------------------------------------------------------

    def _arrive(
        self,
        id: str,
        plan: Plan | Callable[[], Plan],
        inputs: Mapping[str, Any],
        app: str,
        tenant: str,
        program: str,
        finish_by_s: float | None,
        deadline: float,
    ) -> None:
        if not isinstance(plan, Plan):
            plan = plan()
            self._check_inputs(plan, inputs)
            self._add_engines(plan)
        finish_by = inf if finish_by_s is None else self.now + finish_by_s
        asker = Asker(tenant, app or plan.graph.name, program or id, self.now, finish_by)
        run = GraphRun(id, plan, asker, began=self.now, deadline=deadline)
        trace = Trace(id, app, plan, self.now)
        self.begin(Query(id, plan, Store(plan, inputs, weighs=False), run, trace), self.now)

    def _tell_late(self, id: str, event: Cancelled | DeadlineReached) -> None:
        if id in self.queries or id in self.rows:
            self.end(id, event, self.now)

    def decide(
        self, query: Query, i: int
    ) -> Mapping[str, Any] | Coroutine[Any, Any, Mapping[str, Any]]:
        if query.plan.primitives[i].op is Op.CONDITION:
            return {"branch": self.outcomes.branch(query, i)}
        return query.store.control(i)

    def ask(self, query: Query, i: int, now: float) -> None:
        self.at(now + self.outcomes.answer_s(query, i), self._answered, query, i)

    def _answered(self, query: Query, i: int) -> None:
        if query.id in self.queries and not query.run.ended(i):
            self.decided(query, i, self.outcomes.result(query, i, 0, 1), self.now)

    def growth(self, query: Query, i: int) -> Growth:
        return self.outcomes.growth(query, i)

    def made_part(self, around: Query, id: str, plan: Plan, place: Place, now: float) -> Query:
        self._add_engines(plan)
        trace = part_trace(around, id, plan, place, now)
        store = Store(plan, place.grow.inputs, weighs=False, tally=around.tally)
        run = part_run(around, id, plan, place, now)
        return Query(id, plan, store, run, trace, around.tally, place)

    def finished(self, query: Query, command: Finish, now: float) -> None:
        outputs = {name: query.store.read(ref) for name, ref in query.plan.graph.outputs.items()}
        for values in query.store.values.values():
            self.forgotten(values)
        error = command.cause.error if command.cause else None
        if query.place is not None:
            self.part_ended(query, command, outputs, error, now)
            return
        trace = query.trace
        result = SimulatedQuery(
            query.id, trace.app, command.state, trace.admitted, now, outputs, error
        )
        self.results.append(result)
        if self.on_finish:
            self.on_finish(query, result)

    def _wake(self, engine: str) -> None:
        self.handle(Timer(engine), self.now)

    def at(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, call, arguments))
