"""Core: all runs and queues of one process, behind one door.

A driver gives it events and performs its commands; both drivers (live, sim) use this very class,
so what is simulated is what serves. Every event is handled at once; `flush` then holds one
scheduling round at each engine that something happened to, so that primitives which become ready
together can share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from teola.errors import EngineUnavailable
from teola.graph.ops import PREFILLS
from teola.policies.work import Work
from teola.schedule.engine_queue import EngineQueue, Output, Tell
from teola.schedule.events import (
    Cause,
    Command,
    Finish,
    FirstToken,
    InstanceChanged,
    InstanceDown,
    InstanceDraining,
    InstanceUp,
    InstanceWaits,
    MemberCompleted,
    QueueEvent,
    RunCommand,
    RunEvent,
    SliceCompleted,
    SliceFailed,
    Submit,
    Timer,
    Withdraw,
)
from teola.schedule.graph_run import GraphRun

Measure = Callable[[str, int], int]
"""(run, primitive) -> items of its batchable input, or tokens of its prompt; asked once, when the
primitive is ready."""


class Core:
    """Routes events between runs and queues. No clock, no I/O, no threads."""

    def __init__(self, queues: Mapping[str, EngineQueue], measure: Measure) -> None:
        self.queues = dict(queues)
        self.runs: dict[str, GraphRun] = {}
        self._measure = measure
        self._dirty: dict[str, EngineQueue] = {}
        self._seq = 0
        self._commands: list[Command] = []

    def add(self, run: GraphRun) -> None:
        """Admit a run; its Started event begins it."""
        self.runs[run.id] = run

    def tell(self, run: str, event: RunEvent, now: float) -> list[Command]:
        """Handle an event of one run. Runs that have ended ignore it."""
        self._commands = []
        self._tell(run, event, now)
        return self._commands

    def handle(self, event: QueueEvent, now: float) -> list[Command]:
        """Handle an event of one engine."""
        self._commands = []
        queue = self.queues[event.engine]
        self._dirty[event.engine] = queue
        self._route(self._at_queue(queue, event, now), now)
        return self._commands

    @property
    def unsettled(self) -> bool:
        """Whether an engine's scheduling round is due."""
        return bool(self._dirty)

    def flush(self, now: float) -> list[Command]:
        """One scheduling round at every engine that something happened to."""
        self._commands = []
        while self._dirty:
            _, queue = self._dirty.popitem()
            self._route(queue.dispatch(now), now)
        return self._commands

    def _route(self, outputs: list[Output], now: float) -> None:
        """Commands to the driver, what concerns a run to that run."""
        for output in outputs:
            if type(output) is Tell:
                self._tell(output.run, output.event, now)
            else:
                self._commands.append(output)  # type: ignore[arg-type]

    def _at_queue(self, queue: EngineQueue, event: QueueEvent, now: float) -> list[Output]:
        kind = type(event)
        if kind is SliceCompleted:
            return queue.completed(event, now)  # type: ignore[arg-type]
        if kind is MemberCompleted:
            return queue.member(event, now)  # type: ignore[arg-type]
        if kind is FirstToken:
            return queue.first_token(event, now)  # type: ignore[arg-type]
        if kind is SliceFailed:
            return queue.failed(event, now)  # type: ignore[arg-type]
        if isinstance(event, InstanceDown):
            error = EngineUnavailable(f"instance {event.instance} of {event.engine!r} is gone")
            return queue.down(event, now, Cause(error, retryable=True))
        if isinstance(event, InstanceUp):
            queue.up(event.instance)
        elif isinstance(event, InstanceDraining):
            queue.draining(event.instance, now)
        elif isinstance(event, InstanceWaits):
            queue.instances.waits(event.instance, event.change)
        elif isinstance(event, InstanceChanged):
            queue.changed(event)
        else:
            assert isinstance(event, Timer), event
            queue.woken()
        return []

    def _tell(self, id: str, event: RunEvent, now: float) -> None:
        run = self.runs.get(id)
        if run is None:
            return
        for command in run.handle(event, now):
            self._perform(run, command, now)

    def _perform(self, run: GraphRun, command: RunCommand, now: float) -> None:
        kind = type(command)
        if kind is Submit:
            self._submit(run, command, now)  # type: ignore[arg-type]
        elif kind is Withdraw:
            engine = run.plan.primitives[command.primitive].engine  # type: ignore[union-attr]
            queue = self.queues[engine]
            self._dirty[engine] = queue
            self._commands += queue.withdraw(run.id, command.primitive, now)  # type: ignore
        else:
            if kind is Finish:
                del self.runs[run.id]
            self._commands.append(command)  # type: ignore[arg-type]

    def _submit(self, run: GraphRun, command: Submit, now: float) -> None:
        plan, i = run.plan, command.primitive
        primitive = plan.primitives[i]
        queue = self.queues[primitive.engine]
        continuous = queue.limits.continuous
        self._seq += 1
        work = Work(
            run=run.id,
            primitive=i,
            op=primitive.op,
            component=primitive.component,
            tenant=run.tenant,
            lane=None if primitive.op in PREFILLS else primitive.op,
            total=max(1, self._measure(run.id, i)),
            cuttable=primitive.batchable and not continuous,
            depth=plan.depth[i],
            arrival=now,
            seq=self._seq,
            affinity=command.affinity if continuous else -1,
            members=plan.members[i],
            retries=plan.retries[i],
            app=run.app,
            admitted=run.admitted,
            estimate=plan.estimates[i],
        )
        self._dirty[primitive.engine] = queue
        queue.submit(work, now)
