"""How the loads are shown: tables, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report

HEAD: Final = (
    "application",
    "load",
    "offered/s",
    "answered/s",
    "of the peak",
    "p50, s",
    "p99, s",
    "p99 to that at 0.8",
    "refused",
    "refusal p99, ms",
)
UNDER_FLOOD: Final = (
    "application",
    "load",
    "connections",
    "refusal p99, ms",
    "/healthz p99, ms",
    "/healthz longest, ms",
    "connections without room",
    "clients late p99, ms",
)


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            row["app"],
            f"{row['load']:g}",
            f"{row['offered_per_s']:,.0f}",
            f"{row['goodput_per_s']:,.1f}",
            f"{row['of_peak']:.0%}",
            f"{row['p50_s']:.3f}",
            f"{row['p99_s']:.3f}",
            f"{row['of_calm_p99']:.2f}",
            f"{row['refused']:,}",
            f"{row['refusal_p99_ms']:.1f}" if row["refused"] else "",
        ]
        for row in report["overload"]
    ]


def _under_flood(report: Report) -> list[list[str]]:
    return [
        [
            row["app"],
            f"{row['load']:g}",
            connections,
            f"{row['refusal_p99_ms']:.1f}",
            f"{row['health_p99_ms']:.1f}",
            f"{row['health_max_ms']:.1f}",
            "unknown" if row["listen_overflows"] is None else f"{row['listen_overflows']:,}",
            f"{row['late_p99_ms']:.1f}",
        ]
        for key, connections in (("overload", "kept"), ("anew", "new"))
        for row in report[key]
        if row["refused"]
    ]


def _speed(report: Report) -> str:
    added, crowd = report["added"], report["crowd"]
    null, bare = crowd["null"], crowd["bare"]
    return (
        f"{crowd['clients']} clients at once: {null['queries_per_s']:,.0f} queries a second "
        f"(p99 {null['p99_ms']:.0f} ms); the bare application answers "
        f"{bare['queries_per_s']:,.0f}. One client: {added['null_p50_ms']:.2f} ms a query, "
        f"{added['added_ms']:.2f} ms more than the bare application."
    )


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    console.print(_speed(report))
    title = "Queries that come whether there is room or not"
    console.print(pages.terminal(title, HEAD, _lines(report), left=1))
    title = "Refusals, and /healthz beside them"
    console.print(pages.terminal(title, UNDER_FLOOD, _under_flood(report), left=1))
    for row in report["overload"] + report["anew"]:
        if row["errors"]:
            console.print(f"{row['app']} at {row['load']:g}: {row['errors']}")


def plot(report: Report, path: Path) -> None:
    """Answers a second and latency over what is offered."""
    pyplot = plots.pyplot("serving")
    figure, axes = pyplot.subplots(1, 2, figsize=(7.2, 2.6), squeeze=False)
    apps = list(dict.fromkeys(row["app"] for row in report["overload"]))
    for colour, app in zip(("#1b6e5a", "#3a78b4"), apps, strict=False):
        rows = [row for row in report["overload"] if row["app"] == app]
        loads = [row["load"] for row in rows]
        parts = [row["of_peak"] for row in rows]
        axes[0][0].plot(loads, parts, "o-", color=colour, label=app)
        axes[0][1].plot(loads, [row["p50_s"] for row in rows], "o--", color=colour)
        axes[0][1].plot(loads, [row["p99_s"] for row in rows], "o-", color=colour)
    for axis, name in zip(axes[0], ("answered, of the peak", "p50 (dashed), p99, s"), strict=True):
        axis.set_xscale("log")
        axis.set_xticks([0.8, 1, 2, 10], ["0.8", "1", "2", "10"])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.set_xlabel("offered, in multiples of what it can do")
        axis.set_ylabel(name)
    axes[0][0].legend(frameon=False)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]["machine"]
    return "\n\n".join(
        [
            "## The server under load",
            "`python -m experiments.serving` loads `teola serve` from a process beside it, on the\n"
            f"same {about['cores']} cores. With an application that does nothing, {_speed(report)}",
            "Queries that come at random times, whether there is room or not, up to ten times as\n"
            "many as can be answered: `waiting` takes half a second in one of 32 places, and\n"
            "`naive-rag` is the embedded one, whose engines need the processor.",
            f"![Answers a second and latency over what is offered]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            "While it refuses, with connections that are kept and with a new one for each query:",
            pages.table(UNDER_FLOOD, _under_flood(report)),
            pages.foot("serving", about),
        ]
    )
