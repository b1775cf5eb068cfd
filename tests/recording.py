"""Running plans on a live driver, and noting all that a core hears and says, live or simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from teola.graph import Op
from teola.graph.ops import DECODES
from teola.policies import batching as batching_policies
from teola.policies import routing as routing_policies
from teola.policies.asker import Asker
from teola.policies.work import Size, Work, WorkSpec
from teola.runtime.in_flight import Query
from teola.runtime.live.live import Live
from teola.schedule.core import Core, Measuring
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import (
    Command,
    Completed,
    Control,
    Dispatch,
    Failed,
    Finish,
    Fused,
    QueueEvent,
    RunCommand,
    RunEvent,
    Sized,
    Skipped,
    State,
    Submit,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.hedging import Hedging
from teola.schedule.overdue import Overdue
from teola.schedule.plan import Plan
from teola.schedule.run import Run
from teola.schedule.validate import validate, validate_stored
from teola.testing import bench


class Heard(NamedTuple):
    """An event that reached a run."""

    run: str
    event: RunEvent


class Said(NamedTuple):
    """A command of a run."""

    run: str
    command: RunCommand


class Noted(list[RunCommand]):
    """An outbox that notes what a run adds, and passes it on."""

    def __init__(self, run: str, story: list[Any], on: Callable[[Any], object]) -> None:
        super().__init__()
        self._run, self._story, self._on = run, story, on

    def append(self, command: RunCommand) -> None:
        self.asked(command)

    def asked(self, command: RunCommand) -> object:
        """What came of it."""
        self._story.append(Said(self._run, command))
        return self._on(command)


@dataclass
class Log:
    """What one core was asked (`calls`) and answered, and in between what its runs did."""

    calls: list[tuple[str, Any, float, list[Command]]] = field(default_factory=list)
    story: list[Heard | Said | Command] = field(default_factory=list)
    measured: dict[tuple[str, int], int | Size | None] = field(default_factory=dict)
    later: dict[tuple[str, int], Size] = field(default_factory=dict)

    def items(self, key: tuple[str, int]) -> int:
        """Of a primitive: 1 of one that is not measured, of others what was found at once or
        later."""
        found = self.measured.get(key, 1)
        found = self.later[key] if found is None else found
        return max(1, found if isinstance(found, int) else found.total)

    plans: dict[str, Plan] = field(default_factory=dict)
    weights: dict[tuple[str, int], int] = field(default_factory=dict)
    """By engine and batch: its items; of LLM calls, tokens that were to be computed then."""


class RecordingCore(Core):
    """The core, with a log, and looked at after every event. queries: the driver's, whose stores
    are looked at whenever all commands were performed."""

    def __init__(
        self,
        queues: Mapping[str, EngineQueue],
        measure: Measuring,
        queries: Mapping[str, Query] | None = None,
    ) -> None:
        self.log, self._queries = Log(), {} if queries is None else queries
        super().__init__(queues, self._noted(measure))

    def _noted(self, measure: Measuring) -> Measuring:
        def noted(run: str, i: int) -> int | Size | None:
            self.log.measured[run, i] = found = measure(run, i)
            return found

        return noted

    def add(self, run: Run) -> None:
        assert isinstance(run, GraphRun)
        self.log.plans[run.id] = run.plan
        about = (run.id, run.asker, run.admitted, run.deadline, run.behind_s, run.longer_s)
        self.log.calls.append(("add", about, run.began, []))
        super().add(run)
        story = self.log.story
        run.attach(Noted(run.id, story, self._out.append), Noted(run.id, story, self._asked).asked)

    def tell(self, run: str, event: RunEvent, now: float) -> list[Command]:
        return self._note("tell", (run, event), now, super().tell(run, event, now))

    def handle(self, event: QueueEvent, now: float) -> list[Command]:
        if isinstance(event, Sized):
            self.log.later[event.run, event.primitive] = event.size
        return self._note("handle", event, now, super().handle(event, now))

    def flush(self, now: float) -> list[Command]:
        for query in self._queries.values():
            validate_stored(query.run, query.store.values)
        return self._note("flush", None, now, super().flush(now))

    def _note(self, what: str, given: Any, now: float, found: list[Command]) -> list[Command]:
        validate(self, now)
        self.log.calls.append((what, given, now, list(found)))
        for command in found:
            if isinstance(command, Dispatch):
                self.log.story.append(command)
                weight = sum(hi - lo - work.found for work, lo, hi in command.slices)
                self.log.weights[command.engine, command.batch] = weight
        return found

    def _tell(self, id: str, event: RunEvent, now: float) -> None:
        run = self.runs.get(id)
        if run is not None:
            self.log.story.append(Heard(id, event))
        super()._tell(id, event, now)


class Bench(bench.Bench):
    """A bench whose core is recorded."""

    core: RecordingCore

    def make_core(self, queues: Mapping[str, EngineQueue], live: Live) -> RecordingCore:
        return RecordingCore(queues, live._measure, live.queries)


def check(log: Log) -> None:
    """The invariants of scheduling: see each assertion."""
    done: set[tuple[str, int]] = set()
    skipped: set[tuple[str, int]] = set()
    undone: set[tuple[str, int]] = set()
    dropped: set[str] = set()  # parts that nobody reads any more
    began: Counter[tuple[str, int]] = Counter()
    sent: dict[tuple[str, int], list[tuple[int, int]]] = {}
    states: Counter[str] = Counter()
    for entry in log.story:
        if isinstance(entry, Heard) and isinstance(entry.event, (Completed, Failed)):
            done.add((entry.run, entry.event.primitive))
        elif isinstance(entry, Said):
            command = entry.command
            if isinstance(command, Finish):
                states[entry.run] += 1
                if command.state is State.CANCELLED and "/" in entry.run:
                    dropped.add(entry.run)
            if isinstance(command, Fused):
                done.add((entry.run, command.primitive))
            if isinstance(command, Skipped):
                key = (entry.run, command.primitive)
                assert key not in skipped, f"{key} was skipped twice"
                skipped.add(key)
                if key in done:
                    undone.add(key)
            if isinstance(command, (Submit, Control)):
                i, plan = command.primitive, log.plans[entry.run]
                assert (entry.run, i) not in skipped, f"{i} began although it had been skipped"
                began[entry.run, i] += 1
                for parent in plan.parents[i]:
                    key = (entry.run, parent)
                    assert key in done | skipped, f"{i} began before its parent {parent} ended"
        elif isinstance(entry, Dispatch):
            for work, lo, hi in entry.slices:
                sent.setdefault((work.run, work.primitive), []).append((lo, hi))
    for run, plan in log.plans.items():
        assert states[run] == 1, "a query ends exactly once"
        for i, p in enumerate(plan.primitives):
            where = f"{p.id} of {run}"
            key = (run, i)
            if run in dropped:
                continue
            most = 0 if p.op in DECODES else 1  # a decoding is a member of a group
            assert began[key] == most or (key in skipped and not began[key]), (
                f"{where} began {began[key]} times"
            )
            assert key in done | skipped, f"{where} is neither done nor skipped"
            if key in undone:
                assert any(guard.speculative for guard in p.guards), f"{where} is done and skipped"
            if key in skipped:
                continue
            if key in sent:
                spans = sorted(sent[key])
                assert spans[0][0] == 0
                assert spans[-1][1] == log.items(key)
                assert all(a[1] == b[0] for a, b in pairwise(spans)), where


def replayed(log: Log, queues: Mapping[str, EngineQueue]) -> list[list[Command]]:
    """The commands of a fresh core that is told what `log` was told, at the same times."""

    def measure(run: str, i: int) -> int:
        return log.measured[run, i]

    core = Core(queues, measure)
    found: list[list[Command]] = []
    for what, given, now, _ in log.calls:
        if what == "add":
            id, asker, admitted, deadline, behind_s, longer_s = given
            plan = log.plans[id]
            at = {"admitted": admitted, "behind_s": behind_s, "longer_s": longer_s}
            core.add(GraphRun(id, plan, asker, began=now, deadline=deadline, **at))
            found.append([])
        elif what == "tell":
            found.append(list(core.tell(given[0], given[1], now)))
        elif what == "handle":
            found.append(list(core.handle(given, now)))
        else:
            found.append(list(core.flush(now)))
    return found


def fresh(queue: EngineQueue, batching: str, routing: str = "least_loaded") -> EngineQueue:
    """A queue like `queue`, with nothing in it."""
    found = EngineQueue(
        queue.engine,
        [instance.limits for instance in queue.instances],
        batching_policies.make(batching),
        routing_policies.make(routing),
        list(queue.placing.profiles),
    )
    found.overdue = Overdue() if queue.overdue is not None else None
    found.hedging = Hedging(queue.hedging.share) if queue.hedging is not None else None
    return found


def work(seq: int = 0, **given: Any) -> Work:
    """A queued work; `given` replaces defaults, of its spec and its asker too. admitted: its query,
    which is when its run began."""
    spec: dict[str, Any] = {
        "engine": "e",
        "op": Op.EMBEDDING,
        "component": "c",
        "lane": Op.EMBEDDING,
        "cuttable": True,
        "depth": 0,
    }
    for name in WorkSpec.__dataclass_fields__:
        if name in given:
            spec[name] = given.pop(name)
    of_asker = ("tenant", "app", "program", "finish_by")
    who = {name: given.pop(name) for name in of_asker if name in given}
    began = given.pop("admitted", 0.0)
    made = Work(
        **{
            "spec": WorkSpec(**spec),
            "run": "q",
            "primitive": seq,
            "total": 1,
            "arrival": 0.0,
            "seq": seq,
            "asker": Asker(**who, admitted=began),
            "began": began,
            "admitted": began,
            **given,
        }
    )
    if not made.spans:
        made.spans = [(0, made.total)]
    return made
