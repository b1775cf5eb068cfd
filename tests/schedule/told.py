"""A run by names: events in, commands out."""

from __future__ import annotations

from typing import Any

from teola.errors import EngineError
from teola.schedule.events import Cause, Completed, Failed, Finish, Started
from teola.schedule.graph_run import GraphRun
from tests.schedule.plans import Guard, heard, plan, run, tool

START = Started({"question": 1, "notes": 2})
CAUSE = Cause(EngineError("it broke"))


class Told:
    """A run by names instead of indices: `(what, primitive)` of each command."""

    def __init__(self, run: GraphRun) -> None:
        self.run = run

    def _named(self, commands: list[Any]) -> list[tuple[str, str]]:
        ids = self.run.plan.ids
        return [
            ("finish", c.state.value)
            if isinstance(c, Finish)
            else (type(c).__name__.lower(), ids[c.primitive])
            for c in commands
        ]

    def start(self, **counts: int) -> list[tuple[str, str]]:
        return self._named(heard(self.run, Started({**START.counts, **counts}), 0.0))

    def done(self, id: str, count: int = 1, **more: Any) -> list[tuple[str, str]]:
        i = self.run.plan.index[id]
        counts = dict.fromkeys(self.run.plan.primitives[i].outputs, count)
        return self._named(heard(self.run, Completed(i, counts, **more)))

    def fail(self, id: str) -> list[tuple[str, str]]:
        return self._named(heard(self.run, Failed(self.run.plan.index[id], CAUSE)))

    def tell(self, event: Any) -> list[tuple[str, str]]:
        return self._named(heard(self.run, event))


def told(*primitives: Any, **more: Any) -> Told:
    return Told(run(plan(*primitives, **more)))


def guarded(id: str, branch: str, *reads: str) -> Any:
    return tool(id, *reads, guards=(Guard("if", branch),))
