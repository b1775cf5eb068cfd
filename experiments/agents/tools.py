"""The tools of a task, told to each system in its own words, and a note of what was called."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from experiments.agents import facts, sums
from experiments.agents.task import Task

SEARCH_S: Final = 1.0
CALCULATOR_S: Final = 0.1
OBSERVATION: Final = 600
"""Characters of what a tool says: 150 tokens of 4."""
FILLER: Final = "Further passages say the same in other words, and add nothing that was asked for. "
SEARCH: Final = {
    "name": "search",
    "description": "Look up a figure of a thing.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "the thing, and what of it"}},
        "required": ["query"],
    },
}
CALCULATOR: Final = {
    "name": "calculator",
    "description": "Compute an expression of numbers with + - * /, min, max and abs.",
    "parameters": {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "such as 2 * (3 + 4)"}},
        "required": ["expression"],
    },
}


class Computes(Protocol):
    """What the tools of a task do. pure: they change nothing."""

    pure: bool

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """What a call gives."""
        ...

    def seconds(self, name: str) -> float:
        """How long it takes."""
        ...


class Lookups:
    """ParallelQA's two."""

    pure = True

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        if name == "calculator":
            return sums.value(arguments["expression"])
        fact = facts.found(arguments["query"])
        return fact.value if fact is not None else None

    def seconds(self, name: str) -> float:
        return CALCULATOR_S if name == "calculator" else SEARCH_S


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made: when it ended, in order, is the order of the list that it is in."""

    name: str
    arguments: Mapping[str, Any]
    value: Any


@dataclass
class Tools:
    """The tools of one run of a task. functions: schemas. made: all calls, as they ended."""

    functions: Sequence[Mapping[str, Any]]
    does: Computes
    made: list[Made] = field(default_factory=list)

    async def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What the tool says, as JSON."""
        await asyncio.sleep(self.does.seconds(name))
        value = self.does.call(name, arguments)
        self.made.append(Made(name, arguments, copy.deepcopy(value)))  # some give away their own
        return observation(value)


def observation(value: Any) -> str:
    """A value as a tool tells it: cut or filled to so many characters."""
    said = json.dumps({"value": value}, default=str)
    room = OBSERVATION - len(said) - len(', "more": ""')
    if room <= 0:
        return said if room > -OBSERVATION else json.dumps({"value": said[:OBSERVATION]})
    filler = (FILLER * (room // len(FILLER) + 1))[:room]
    return f'{said[:-1]}, "more": "{filler}"}}'


def tools_of(task: Task) -> Tools:
    """Fresh ones, for one run."""
    if task.set == "parallelqa":
        return Tools((SEARCH, CALCULATOR), Lookups())
    from experiments.agents import bfcl

    return Tools(task.functions, bfcl.computes(task))
