"""How the sizes are shown: table, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report

HEAD: Final = ("instances", "queries", "primitives", "time, s", "primitives/s", "memory, MB")


def _lines(report: Report) -> list[list[str]]:
    rows = sorted(report["rows"], key=lambda row: (row["queries"], row["instances"]))
    return [
        [
            f"{row['instances']:,}",
            f"{row['queries']:,}",
            f"{row['primitives']:,}",
            f"{row['wall_s']:.1f}",
            f"{row['primitives_per_s']:,}",
            f"{row['rss_mb']:.0f}",
        ]
        for row in rows
    ]


def _growth(report: Report) -> str:
    growth = report["growth"]
    return (
        f"ten times the instances take {10 ** growth['cpu_s_by_instances']:.2f} times the "
        f"processor's time for the same queries and {10 ** growth['rss_mb_by_instances']:.2f} "
        f"times the memory; ten times the queries {10 ** growth['cpu_s_by_queries']:.2f} times the "
        f"time and {10 ** growth['rss_mb_by_queries']:.2f} times the memory"
    )


def _long(report: Report) -> str:
    first = report["long_prompts"][0]
    rates = " and ".join(
        f"{row['calls_per_s']:,} calls a second with {row['routing']} "
        f"({row['mean_s']:.2f} s each in virtual time)"
        for row in report["long_prompts"]
    )
    return (
        f"Prompts of {first['prompt_tokens']:,} tokens on {first['instances']} instances, most of "
        f"which others have had: {rates}"
    )


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    title = f"Simulating {report['about']['app']} ({report['about']['batching']})"
    console.print(pages.terminal(title, HEAD, _lines(report)))
    console.print(f"On average {_growth(report)}.")
    console.print(f"{_long(report)}.")


def plot(report: Report, path: Path) -> None:
    """Primitives a second and memory, over instances and over queries."""
    plots.save(drawn(report), path)


def drawn(report: Report) -> Any:
    """That picture, not yet saved."""
    pyplot = plots.pyplot("scale")
    figure, axes = pyplot.subplots(2, 2, figsize=(7.2, 4.4), sharey="row", squeeze=False)
    rows: list[dict[str, Any]] = report["rows"]
    most = max(row["instances"] for row in rows)
    counts = [row["queries"] for row in rows]
    commonest = max(counts, key=counts.count)
    some = {
        "instances": [row for row in rows if row["queries"] == commonest],
        "queries": [row for row in rows if row["instances"] == most],
    }
    for column, (by, these) in enumerate(some.items()):
        these = sorted(these, key=lambda row: row[by])
        for line, what in enumerate(("primitives_per_s", "rss_mb")):
            axis = axes[line][column]
            axis.plot([r[by] for r in these], [r[what] for r in these], "o-", color="#1b6e5a")
            axis.set_xscale("log")
        axes[1][column].set_xlabel(by)
    for line, what in enumerate(("primitives_per_s", "rss_mb")):  # both of a row share its limits
        highest = max(row[what] for these in some.values() for row in these)
        axes[line][0].set_ylim(0, 1.08 * highest)
    axes[0][0].set_ylabel("primitives a second")
    axes[1][0].set_ylabel("memory, MB")
    return figure


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    return "\n\n".join(
        [
            "## How the simulator scales",
            f"{pages.called('scale', about)} simulates advanced RAG, by what engines declare,\n"
            "on ever more instances and with ever more queries. The rate grows with the\n"
            "instances, so that engines are busy for about 60 % of the time. On average\n"
            f"{_growth(report)}.\n\n"
            f"{_long(report)}.\n\n"
            f"{about['machine']['cpu']}, one core, load {about['machine']['load_1min']}.\n"
            "[More](../experiments/scale/README.md).",
            f"![Primitives a second, and memory]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
        ]
    )
