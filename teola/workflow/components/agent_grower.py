"""AgentGrower: what an Agent leaves in its primitive, and how it grows where nothing is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from teola.graph import Grow, Repeated
from teola.tools.decision import PlannedCall
from teola.tools.toolbox import Toolbox
from teola.workflow.build import Builder
from teola.workflow.components.acting import CALL, LAST, TURN, Acting
from teola.workflow.components.agency import Makes
from teola.workflow.components.agent_turn import AgentConfig

TURNS: Final = frozenset({TURN, LAST})
CALL_TOKENS: Final = 22
"""Of a call as a model writes it; for simulations."""


@dataclass(frozen=True)
class AgentGrower:
    """How an Agent grows; see there. counts_by: engine by whose tokenizer texts are cut. shows: its
    steps to whoever follows the query."""

    parts: tuple[tuple[str, Builder], ...]
    toolbox: Toolbox
    config: AgentConfig
    expect: tuple[int, int]
    effect: bool
    maker: Makes
    counts_by: str = ""
    shows: bool = True
    gathers: bool = True

    @cached_property
    def bodies(self) -> Mapping[str, Builder]:
        return dict(self.parts)

    @cached_property
    def repeated(self) -> Repeated:
        turns, calls = self.expect
        with_calls = turns * calls if self.config.mode == "react" else turns
        most = self.config.at_most
        return Repeated(TURN, TURNS, min(with_calls + 1, most), at_most=most)

    @property
    def at_once(self) -> int:
        return self.config.at_once + 1  # the turn that is being written, too

    def growth(self, inputs: Mapping[str, Any]) -> Acting:
        return Acting(self, inputs)

    def planned(self, inputs: Mapping[str, Any]) -> Acting:
        return Expected(self, inputs)


@dataclass
class Expected(Acting):
    """One run of an Agent as far as it can be expected: so many turns, with so many calls each."""

    agent: AgentGrower

    def begin(self) -> Sequence[Grow]:
        return (self._turn(),)

    def _turn(self) -> Grow:
        turns, calls = self.agent.expect
        if self.agent.config.mode == "react":
            turns, calls = turns * calls, 1
        grow = super()._turn()._replace(made=None)
        more = self.turn <= min(turns, self.agent.config.at_most - 1)
        wrote = tuple((CALL_TOKENS * (k + 1), k) for k in range(calls)) if more else ()
        return grow._replace(body=TURN, tells=frozenset({"calls"}), expects=wrote)

    def told(self, key: str, port: str, item: Any) -> Sequence[Grow]:
        self._read(item)
        return self._due() if self._streams else ()

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Sequence[Grow]:
        if key.startswith(CALL):
            self.results[int(key.rpartition("/")[2])] = outputs["result"]
            return self._next()
        self.writing = False
        if len(self.calls) == len(self.results):
            self.answer = outputs["decision"]
        return self._next()

    def result(self) -> Mapping[str, Any]:
        steps = [*self.results.values()]
        return {"answer": self.answer, "steps": steps, "tool_calls": None, "exchange": None}

    def _to_approve(self, call: PlannedCall) -> PlannedCall | None:
        return None

    def _read(self, item: Any) -> None:
        self.number += 1
        name = next((tool.name for tool in self.agent.toolbox), CALL)
        self.calls[self.number] = PlannedCall(self.number, name, {})

    def _note(self) -> None:
        results = [*self.results.values()]
        self.entries += results[self.shown :]
        self.shown = len(results)

    def _transcript(self, most: int) -> list[Any]:
        return [*self.entries]
