"""How the steps are shown: table, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.shorter_path.measure import LOADS, ONE

HEAD: Final = (
    "step",
    "application",
    *(text for load in (ONE, *LOADS) for text in (f"{load}, s", "ratio")),
)


def _lines(report: Report) -> list[list[str]]:
    """A row for each step and application: seconds without and with it at each load, and their
    ratio."""
    found: dict[tuple[str, str], list[str]] = {}
    for r in report["rows"]:
        line = found.setdefault((r["what"], r["app"]), [r["what"], r["app"]])
        line += [f"{r['without_s']:.2f} → {r['with_s']:.2f}", f"{r['speedup']:.2f}"]
    return list(found.values())


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    title = "Mean latency in seconds, without and with each step"
    keys = list(dict.fromkeys((r["step"], r["app"]) for r in report["rows"]))
    lines = ((*key, *line[2::2]) for key, line in zip(keys, _lines(report), strict=True))
    console.print(pages.terminal(title, ("step", "application", ONE, *LOADS), lines, left=2))


def plot(report: Report, path: Path) -> None:
    """Speedups as bars, a group for each step and application."""
    pyplot = plots.pyplot("shorter_path")
    rows, loads = report["rows"], (ONE, *LOADS)
    places = list(dict.fromkeys((r["what"], r["app"]) for r in rows))
    figure, axis = pyplot.subplots(figsize=(8.4, 0.46 * len(places) + 0.9))
    for k, load in enumerate(loads):
        found = {(r["what"], r["app"]): r["speedup"] for r in rows if r["load"] == load}
        heights = [i + 0.27 * (k - 1) for i in range(len(places))]
        axis.barh(
            heights,
            [found[place] - 1 for place in places],
            left=1,
            height=0.25,
            label=load,
            color=plots.SHADES[k],
        )
    axis.axvline(1.0, color="#8a8f98", lw=0.8)
    axis.set_yticks(range(len(places)), [f"{what}\n{app}" for what, app in places], fontsize=7)
    axis.invert_yaxis()
    axis.set_xlabel("mean latency without the step divided by that with it")
    axis.legend(frameon=False, fontsize=7)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    return "\n\n".join(
        [
            "## What else shortens the path",
            pages.prose(
                f"{pages.called('shorter_path', about)} measures steps one by one, each on top",
                f"of all else: LLM of {about['llm'].upper()}, one query, and {about['queries']}",
                "queries at parts of what is sustained without the step. Work done ahead or on",
                "a guess takes the engines' time, so under load it can cost more than it gains.",
                "Seconds are mean latencies without and with the step.",
                "[More](../experiments/shorter_path/README.md).",
            ),
            f"![Speedups]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
        ]
    )
