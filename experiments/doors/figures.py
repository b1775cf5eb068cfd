"""How the doors are shown: a table, a plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.doors.measure import BOUND_S, GOAL_S

HEAD: Final = ("door", "contents", "worst content", "its bytes", "gap, s", "control, s", "RSS, MiB")


def worst(report: Report) -> list[dict[str, Any]]:
    """The row with the longest gap of each door, in the order of the doors."""
    found: dict[str, dict[str, Any]] = {}
    for row in report["rows"]:
        if row["door"] not in found or row["gap_s"] > found[row["door"]]["gap_s"]:
            found[row["door"]] = row
    return list(found.values())


def _lines(report: Report) -> list[list[str]]:
    doors = [row["door"] for row in report["rows"]]
    return [
        [
            row["door"],
            str(doors.count(row["door"])),
            row["content"],
            f"{row['bytes']:,}",
            f"{row['gap_s']:.3f}",
            f"{row['control_s']:.3f}",
            f"{max(one['rss_mib'] for one in report['rows'] if one['door'] == row['door']):,.0f}",
        ]
        for row in worst(report)
    ]


def summary(report: Report) -> str:
    """How many rows keep the bound and the goal."""
    rows = report["rows"]
    late = sum(row["gap_s"] > BOUND_S for row in rows)
    slow = sum(row["gap_s"] > GOAL_S for row in rows)
    most = max(rows, key=lambda row: float(row["gap_s"]))
    return (
        f"{len(rows):,} rows: {late} above {BOUND_S:g} s, {slow} above {GOAL_S:g} s. The longest "
        f"gap is {most['gap_s']:.3f} s ({most['door']}, {most['content']})."
    )


def show(report: Report, console: Console) -> None:
    """The worst row of each door, on the terminal."""
    console.print(pages.terminal("The longest gap of the loop", HEAD, _lines(report), left=1))
    console.print(summary(report))


def plot(report: Report, path: Path) -> None:
    """The longest gap of each door."""
    rows = worst(report)
    names, gaps = [row["door"] for row in rows], [max(row["gap_s"], 1e-3) for row in rows]
    what = "longest gap of the loop, s; the lines are the goal and the bound"
    figure, axis = plots.rows("doors", names, gaps, what)
    axis.set_xscale("log")
    axis.axvline(BOUND_S, color="#b43a3a")
    axis.axvline(GOAL_S, color="#b43a3a", linestyle="dotted")
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    return "\n\n".join(
        [
            "## Hostile contents",
            pages.prose(
                f"{pages.called('doors', about)} sends hostile contents through every route, kind",
                "of tool and MCP server of a `teola serve`, one at a time, and watches the",
                "server's event loop: a gap is time in which nobody else is served.",
                "`control` is the gap of a loop that does nothing, at the same time.",
                summary(report),
            ),
            f"![The longest gap of the loop, by door]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            pages.foot("doors", about["machine"]),
        ]
    )
