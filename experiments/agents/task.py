"""A task for an agent: what is asked, and which calls of tools answer it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Planned:
    """A call that answers part of a demand. reads: numbers of the calls, from 1 on, whose results
    stand in its arguments. after: it may only be made when those before it have ended."""

    tool: str
    arguments: Mapping[str, Any]
    reads: tuple[int, ...] = ()
    after: bool = False


@dataclass(frozen=True, slots=True)
class Demand:
    """What a user asks at once, and the calls that answer it. join: how the answer follows from
    their results; none: that they were made is all there is to say."""

    question: str
    calls: tuple[Planned, ...]
    join: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, text: str) -> dict[str, Demand]:
        """Demands by tag, as JSON has them."""
        found = {}
        for tag, one in json.loads(text).items():
            calls = (Planned(**{**call, "reads": tuple(call["reads"])}) for call in one["calls"])
            found[tag] = cls(one["question"], tuple(calls), one["join"])
        return found

    def plans(self) -> list[list[int]]:
        """Numbers of the calls that a plan may list together, one plan after another."""
        found: list[list[int]] = [[]]
        for number, call in enumerate(self.calls, 1):
            if call.after and found[-1]:
                found.append([])
            found[-1].append(number)
        return found

    def stages(self) -> list[list[int]]:
        """Numbers of the calls that may be made at the same time, one list after another."""
        found: list[list[int]] = []
        for plan in self.plans():
            at: dict[int, int] = {}
            first = len(found)
            for number in plan:
                reads = self.calls[number - 1].reads
                at[number] = max((at[n] + 1 for n in reads if n in at), default=first)
                if at[number] == len(found):
                    found.append([])
                found[at[number]].append(number)
        return [stage for stage in found if stage]


@dataclass(frozen=True)
class Task:
    """A conversation of one or several demands. set, name: of the data set, and its own there.
    functions: schemas of the tools that it has, where they are its own. scenario: what its tools
    begin with. expected: the right answer, if there is one to compare. values: of its calls."""

    set: str
    name: str
    demands: tuple[Demand, ...]
    functions: Sequence[Mapping[str, Any]] = ()
    scenario: Mapping[str, Any] = field(default_factory=dict)
    expected: str = ""
    values: Sequence[float] = ()

    def tag(self, k: int) -> str:
        """What names the demand `k`, from 0 on, in a prompt."""
        return f"[{self.set} {self.name} {k + 1}]"

    def question(self, k: int) -> str:
        """Demand `k` as it is asked."""
        return f"{self.tag(k)} {self.demands[k].question}"
