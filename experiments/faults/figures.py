"""How the kills are shown: table, plot and a section."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report

HEAD: Final = (
    "host",
    "kills",
    "of work in flight",
    "queries",
    "ok",
    "lost",
    "wrong",
    "tries that failed",
    "processes left",
    "median, s (undisturbed)",
    "p99, s",
)
TROUBLES: Final = ("trouble", "queries", "ok", "lost", "calls", "share_of_bad", "p50_s", "p99_s")


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            row["host"],
            f"{row['kills']:,}",
            f"{row['hit']:,}",
            f"{row['queries']:,}",
            f"{row['states'].get('ok', 0):,}",
            str(row["lost"]),
            str(row["wrong"]),
            str(row["failed_tries"]),
            str(row["orphans"]),
            f"{row['p50_s']:.2f} ({row['calm_p50_s']:.2f})",
            f"{row['p99_s']:.2f}",
        ]
        for row in report["rows"]
    ]


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    title = "Instances killed while queries run on them"
    console.print(pages.terminal(title, HEAD, _lines(report)))
    if troubles := report.get("simulated"):
        lines = [[str(row[key]) for key in TROUBLES] for row in troubles]
        title = "One of four simulated servers in trouble"
        console.print(pages.terminal(title, TROUBLES, lines))
    for row in report["rows"]:
        for held in row["held"]:
            console.print(f"{row['host']}: still held at the end: {held}")


def plot(report: Report, path: Path) -> None:
    """Queries that have ended over time, and the kills among them."""
    pyplot = plots.pyplot("faults")
    rows = report["rows"]
    figure, axes = pyplot.subplots(1, len(rows), figsize=(7.2, 2.6), squeeze=False)
    for axis, row in zip(axes[0], rows, strict=True):
        ends = row["ends_s"]
        axis.plot(ends, range(1, len(ends) + 1), color="#1b6e5a", label="queries ended")
        axis.plot(row["kills_s"], [0] * len(row["kills_s"]), "|", color="#b3312c", label="kills")
        axis.set_title(row["host"])
        axis.set_xlabel("seconds")
    axes[0][0].legend(frameon=False)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    cpu = report["about"]["machine"]["cpu"]
    return "\n\n".join(
        [
            "## Killing instances",
            "`python -m experiments.faults` kills instances with SIGKILL, at random moments,\n"
            "while queries run on them: of "
            f"{report['queries']:,} queries and {report['kills']:,} kills "
            f"{report['lost']} queries were lost and {report['wrong']} answered wrong.\n"
            f"{cpu}. [More](../experiments/faults/README.md).",
            f"![Queries that ended, and kills, over time]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
        ]
    )
