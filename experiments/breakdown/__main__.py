"""Figure 11: optimisation, communication, queueing, execution. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from rich.progress import Progress

from experiments.breakdown import figures, live, simulated
from experiments.common import command
from experiments.common.command import Experiment, Options, Report
from experiments.common.workloads import APPS
from teola.runtime import machine

LIVE_QUERIES: Final = (6, 1)
"""Queries to each application on real engines, and with --quick."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ray", default=True, metavar="ADDRESS", help="of a Ray cluster (default: one made here)"
    )
    parser.add_argument(
        "--no-ray", dest="ray", action="store_false", help="not with the engines in Ray actors"
    )


def measure(options: Options, progress: Progress) -> Report:
    """Simulated rows, then real engines in this process, then in Ray actors."""
    queries = LIVE_QUERIES[options.quick]
    characters = live.QUICK_CHARACTERS if options.quick else live.CHARACTERS
    places = [False, *([options.given.ray] if options.given.ray else [])]
    task = progress.add_task("simulated", total=len(APPS) + len(places) * live.runs(queries))
    rows: list[dict[str, Any]] = []
    for app in APPS:
        rows += simulated.rows(app, options)
        progress.advance(task)
    for place in places:
        progress.update(task, description="Ray actors" if place else "real engines")
        rows += live.rows(queries, characters, place, lambda: progress.advance(task))
    planning = [simulated.planning(app) for app in APPS]
    about = {"rows": rows, "planning": planning, "about": options.about()}
    return {**about, "machine": machine.describe()}


EXPERIMENT: Final = Experiment(
    name="breakdown",
    about="What the latency along the real critical path is made of (figure 11 of the paper)",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(500, 60),
    arguments=_arguments,
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
