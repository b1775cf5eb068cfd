"""Runs every set under every mode, live and simulated, and the sweep over step times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from rich.progress import Progress

from experiments.agents import running, sets, simulated
from experiments.agents.task import Task
from experiments.agents.teola_side import MODES as OURS
from experiments.common.command import Options, Report
from teola.errors import UnknownName
from teola.runtime import machine

STEP_MS: Final = 23.5
SWEEP_MS: Final = (7.0, 40.0)
"""Steps of the sweep, beside the one that everything else takes."""
SWEPT: Final = "parallelqa"
SIDE_BY_SIDE: Final = 12
"""Tasks that begin at the same time."""
Row = Mapping[str, Any]


def measure(options: Options, progress: Progress) -> Report:
    """rows: of each set, task and mode. simulated: of Teola's modes. sweep: means of one set at
    other step times. steps: what the servers' steps have taken in the mean."""
    names = chosen(options.given.sets, sets.SETS, "set")
    modes = chosen(options.given.modes, running.MODES, "mode")
    tasks = {name: sets.chosen(name, options.queries, options.data) for name in names}
    steps = () if options.quick or SWEPT not in names else SWEEP_MS
    task = progress.add_task("", total=(len(names) + len(steps)) * len(modes))

    def told(what: str) -> None:
        progress.update(task, description=what, advance=1)

    idle = machine.describe()
    rows, predicted, took = [], [], {}
    for name in names:
        found, took[name] = _live(tasks[name], modes, STEP_MS, told)
        rows += found
        predicted += _simulated(tasks[name], modes, STEP_MS)
    sweep = means(rows, predicted, STEP_MS, SWEPT) if steps else []
    for step in steps:
        some = tasks[SWEPT][:SIDE_BY_SIDE]
        found, took[f"{SWEPT}, {step:g} ms"] = _live(some, modes, step, told)
        sweep += means(found, _simulated(some, modes, step), step, SWEPT)
    return {
        "rows": rows,
        "simulated": predicted,
        "sweep": sweep,
        "steps_ms": took,
        "about": {"quick": options.quick, "queries": options.queries, "step_ms": STEP_MS},
        "machine": {**machine.describe(), "load_before": idle["load_1min"]},
    }


def chosen(given: str | None, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Those that are named, or all. Raises UnknownName."""
    names = tuple(known) if given is None else tuple(one.strip() for one in given.split(","))
    for name in names:
        if name not in known:
            raise UnknownName(what, name, known)
    return tuple(dict.fromkeys(names))


def _live(
    tasks: Sequence[Task], modes: Sequence[str], step_ms: float, told: Callable[[str], None]
) -> tuple[list[dict[str, Any]], float]:
    rows = []
    with running.server(tasks, step_ms) as url:
        for mode in modes:
            told(f"{tasks[0].set}, {mode}, {step_ms:g} ms")
            for first in range(0, len(tasks), SIDE_BY_SIDE):
                rows += running.run(url, mode, tasks[first : first + SIDE_BY_SIDE])
        return rows, round(running.step_ms(url), 3)


def _simulated(tasks: Sequence[Task], modes: Sequence[str], step_ms: float) -> list[dict[str, Any]]:
    return [
        row
        for mode in modes
        if mode in OURS
        for first in range(0, len(tasks), SIDE_BY_SIDE)
        for row in simulated.simulated(mode, tasks[first : first + SIDE_BY_SIDE], step_ms)
    ]


# --- what is compared -----------------------------------------------------------------------


def means(
    rows: Sequence[Row], predicted: Sequence[Row], step_ms: float, name: str
) -> list[dict[str, Any]]:
    """A line for each mode of a set: its mean makespan, live and simulated, and how many tasks were
    answered right."""
    found = []
    for mode in dict.fromkeys(row["mode"] for row in rows if row["set"] == name):
        some = [row for row in rows if row["set"] == name and row["mode"] == mode]
        like = [row for row in predicted if row["set"] == name and row["mode"] == mode]
        found.append(
            {
                "set": name,
                "mode": mode,
                "step_ms": step_ms,
                "tasks": len(some),
                "makespan_s": round(fmean(row["makespan_s"] for row in some), 4),
                "simulated_s": round(fmean(row["makespan_s"] for row in like), 4) if like else None,
                "calls": sum(row["calls"] for row in some),
                "correct": sum(row["correct"] for row in some),
            }
        )
    return found


def ratios(lines: Sequence[Row]) -> dict[str, float]:
    """Of each other mode's mean makespan to that of `teola_streamed`, on one set and step."""
    ours = next((one["makespan_s"] for one in lines if one["mode"] == "teola_streamed"), None)
    if ours is None:
        return {}
    return {
        one["mode"]: one["makespan_s"] / ours for one in lines if one["mode"] != "teola_streamed"
    }
