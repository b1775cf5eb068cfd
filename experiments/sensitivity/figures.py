"""How the ranges are shown: table, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.sensitivity.parameters import PARAMETERS

HEAD: Final = ("headline", "baseline", "as it is", "least", "with", "most", "with")


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            f"{one['app']} {one['llm']}, {one['load']}",
            one["baseline"],
            f"{one['speedup']:.2f}",
            f"{one['least']:.2f}",
            one["least_with"],
            f"{one['most']:.2f}",
            one["most_with"],
        ]
        for one in report["headlines"]
    ]


def show(report: Report, console: Console) -> None:
    """The ranges on the terminal."""
    table = Table(title="Speedups, and their range with one value halved or doubled")
    for i, name in enumerate(HEAD):
        table.add_column(name, justify="right" if i in (2, 3, 5) else "left")
    for line in _lines(report):
        table.add_row(*line)
    console.print(table)


def plot(report: Report, path: Path) -> None:
    """A bar from the least to the most for each headline, a mark where it is."""
    pyplot = plots.pyplot("sensitivity")
    headlines = report["headlines"]
    figure, axis = pyplot.subplots(figsize=(7.6, 0.2 * len(headlines) + 0.8))
    for i, one in enumerate(headlines):
        width = one["most"] - one["least"]
        axis.barh(i, width, left=one["least"], height=0.6, color=plots.COLOURS[one["baseline"]])
        axis.plot(one["speedup"], i, "|", color="black", ms=8)
    labels = [f"{o['app']}, {o['llm']}, {o['load']}, {o['baseline']}" for o in headlines]
    axis.set_yticks(range(len(headlines)), labels, fontsize=6)
    axis.axvline(1.0, color="#8a8f98", lw=0.8)
    axis.invert_yaxis()
    axis.set_xlabel("mean latency of the baseline divided by Teola's")
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    return "\n\n".join(
        [
            "## What the simulated speedups rest on",
            "`python -m experiments.sensitivity` halves and doubles every figure of the testbed\n"
            "that was derived or assumed, one at a time, and repeats every headline. Loads go by\n"
            f"the saturation rates that follow. {about['queries']} queries at each point.\n"
            "[More](../experiments/sensitivity/README.md).",
            f"![Ranges]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            "### What was changed",
            pages.table(("value", "", "source"), _values()),
        ]
    )


def _values() -> list[tuple[Any, ...]]:
    return [(f"`{p.key}`", p.what, p.source) for p in PARAMETERS]
