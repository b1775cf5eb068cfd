"""The same tasks in the simulator: an instance with the server's step, tools with their seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from experiments.agents import writer
from experiments.agents.stepping import BLOCK, BUDGET, SEQUENCES
from experiments.agents.task import Demand, Task
from experiments.agents.teola_side import MODES, app_of
from experiments.agents.tools import OBSERVATION, Computes, tools_of
from teola.cost import Cost, StepTime
from teola.graph import Grow, Op, Remarks
from teola.profile import EngineProfile, Profile
from teola.runtime.in_flight import Query
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.events import State
from teola.schedule.plan import Plan
from teola.workflow.components.acting import CALL, PURE, TURN
from teola.workflow.components.agent_grower import CALL_TOKENS

TOLD: Final = frozenset({"calls"})
SEEN: Final = OBSERVATION // 4 + CALL_TOKENS
"""Tokens of a call and its result in the next prompt."""


def profile(step_s: float) -> Profile:
    """The server and the tools; how long a call takes is its tool's (`Scripted.stretch`)."""
    llm = EngineProfile(
        step=StepTime(base_s=step_s),
        max_batch=BUDGET,
        max_sequences=SEQUENCES,
        prefix_reuse=True,
        keeps_prefixes=True,
        block_tokens=BLOCK,
    )
    calls = EngineProfile(
        costs={Op.TOOL_CALL: Cost(base_s=1.0, sigma=1.0)}, max_batch=1, concurrency=SEQUENCES
    )
    return Profile("agents", {"llm": llm, "python": calls})


def simulated(mode: str, tasks: Sequence[Task], step_ms: float) -> list[dict[str, Any]]:
    """A row a task, all of which begin at the same time."""
    known, scripts = profile(step_ms / 1e3), Scripted(mode)
    plans, ends = dict[int, tuple[Plan, Computes]](), dict[str, float]()

    def begin(task: int, k: int) -> None:
        id = f"{task}:{k}"
        demand, tools = tasks[task].demands[k], plans[task][1]
        scripts.demands[id] = demand, tools
        sim.submit(
            plans[task][0],
            {"question": Tokens(len(demand.question) // 4), "history": None},
            at=sim.now,
            id=id,
        )

    def ended(query: Query, result: SimulatedQuery) -> None:
        assert result.state is State.OK, "a simulated agent failed"
        task, k = map(int, result.id.split(":"))
        ends[result.id] = result.finished
        if k + 1 < len(tasks[task].demands):
            begin(task, k + 1)

    sim = Sim(known, outcomes=scripts, on_finish=ended)
    for number, task in enumerate(tasks):
        tools = tools_of(task)
        made = app_of(mode, task, tools)
        plans[number] = Optimiser(made.builder, known).plan({}, {}), tools.does
        begin(number, 0)
    sim.run()
    return [
        {
            "set": task.set,
            "task": task.name,
            "mode": mode,
            "makespan_s": round(ends[f"{number}:{len(task.demands) - 1}"], 4),
        }
        for number, task in enumerate(tasks)
    ]


class Scripted(Planned):
    """Agents do what the tasks' plans say. demands: by query, with what its tools do."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self._mode = MODES[mode]
        self.demands: dict[str, tuple[Demand, Computes]] = {}

    def growth(self, query: Query, i: int) -> Acted:
        demand, does = self.demands[query.id]
        streamed = self._mode["mode"] == "plan" and self._mode.get("streamed", True)
        question = query.store.resolve(i)["question"]
        return Acted(self._mode["mode"], streamed, demand, does.pure, question)

    def stretch(self, query: Query, i: int, sigma: float) -> float:
        assert query.place is not None
        demand, does = self.demands[query.place.growing.query.id]
        number = int(query.place.key.rpartition("/")[2])
        return does.seconds(demand.calls[number - 1].tool)


@dataclass
class Acted:
    """One run of an agent (see `teola.graph.Growth`). known: calls that were written, of which
    begun, and those that have ended."""

    style: str
    streamed: bool
    demand: Demand
    pure: bool
    question: Any
    turn: int = 0
    writing: bool = False
    answered: bool = False
    coming: tuple[int, ...] = ()
    known: list[int] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    done: dict[int, float] = field(default_factory=dict)

    def begin(self) -> Sequence[Grow]:
        return (self._turn(),)

    def told(self, key: str, port: str, item: Any) -> Sequence[Grow]:
        if item is None or not self.streamed:
            return ()
        self.known.append(item)
        return self._due()

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Sequence[Grow]:
        what, _, number = key.partition("/")
        if what == CALL:
            self.done[int(number)] = 0.0
        else:
            self.writing = False
            self.known += [n for n in self.coming if n not in self.known]
        due = self._due()
        if due or self.writing or self.answered or len(self.begun) > len(self.done):
            return due
        return (self._turn(),)

    def failed(self, key: str, error: Exception) -> Sequence[Grow]:
        raise error

    def result(self) -> Mapping[str, Any]:
        return {"answer": Tokens(writer.JOINER), "steps": []}

    def remarks(self) -> Remarks:
        return Remarks()

    def _due(self) -> list[Grow]:
        ready = [
            n
            for n in self.known
            if n not in self.begun and all(r in self.done for r in self.demand.calls[n - 1].reads)
        ]
        self.begun.update(ready)
        inputs = {"call": Tokens(1), "earlier": Tokens(1)}
        return [Grow(PURE if self.pure else CALL, f"{CALL}/{n}", inputs) for n in ready]

    def _turn(self) -> Grow:
        self.turn, self.writing = self.turn + 1, True
        reply = writer.reply(self.style, self.demand, self.done)
        self.answered, self.coming = not reply.calls, tuple(call.number for call in reply.calls)
        inputs = {"question": self.question}
        if self.done:
            inputs["transcript"] = [Tokens(SEEN)] * len(self.done)
        return Grow(TURN, f"{TURN}/{self.turn}", inputs, TOLD, expects=self._expected())

    def _expected(self) -> tuple[tuple[int, int | None], ...]:
        """When each call is written, and when all is."""
        if not self.coming:
            return ((writer.JOINER, None),)
        if self.style == "react":
            return ((writer.REACT, self.coming[0]), (writer.REACT, None))
        ends = [writer.HEAD + writer.CALL * k for k in range(1, len(self.coming) + 1)]
        return (*zip(ends, self.coming, strict=True), (ends[-1] + writer.TAIL, None))
