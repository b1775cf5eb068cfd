"""How an agent goes on: which turn and which calls follow from what was written and called."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from teola.errors import EngineError, OutputError
from teola.graph import Grow
from teola.tools.decision import PlannedCall
from teola.tools.tool_result import ToolResult
from teola.tools.toolbox import Toolbox
from teola.workflow.build import Builder

TURN, LAST, CALL, PURE = PARTS = "turn", "last", "call", "pure"
READ: Final = ("question", "history", "instructions")
"""What each turn reads of what the agent does."""
NOTHING: Final = frozenset[str]()
CHARACTERS: Final = 4
"""Of a token, about."""
CALL_TOKENS: Final = 22
"""Of a call as a model writes it; for simulations."""
HEADER: Final = "\n\nCalls so far, and what they gave:"
AGAIN: Final = "Your last reply could not be read: {told}. Reply with one JSON object."


class Way(Protocol):
    """How an agent is to go on; see AgentConfig."""

    @property
    def mode(self) -> str: ...

    @property
    def streamed(self) -> bool: ...

    @property
    def at_most(self) -> int: ...

    @property
    def at_once(self) -> int: ...

    @property
    def results_tokens(self) -> int: ...


@dataclass(frozen=True)
class AgentGrower:
    """How an Agent grows; see there."""

    parts: tuple[tuple[str, Builder], ...]
    toolbox: Toolbox
    config: Way
    expect: tuple[int, int]
    effect: bool

    @property
    def bodies(self) -> Mapping[str, Builder]:
        return dict(self.parts)

    @property
    def at_once(self) -> int:
        return self.config.at_once + 1  # the turn that is being written, too

    def growth(self, inputs: Mapping[str, Any]) -> Acting:
        return Acting(self, inputs)

    def planned(self, inputs: Mapping[str, Any]) -> Acting:
        return Expected(self, inputs)


@dataclass
class Acting:
    """One run of an Agent. writing: a turn is being written. calls: by number, all that were read.
    ready, begun: of them. number: of the last one."""

    agent: AgentGrower
    inputs: Mapping[str, Any]
    turn: int = 0
    writing: bool = False
    number: int = 0
    calls: dict[int, PlannedCall] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    results: dict[int, ToolResult] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)
    shown: int = 0
    answer: Any = None
    again: str = ""

    @property
    def _streams(self) -> bool:
        config = self.agent.config
        return config.mode == "plan" and config.streamed

    def begin(self) -> Sequence[Grow]:
        return (self._turn(),)

    def told(self, key: str, port: str, item: Any) -> Sequence[Grow]:
        self._read(item)
        return self._due()

    def ended(self, key: str, outputs: Mapping[str, Any]) -> Sequence[Grow]:
        what, _, number = key.partition("/")
        if what == CALL:
            self.results[int(number)] = ToolResult(**outputs["result"])
            return self._next()
        self.writing = False
        if not self._streams:
            for item in outputs["calls"] or ():
                self._read(item)
        decision = outputs["decision"]
        if isinstance(decision, Mapping) and "answer" in decision:
            self.answer = decision["answer"]
        return self._next()

    def failed(self, key: str, error: Exception) -> Sequence[Grow]:
        cause = error.__cause__ if error.__cause__ is not None else error
        unread = isinstance(cause, OutputError) and not key.startswith(CALL)
        if not unread or self.again or self.turn >= self.agent.config.at_most:
            raise error
        self.writing, self.again = False, AGAIN.format(told=cause)
        return self._next()

    def result(self) -> Mapping[str, Any]:
        return {"answer": self.answer, "steps": [self._step(k) for k in sorted(self.results)]}

    def _step(self, number: int) -> dict[str, Any]:
        call, result = self.calls[number], self.results[number]
        return {
            "tool": call.tool,
            "args": dict(call.arguments),
            "result": result.text,
            "failed": result.failed,
            "seconds": round(result.seconds, 6),
        }

    def _read(self, item: Any) -> None:
        """A call that the model has written."""
        self.number += 1
        call = self.agent.toolbox.read_call(item, self.number, self.calls)
        self.calls[call.number] = call
        self.number = max(self.number, call.number)

    def _due(self) -> list[Grow]:
        """Calls that can begin: all that they refer to is there."""
        found = []
        for number, call in self.calls.items():
            if number not in self.begun and all(n in self.results for n in call.reads):
                self.begun.add(number)
                found.append(self._begun(number, call))
        return found

    def _begun(self, number: int, call: PlannedCall) -> Grow:
        toolbox = self.agent.toolbox
        pure = call.tool in toolbox and toolbox[call.tool].pure
        earlier = {n: self.results[n] for n in call.reads}
        inputs = {"call": call, "earlier": earlier}
        if "context" in self.inputs:
            inputs["context"] = self.inputs["context"]
        return Grow(PURE if pure else CALL, f"{CALL}/{number}", inputs)

    def _next(self) -> Sequence[Grow]:
        """The calls that can begin; when all have ended and nothing is being written, the next
        turn, if there is no answer yet."""
        due = self._due()
        if due or self.writing or len(self.begun) > len(self.results):
            return due
        if self.answer is not None:
            return ()
        if self.turn >= self.agent.config.at_most:
            raise EngineError(f"it has not answered in {self.turn} turns")
        return (self._turn(),)

    def _turn(self) -> Grow:
        config = self.agent.config
        self.turn += 1
        self.writing = True
        last = self.turn == config.at_most
        self._note()
        inputs = {name: self.inputs[name] for name in READ if name in self.inputs}
        if self.entries:
            inputs["transcript"] = self._transcript()
        tells = frozenset({"calls"}) if self._streams and not last else NOTHING
        return Grow(LAST if last else TURN, f"{TURN}/{self.turn}", inputs, tells, answers=True)

    def _note(self) -> None:
        """What the model is to see of the calls since its last turn."""
        for number in sorted([*self.results][self.shown :]):
            call, result = self.calls[number], self.results[number]
            args = json.dumps(dict(call.arguments), ensure_ascii=False)
            self.entries.append(f"{number}. {call.tool}({args}): {result.text}")
        self.shown = len(self.results)
        if self.again:
            self.entries.append(self.again)

    def _transcript(self) -> list[Any]:
        """The entries, the oldest of which are left out where they are too long in all."""
        left, kept = self.agent.config.results_tokens * CHARACTERS, list[str]()
        for entry in reversed(self.entries):
            left -= len(entry)
            if left < 0:
                kept.append("(earlier calls are left out)")
                break
            kept.append(entry)
        return [HEADER, *reversed(kept)]


class Expected(Acting):
    """One run of an Agent as far as it can be expected: so many turns, with so many calls each."""

    def _turn(self) -> Grow:
        turns, calls = self.agent.expect
        if self.agent.config.mode == "react":
            turns, calls = turns * calls, 1
        grow = super()._turn()
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
        return {"answer": self.answer, "steps": [*self.results.values()]}

    def _read(self, item: Any) -> None:
        self.number += 1
        self.calls[self.number] = PlannedCall(self.number, next(iter(self.agent.toolbox)).name, {})

    def _note(self) -> None:
        results = [*self.results.values()]
        self.entries += results[self.shown :]
        self.shown = len(results)

    def _transcript(self) -> list[Any]:
        return [*self.entries]
