"""Core: all runs and queues of one process, behind one door.

A driver gives it events and performs its commands; both drivers (live, sim) use this very class,
so what is simulated is what serves. Every event is handled at once; `flush` then holds one
scheduling round at each engine that something happened to, so that primitives which become ready
together can share a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from teola.policies.work import Size, Window, Work
from teola.schedule.engine_queue import EngineQueue, Output
from teola.schedule.events import (
    BatchCompleted,
    CallEnded,
    Command,
    FirstToken,
    InstanceChanged,
    InstanceDown,
    InstanceDraining,
    InstanceUp,
    InstanceWaits,
    LimitsTold,
    Measure,
    MemberCompleted,
    Outbox,
    Parted,
    PrefixChanged,
    ProgramPaused,
    QueueEvent,
    Recall,
    RowsEnded,
    RunEvent,
    Sized,
    Submit,
    Tell,
    Timer,
    Tuned,
    Withdraw,
)
from teola.schedule.run import Run

Measuring = Callable[[str, int], int | Size | None]
"""(run, primitive) -> items of its batchable input, or tokens of its prompt, with the keys of its
blocks if the engine's routing wants them; asked once, when the primitive is ready. None: that takes
longer, and the core sends the command Measure for it."""


class Core:
    """Routes events between runs and queues. No clock, no I/O, no threads.

    All that its runs and queues say goes to one outbox, in the order in which it is said; `tell`,
    `handle` and `flush` return what has come together there.
    """

    def __init__(self, queues: Mapping[str, EngineQueue], measure: Measuring) -> None:
        self.queues = dict(queues)
        self.runs: dict[str, Run] = {}
        self._measure = measure
        self.unsettled: dict[str, EngineQueue] = {}
        """Queues to which something happened: a scheduling round is due at each of them."""
        self._seq = 0
        self._out: Outbox = []
        self._now = 0.0
        self._asked = self._ask  # one for all runs

    def add(self, run: Run) -> None:
        """Admit a run; its Started event begins it."""
        self.runs[run.id] = run
        run.attach(self._out, self._asked)

    def drop(self, run: str, now: float) -> list[Command]:
        """Forget a run that cannot go on, and what it has at the engines."""
        self._out.clear()
        dropped = self.runs.pop(run, None)
        for name, queue in self.queues.items():
            for id, i in [key for key in queue.works if key[0] == run]:
                queue.withdraw(id, i, now, self._out)
                self.unsettled[name] = queue
        if dropped is not None:
            self._has_ended(dropped, now)
        return self._out.copy()

    def tell(self, run: str, event: RunEvent, now: float) -> list[Command]:
        """Handle an event of one run. Runs that have ended ignore it."""
        self._out.clear()
        self._tell(run, event, now)
        return self._out.copy()

    def handle(self, event: QueueEvent, now: float) -> list[Command]:
        """Handle an event of one engine."""
        self._out.clear()
        queue = self.unsettled[event.engine] = self.queues[event.engine]
        self._route(_AT_QUEUE[type(event)](queue, event, now), now)
        return self._out.copy()

    def flush(self, now: float) -> list[Command]:
        """One scheduling round at every engine that something happened to."""
        self._out.clear()
        while self.unsettled:
            _, queue = self.unsettled.popitem()
            lost, faults = queue.instances.lost, queue.faults
            if faults.error is None and not lost:
                queue.dispatch(now, self._out)
            if lost or faults.error is not None:
                self._route(queue.give_up(now), now)
        return self._out.copy()

    def _route(self, outputs: list[Output], now: float) -> None:
        """Commands to the driver, what concerns a run to that run."""
        for output in outputs:
            if isinstance(output, Tell):
                self._tell(output.run, output.event, now)
            else:
                self._out.append(output)

    def _tell(self, id: str, event: RunEvent, now: float) -> None:
        run = self.runs.get(id)
        if run is None:
            return
        self._now = now
        run.handle(event, now)
        if run.state is not None:
            del self.runs[id]
            self._has_ended(run, now)

    def _has_ended(self, run: Run, now: float) -> None:
        """Tell policies if a program has ended with this run."""
        if run.asker.program == run.id:
            for name, queue in self.queues.items():
                queue.placing.paused(ProgramPaused(queue.engine, run.id, ended=True), now)
                if queue.line.held:  # perhaps for that program's sake
                    self.unsettled[name] = queue

    def _ask(self, command: Submit | Withdraw | Recall) -> bool:
        """Do at once what a run wants of a queue, at which a round is due then; whether it was
        done. No queue answers with an event: the run is in the middle of one."""
        id, i, now = command.run, command.primitive, self._now
        run = self.runs[id]
        spec = run.plan.specs[i]
        queue = self.unsettled[spec.engine] = self.queues[spec.engine]
        if isinstance(command, Submit):
            self._submit(run, queue, command, now)
        elif isinstance(command, Withdraw):
            queue.withdraw(id, i, now, self._out)
        else:
            return self._recall(run, queue, command, now)
        return True

    def _recall(self, run: Run, queue: EngineQueue, command: Recall, now: float) -> bool:
        work, into = queue.works.get((run.id, command.primitive)), run.plan.specs[command.into]
        if work is None:
            return False
        tokens = (work.total or work.spec.planned_tokens) + into.planned_tokens
        if work.flying or work.tries or tokens > queue.instances.least:
            work.wanted = True  # so large a prompt would have to wait for an idle instance
            return False
        queue.withdraw(run.id, command.primitive, now, self._out)
        return True

    def _submit(self, run: Run, queue: EngineQueue, command: Submit, now: float) -> None:
        id, i = run.id, command.primitive
        spec = run.plan.specs[i]
        size: int | Size | None = 1
        total = 1
        rows = command.rows
        if rows is not None:
            size, total = Size(rows.count, rows.keys), rows.count
        elif spec.measured:
            size = self._measure(id, i)
            total = 0 if size is None else max(1, size if isinstance(size, int) else size.total)
        self._seq += 1
        work = Work(
            spec,
            id,
            i,
            total,
            now,
            self._seq,
            command.affinity,
            run.asker,
            run.began,
            run.behind_s,
            run.longer_s,
            run.admitted,
            run.deadline,
            command.fused_tokens,
        )
        if rows is not None:
            work.row_tokens, work.row_found, work.window = rows.row_tokens, rows.found, Window()
        if size is None:
            queue.hold(work)
            self._out.append(Measure(id, i))
            return
        if not isinstance(size, int):
            work.keys, work.same = size.keys, size.same
        queue.submit(work, now, self._out)


_AT_QUEUE: Final[Mapping[type, Callable[[EngineQueue, Any, float], list[Output]]]] = {
    BatchCompleted: EngineQueue.completed,
    CallEnded: EngineQueue.call_ended,
    FirstToken: EngineQueue.first_token,
    MemberCompleted: EngineQueue.member,
    RowsEnded: EngineQueue.rows_ended,
    Timer: EngineQueue.woken,
    InstanceDown: EngineQueue.down,
    InstanceDraining: EngineQueue.draining,
    InstanceUp: EngineQueue.up,
    InstanceWaits: EngineQueue.waits,
    InstanceChanged: EngineQueue.changed,
    LimitsTold: EngineQueue.limits_told,
    Sized: EngineQueue.sized,
    Parted: EngineQueue.parted,
    PrefixChanged: EngineQueue.prefixes,
    ProgramPaused: EngineQueue.paused,
    Tuned: EngineQueue.tuned,
}
"""What becomes of each event at the queue of its engine."""
