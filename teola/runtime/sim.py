"""The `sim` driver: the same core in virtual time.

Engines are the models of `teola.instance`, times come from a Profile, answers from an Outcome
source. A run is a function of its inputs: same seed, same trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, cast

from teola.engine import EngineKind
from teola.errors import QueryCancelled
from teola.graph import Op
from teola.graph.ops import CONTROL, DECODES, PREFILLS
from teola.instance import BatchServer, Sequence, Step, StepServer
from teola.policies import batching as batching_policies
from teola.policies import routing as routing_policies
from teola.profile import EngineProfile, Profile
from teola.runtime.driver import Driver, Query
from teola.runtime.outcome import Delivery, Outcomes, Planned
from teola.runtime.store import Store
from teola.runtime.trace import Trace
from teola.runtime.values import Tokens
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    AbortRequest,
    Cancelled,
    Cause,
    DeadlineReached,
    Dispatch,
    Finish,
    FirstToken,
    InstanceDown,
    InstanceUp,
    MemberCompleted,
    Piece,
    SetTimer,
    SliceCompleted,
    SliceFailed,
    State,
    Timer,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.instances import Limits
from teola.schedule.plan import Plan

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


@dataclass(frozen=True, slots=True)
class SimResult:
    """How a simulated query ended; times in virtual seconds."""

    id: str
    app: str
    state: State
    admitted: float
    finished: float
    outputs: Mapping[str, Any]

    @property
    def latency_s(self) -> float:
        return self.finished - self.admitted


class Sim(Driver):
    """Simulates queries on engines described by `profile`.

    batching, routing: policy names, one for all engines or by engine name. policy_options: keyword
    arguments for batching policies, by engine. instances: by engine, where not the profile's.
    on_finish: called with (query, result) while the query's trace is at hand.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        batching: str | Mapping[str, str] = "topology",
        routing: str | Mapping[str, str] = "least_loaded",
        policy_options: Mapping[str, Mapping[str, Any]] | None = None,
        instances: Mapping[str, int] | None = None,
        outcomes: Outcomes | None = None,
        on_finish: Callable[[Query, SimResult], None] | None = None,
    ) -> None:
        super().__init__({})
        self.profile, self.outcomes = profile, outcomes or Planned()
        self._batching, self._routing = batching, routing
        self._options, self._instances = policy_options or {}, instances or {}
        self.on_finish = on_finish
        self.now = 0.0
        self.results: list[SimResult] = []
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._servers: dict[tuple[str, int], BatchServer | _Stepper] = {}
        self._profiles: dict[str, EngineProfile] = {}
        self._idle: dict[tuple[str, int], _Stepper] = {}

    # --- the caller's side ----------------------------------------------------------------

    def submit(
        self,
        plan: Plan,
        inputs: Mapping[str, Any],
        *,
        at: float = 0.0,
        id: str | None = None,
        app: str = "",
        tenant: str = "default",
        deadline_s: float | None = None,
        cancel_after_s: float | None = None,
    ) -> str:
        """Let a query arrive at time `at`; inputs are Tokens or lists of them."""
        id = id or f"q{self._count}"
        for p in plan.primitives:
            if p.op not in CONTROL and p.engine not in self.core.queues:
                self._add_engine(p.engine, KINDS[p.op])
        self._at(at, self._arrive, id, plan, inputs, app, tenant)
        if deadline_s is not None:
            self._at(at + deadline_s, self._tell_late, id, DeadlineReached())
        if cancel_after_s is not None:
            self._at(at + cancel_after_s, self._tell_late, id, Cancelled())
        return id

    def run(self, until: float = float("inf")) -> list[SimResult]:
        """Advance virtual time until nothing is left to happen, or to `until`; all results."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now = now = heap[0][0]
            while heap and heap[0][0] == now:
                _, _, call, arguments = heappop(heap)
                call(*arguments)
            self.flush(now)
            while self._idle:
                _, stepper = self._idle.popitem()
                stepper.kick(now)
        return self.results

    # --- engines --------------------------------------------------------------------------

    def _add_engine(self, name: str, kind: EngineKind) -> None:
        profile = self.profile.engine(name, kind)
        continuous = kind is EngineKind.LLM
        count = self._instances.get(name, profile.instances)
        limits = Limits(profile.max_batch, profile.max_sequences, profile.concurrency, continuous)
        batching, routing = self._batching, self._routing
        self.core.queues[name] = EngineQueue(
            name,
            limits,
            count,
            batching_policies.make(
                batching if isinstance(batching, str) else batching.get(name, "topology"),
                **self._options.get(name, {}),
            ),
            routing_policies.make(
                routing if isinstance(routing, str) else routing.get(name, "least_loaded")
            ),
        )
        self._profiles[name] = profile
        for i in range(count):
            self._servers[name, i] = self._server(name, i, continuous)

    def _server(self, name: str, i: int, continuous: bool) -> BatchServer | _Stepper:
        profile = self._profiles[name]
        if continuous:
            return _Stepper(self, name, i, profile)
        return BatchServer(profile.concurrency)

    def kill(self, engine: str, instance: int, *, at: float, back_s: float | None) -> None:
        """Let an instance die at time `at`, with all that it has and keeps; a successor is up
        `back_s` later (None: never)."""
        self._at(at, self._die, engine, instance, back_s)

    def _die(self, engine: str, instance: int, back_s: float | None) -> None:
        server = self._servers.get((engine, instance))
        if server is None or not self.core.queues[engine].instances[instance].up:
            return
        continuous = isinstance(server, _Stepper)
        self._servers[engine, instance] = self._server(engine, instance, continuous)
        self._idle.pop((engine, instance), None)
        self.handle(InstanceDown(engine, instance, back_s is not None), self.now)
        if back_s is not None:
            self._at(self.now + back_s, self._return, engine, instance)

    def _return(self, engine: str, instance: int) -> None:
        self.handle(InstanceUp(engine, instance), self.now)

    def dispatch(self, command: Dispatch, now: float) -> None:
        server = self._servers[command.engine, command.instance]
        if isinstance(server, _Stepper):
            self._at(now + self.profile.dispatch_s, server.arrive, command)
            return
        seconds = self._batch_seconds(command) + self.profile.dispatch_s
        self._at(server.finish(seconds, now), self._batch_done, command, server)

    def _batch_seconds(self, command: Dispatch) -> float:
        profile, items, tokens, stretch = self._profiles[command.engine], 0, 0, 1.0
        cost = None
        for piece in command.pieces:
            query = self.queries.get(piece.run)
            if query is None:
                continue
            cost = profile.cost(query.plan.primitives[piece.primitive].op)
            items += piece.hi - piece.lo
            if cost.per_token_s:
                tokens += self._tokens(query, piece)
            if cost.sigma:
                factor = self.outcomes.stretch(query, piece.primitive, cost.sigma)
                stretch = max(stretch, factor) if stretch != 1.0 else factor
        return cost.seconds(items, tokens) * stretch if cost else 0.0

    def _tokens(self, query: Query, piece: Piece) -> int:
        inputs = query.store.resolve(piece.primitive, piece.lo, piece.hi)
        name = query.plan.primitives[piece.primitive].item_refs()[0][0]
        return sum(inputs[name])

    def _batch_done(self, command: Dispatch, server: BatchServer) -> None:
        now = self.now
        if self._servers[command.engine, command.instance] is not server:
            return  # it died meanwhile
        for run, i, lo, hi, _, total in command.pieces:
            query = self.queries.get(run)
            counts: Mapping[str, int] = {}
            if query is not None:
                result = self.outcomes.result(query, i, lo, hi)
                counts = query.store.put_slice(i, lo, hi, total, result)
                query.trace.ended(i, lo, now)
            where = (command.engine, command.instance, command.batch, run, i, lo, hi)
            self.handle(SliceCompleted(*where, counts), now)

    def abort(self, command: AbortRequest) -> None:
        server = self._servers[command.engine, command.instance]
        if isinstance(server, _Stepper):
            self._at(self.now, server.abort, command)

    def set_timer(self, command: SetTimer) -> None:
        self._at(command.at, self._wake, command.engine)

    # --- queries --------------------------------------------------------------------------

    def _arrive(
        self, id: str, plan: Plan, inputs: Mapping[str, Any], app: str, tenant: str
    ) -> None:
        run = GraphRun(id, plan, tenant=tenant, app=app)
        trace = Trace(id, app, plan, self.now)
        self.begin(Query(id, plan, Store(plan, inputs), run, trace), self.now)

    def _tell_late(self, id: str, event: Cancelled | DeadlineReached) -> None:
        if id in self.queries:
            self.tell(id, event, self.now)

    def decide(self, query: Query, i: int) -> Mapping[str, Any]:
        if query.plan.primitives[i].op is Op.CONDITION:
            return {"branch": self.outcomes.branch(query, i)}
        return query.store.control(i)

    def finished(self, query: Query, command: Finish, now: float) -> None:
        outputs = {name: query.store.read(ref) for name, ref in query.plan.graph.outputs.items()}
        trace = query.trace
        result = SimResult(query.id, trace.app, command.state, trace.admitted, now, outputs)
        self.results.append(result)
        if self.on_finish:
            self.on_finish(query, result)

    def _wake(self, engine: str) -> None:
        self.handle(Timer(engine), self.now)

    def _at(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, call, arguments))


class _Held(Tokens):
    """A sequence of that many tokens. holder: whose KV memory has them."""

    holder: _Stepper


class _Stepper:
    """Drives one StepServer through virtual time."""

    def __init__(self, sim: Sim, engine: str, instance: int, profile: EngineProfile) -> None:
        self.sim, self.engine, self.instance, self.profile = sim, engine, instance, profile
        self.server = StepServer(
            profile.max_batch, profile.max_sequences, profile.kv_blocks, profile.block_tokens
        )
        self.calls: dict[tuple[str, int], tuple[int, Piece, list[Delivery]]] = {}
        self._step: Step | None = None
        self._began = 0.0
        self._each = 0.0
        self._version = 0

    @property
    def dead(self) -> bool:
        """Whether its instance died, and another has its place."""
        return self.sim._servers[self.engine, self.instance] is not self

    def arrive(self, command: Dispatch) -> None:
        sim = self.sim
        if self.dead:
            return
        for piece in command.pieces:
            id = (piece.run, piece.primitive)
            query = sim.queries.get(piece.run)
            if query is None or id not in sim.core.queues[self.engine].flights:
                self._end(id, (command.batch, piece, []), None)
                continue
            length, deliveries = sim.outcomes.call(query, piece.primitive)
            self.calls[id] = (command.batch, piece, deliveries)
            before = query.plan.sequence_of[piece.primitive]
            cached = query.store.values[before]["sequence"] if before >= 0 else 0
            again = isinstance(cached, _Held) and cached.holder is not self  # computed anew
            self.server.add(
                Sequence(
                    id,
                    prompt=query.store.prompt_tokens(piece.primitive) + (cached if again else 0),
                    cached=0 if again else cached,
                    output=length,
                    marks=tuple(delivery.at for delivery in deliveries),
                )
            )
        self._interrupt()

    def abort(self, command: AbortRequest) -> None:
        id = (command.run, command.primitive)
        if self.server.abort(id):
            self._end(id, self.calls.pop(id), None)
            self._interrupt()

    def kick(self, now: float) -> None:
        """Begin the next step if none is running."""
        if self._step is not None:
            return
        step = self.server.plan()
        if step is None:
            return
        profile = self.profile
        if step.prefills:
            self._each = profile.cost(Op.PREFILLING).seconds(len(step.prefills), step.tokens)
        else:
            self._each = profile.decode_step.seconds(len(step.decodes), 0)
        self._step, self._began = step, now
        self._version += 1
        self.sim._at(now + self._each * step.repeat, self._done, self._version, step.repeat)

    def _interrupt(self) -> None:
        """Something changed: decode only to the next step boundary, then plan anew."""
        step = self._step
        if step is None:
            self.sim._idle[self.engine, self.instance] = self
        elif step.repeat > 1:
            passed = (self.sim.now - self._began) / self._each if self._each else 0.0
            repeats = min(step.repeat, max(1, int(passed) + (passed != int(passed))))
            if repeats < step.repeat:
                self._version += 1
                at = max(self._began + self._each * repeats, self.sim.now)
                self.sim._at(at, self._done, self._version, repeats)

    def _done(self, version: int, repeats: int) -> None:
        if version != self._version or self._step is None or self.dead:
            return
        step, self._step = self._step, None
        self.sim._idle[self.engine, self.instance] = self
        sim, now = self.sim, self.sim.now
        for event in self.server.finish(step, repeats):
            run, i = id = cast("tuple[str, int]", event.id)
            query = sim.queries.get(run)
            if event.kind == "first":
                if query is not None:
                    self._store_sequence(query, i, now)
                sim.handle(FirstToken(self.engine, self.instance, run, i), now)
            elif event.kind == "mark":
                delivery = self.calls[id][2][event.mark]
                if query is not None and not query.run.ended(delivery.primitive):
                    counts = query.store.put(delivery.primitive, delivery.result)
                    query.trace.ended(delivery.primitive, 0, now)
                    member = MemberCompleted(
                        self.engine, self.instance, run, i, delivery.primitive, counts
                    )
                    sim.handle(member, now)
            else:
                self._end(id, self.calls.pop(id), query)

    def _store_sequence(self, query: Query, i: int, now: float) -> None:
        before = query.plan.sequence_of[i]
        cached = query.store.values[before]["sequence"] if before >= 0 else 0
        sequence = _Held(cached + query.store.prompt_tokens(i))
        sequence.holder = self
        query.store.put(i, {"sequence": sequence})
        query.trace.ended(i, 0, now)

    def _end(
        self,
        id: tuple[str, int],
        call: tuple[int, Piece, list[Delivery]],
        query: Query | None,
    ) -> None:
        batch, piece, deliveries = call
        sim, now = self.sim, self.sim.now
        if query is not None and not deliveries:
            self._store_sequence(query, piece.primitive, now)
        where = (self.engine, self.instance, batch, *id, piece.lo, piece.hi)
        if query is None:
            sim.handle(SliceFailed(*where, Cause(QueryCancelled("aborted"))), now)
        else:
            sim.handle(SliceCompleted(*where, {"sequence": 1}), now)
