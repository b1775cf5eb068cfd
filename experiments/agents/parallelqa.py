"""ParallelQA: questions that take a few searches, calculations with what they find, and a join.

Its file has questions and answers; the plans are in plans.json here (`derive.py`). Without the
file the question is told in the words of its plan, and the answer is what the plan comes to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from experiments.agents import sums
from experiments.agents.facts import FACTS
from experiments.agents.task import Demand, Planned, Task
from teola.errors import InputError

FILE: Final = "llmcompiler_parallelqa.json"
PLANS: Final = Path(__file__).with_name("plans.json")
TOLERANCE: Final = 0.1
"""Of figures, as LLMCompiler's own evaluation has it."""
_READ: Final = re.compile(r"\$\{(\d+)\.value\}")
Plan = Mapping[str, Any]


def tasks(data: Path | None) -> list[Task]:
    """In the order of the data set. data: a folder with its file. Raises InputError."""
    plans = json.loads(PLANS.read_text(encoding="utf-8"))
    asked = _asked(data) if data is not None and (data / FILE).is_file() else {}
    return [_task(plan, asked.get(plan["id"])) for plan in plans]


def _asked(folder: Path) -> dict[str, Mapping[str, Any]]:
    path = folder / FILE
    try:
        return {one["id"]: one for one in json.loads(path.read_text(encoding="utf-8"))}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not the expected file of ParallelQA: {error!r}") from None


def _task(plan: Plan, asked: Mapping[str, Any] | None) -> Task:
    values = evaluated(plan)
    answer = said(plan, values)
    calls = [
        *(Planned("search", {"query": query}) for query in plan["searches"]),
        *(
            Planned("calculator", {"expression": text}, tuple(sorted(set(read(text)))))
            for text in plan["calculations"]
        ),
    ]
    question = asked["question"] if asked else _told(plan)
    expected = asked["answer"] if asked else answer
    demand = Demand(question, tuple(calls), join=plan["join"])
    return Task("parallelqa", str(plan["id"]), (demand,), expected=str(expected), values=values)


def _told(plan: Plan) -> str:
    things = "; ".join(plan["searches"])
    return f"From these figures ({things}) compute {'; '.join(plan['calculations'])}, and say it."


def read(expression: str) -> list[int]:
    """Numbers of the calls whose results stand in an expression."""
    return [int(number) for number in _READ.findall(expression)]


def evaluated(plan: Plan) -> list[float]:
    """What each call of the plan comes to, the first one first."""
    values = [FACTS[query.partition(", ")[0]].value for query in plan["searches"]]
    for expression in plan["calculations"]:
        filled = _READ.sub(lambda match: repr(values[int(match[1]) - 1]), expression)
        values.append(sums.value(filled))
    return values


def said(plan: Plan, values: Sequence[float]) -> str:
    """The answer that a plan's join gives."""
    return joined(plan["join"], dict(enumerate(values, 1)))


def joined(join: Mapping[str, Any], values: Mapping[int, float]) -> str:
    """The answer, by what the calls have given. Raises KeyError for one that is not there."""
    if "value" in join:
        return f"{values[join['value']]:.10g}"
    which = "largest" if "largest" in join else "smallest"
    pick = max if which == "largest" else min
    best = pick(join[which], key=lambda number: values[number])
    return str(join["names"][join[which].index(best)])


def close(answer: str, expected: str) -> bool:
    """Whether they are the same name, or figures that differ by a tenth at most."""
    try:
        told, right = float(answer), float(expected)
    except ValueError:
        return answer.casefold() == expected.casefold()
    return abs(told - right) <= TOLERANCE * abs(right)
