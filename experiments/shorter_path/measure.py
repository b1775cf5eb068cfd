"""Runs both ways of every step, alone and under load."""

from __future__ import annotations

from typing import Any, Final

from rich.progress import Progress

from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.common.simulate import alone, rounded, sustained, under_load
from experiments.shorter_path.steps import LLM, STEPS, Step

LOADS: Final = {"50%": 0.5, "80%": 0.8}
"""Parts of what is sustained without the step."""
ONE: Final = "one query"


def measure(options: Options, progress: Progress) -> Report:
    """Mean latencies without and with each step."""
    given = (options.queries, options.seed, options.data)
    jobs = [(_both, (step, *given)) for step in STEPS]
    found = pool.run(jobs, options.workers, progress, "with and without")
    rows = [row for rows in found for row in rows]
    return {"rows": rows, "about": {"llm": LLM, **options.about()}}


def _both(step: Step, queries: int, seed: int, data: Any) -> list[dict[str, Any]]:
    """The rows of a step: both ways see the same queries at the same times."""
    ways = [
        (way.system(), way.setting(step.app, queries, seed, data), way.one(step.app))
        for way in (step.before, step.after)
    ]
    system, setting, _ = ways[0]
    most = sustained(system, setting)
    rows = [_row(step, ONE, [alone(*way) for way in ways])]
    for load, part in LOADS.items():
        rate = rounded(part * most)
        means = [under_load(system, setting, rate).mean for system, setting, _ in ways]
        rows.append(_row(step, load, means))
    return rows


def _row(step: Step, load: str, means: list[float]) -> dict[str, Any]:
    before, after = means
    return {
        "step": step.key,
        "what": step.what,
        "app": step.app,
        "load": load,
        "without_s": round(before, 4),
        "with_s": round(after, 4),
        "speedup": round(before / after, 4),
    }
