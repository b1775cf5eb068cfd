"""A simulated LLM instance: a StepServer, driven through virtual time by the `sim` driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from teola.errors import QueryCancelled
from teola.graph import Op
from teola.instance import Step, StepServer
from teola.instance import TokenSequence as Sequence
from teola.profile import EngineProfile
from teola.runtime.driver import Query
from teola.runtime.sim.outcome import Delivery, Outcomes
from teola.runtime.values import Tokens
from teola.schedule.events import (
    AbortRequest,
    CallEnded,
    Cause,
    Dispatch,
    FirstToken,
    MemberCompleted,
    Outcome,
    QueueEvent,
)


class World(Protocol):
    """The simulation, as an instance in it knows it. now: virtual seconds."""

    now: float
    outcomes: Outcomes

    @property
    def queries(self) -> Mapping[str, Query]:
        """Those in flight, by id."""
        ...

    def at(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call it at that time."""
        ...

    def handle(self, event: QueueEvent, now: float) -> None:
        """Tell the core."""
        ...

    def rest(self, stepper: Stepper) -> None:
        """It has no step under way: `kick` it when all has happened that happens now."""
        ...

    def stands(self, stepper: Stepper) -> bool:
        """Whether it has not died and been replaced."""
        ...

    def waits(self, engine: str, id: tuple[str, int]) -> bool:
        """Whether somebody waits for this call."""
        ...


class Held(Tokens):
    """A sequence of that many tokens. holder: whose KV memory has them."""

    holder: Stepper


class Stepper:
    """Drives one StepServer through virtual time."""

    def __init__(self, sim: World, engine: str, instance: int, profile: EngineProfile) -> None:
        self.sim, self.engine, self.instance, self.profile = sim, engine, instance, profile
        self.server = StepServer(
            profile.max_batch, profile.max_sequences, profile.kv_blocks, profile.block_tokens
        )
        self.calls: dict[tuple[str, int], tuple[int, list[Delivery]]] = {}
        self._step: Step | None = None
        self._began = 0.0
        self._each = 0.0
        self._version = 0

    @property
    def dead(self) -> bool:
        """Whether its instance died, and another has its place."""
        return not self.sim.stands(self)

    def arrive(self, command: Dispatch) -> None:
        sim = self.sim
        if self.dead:
            return
        for work, _, _ in command.slices:
            id = (work.run, work.primitive)
            query = sim.queries.get(work.run)
            if query is None or not sim.waits(self.engine, id):
                self._end(id, (command.batch, []), None)
                continue
            length, deliveries = sim.outcomes.call(query, work.primitive)
            self.calls[id] = (command.batch, deliveries)
            before = query.plan.sequence_of[work.primitive]
            cached = query.store.values[before]["sequence"] if before >= 0 else 0
            again = isinstance(cached, Held) and cached.holder is not self  # computed anew
            self.server.add(
                Sequence(
                    id,
                    prompt=query.store.prompt_tokens(work.primitive) + (cached if again else 0),
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
        self.sim.at(now + self._each * step.repeat, self._done, self._version, step.repeat)

    def _interrupt(self) -> None:
        """Something changed: decode only to the next step boundary, then plan anew."""
        step = self._step
        if step is None:
            self.sim.rest(self)
        elif step.repeat > 1:
            passed = (self.sim.now - self._began) / self._each if self._each else 0.0
            repeats = min(step.repeat, max(1, int(passed) + (passed != int(passed))))
            if repeats < step.repeat:
                self._version += 1
                at = max(self._began + self._each * repeats, self.sim.now)
                self.sim.at(at, self._done, self._version, repeats)

    def _done(self, version: int, repeats: int) -> None:
        if version != self._version or self._step is None or self.dead:
            return
        step, self._step = self._step, None
        self.sim.rest(self)
        sim, now = self.sim, self.sim.now
        for event in self.server.finish(step, repeats):
            run, i = id = cast("tuple[str, int]", event.id)
            query = sim.queries.get(run)
            if event.kind == "first":
                if query is not None:
                    self._store_sequence(query, i, now)
                sim.handle(FirstToken(self.engine, self.instance, run, i), now)
            elif event.kind == "mark":
                delivery = self.calls[id][1][event.mark]
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
        sequence = Held(cached + query.store.prompt_tokens(i))
        sequence.holder = self
        query.store.put(i, {"sequence": sequence})
        query.trace.ended(i, 0, now)

    def _end(
        self, id: tuple[str, int], call: tuple[int, list[Delivery]], query: Query | None
    ) -> None:
        (batch, deliveries), (run, i) = call, id
        sim, now = self.sim, self.sim.now
        outcome: Outcome = Cause(QueryCancelled("aborted"))
        if query is not None:
            outcome = {"sequence": 1}
            if not deliveries:
                self._store_sequence(query, i, now)
        sim.handle(CallEnded(self.engine, batch, run, i, outcome), now)
