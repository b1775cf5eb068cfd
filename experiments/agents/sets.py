"""The sets of tasks, and whether a run of one was right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.agents import bfcl, parallelqa
from experiments.agents.task import Task
from experiments.agents.tools import Tools

SETS: Final = ("parallelqa", *bfcl.SETS)
ENDS: Final = " -- "
"""What stands between an answer and why it is one."""


def chosen(name: str, count: int, data: Path | None) -> list[Task]:
    """So many tasks of a set, spread evenly over it. Raises InputError."""
    found = parallelqa.tasks(data) if name == "parallelqa" else list(bfcl.tasks(name))
    count = min(count, len(found))
    return [found[k * len(found) // count] for k in range(count)]


def right(task: Task, answers: Sequence[str], tools: Tools) -> bool:
    """Whether the calls that were made are those that answer the task, with what they give, and
    the answer is the one that follows."""
    if len(answers) != len(task.demands):
        return False
    if task.set == "parallelqa":
        (demand,) = task.demands
        values = sorted(float(one.value) for one in tools.made if one.value is not None)
        said = answers[0].partition(ENDS)[0]
        same = values == sorted(task.values) and len(values) == len(demand.calls)
        return same and parallelqa.close(said, task.expected)
    if isinstance(tools.does, bfcl.Backend):
        return bfcl.ended_right(tools.made, tools.does, task)
    return bfcl.answered([(one.name, one.arguments) for one in tools.made], task)
