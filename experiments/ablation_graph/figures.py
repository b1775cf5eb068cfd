"""How the ablation is shown: table, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.ablation_graph.measure import LOADS, ONE, VARIANTS
from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.common.workloads import APPS

HEAD: Final = ("application", "prompts", "load", "none, s", *list(VARIANTS)[1:])


def _lines(report: Report) -> list[list[str]]:
    """A row for each place: the latency without passes, and the speedups."""
    speedup = {
        (s["app"], s["instructions"], s["load"], s["variant"]): f"{s['speedup']:.2f}"
        for s in report["speedups"]
    }
    return [
        [
            *(where := (r["app"], r["instructions"], r["load"])),
            f"{r['mean_s']:.2f}",
            *(speedup[*where, name] for name in list(VARIANTS)[1:]),
        ]
        for r in report["rows"]
        if r["variant"] == "none"
    ]


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    head = [name for name in HEAD if name != "prompts"]
    for kept in dict.fromkeys(r["instructions"] for r in report["rows"]):
        title = f"{kept}: mean latency without passes, and how many times lower"
        lines = [(line[0], *line[2:]) for line in _lines(report) if line[1] == kept]
        console.print(pages.terminal(title, head, lines, left=2))


def plot(report: Report, path: Path) -> None:
    """Speedups as bars, a panel for each application."""
    pyplot = plots.pyplot("ablation_graph")
    figure, axes = pyplot.subplots(1, len(APPS), figsize=(9.6, 2.8), sharey=True, squeeze=False)
    loads, names = (ONE, *LOADS), list(VARIANTS)[1:]
    for axis, app in zip(axes[0], APPS, strict=True):
        for k, name in enumerate(names):
            heights = [
                s["speedup"]
                for load in loads
                for s in report["speedups"]
                if (s["app"], s["instructions"], s["load"], s["variant"])
                == (app, "instructions computed", load, name)
            ]
            places = [i + 0.27 * (k - 1) for i in range(len(loads))]
            axis.bar(places, heights, width=0.25, label=name)
        axis.axhline(1.0, color="#8a8f98", lw=0.8)
        axis.set_xticks(range(len(loads)), loads)
        axis.set_title(app)
    axes[0][0].set_ylabel("speedup over no passes")
    axes[0][0].legend(frameon=False, fontsize=6)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    return "\n\n".join(
        [
            "## What the passes gain",
            "`python -m experiments.ablation_graph` simulates figure 9 of the paper: the same\n"
            "scheduler runs graphs after no pass, after those that make work parallel (prune\n"
            "dependencies, split prefilling), those that pipeline it (decompose stages, pipeline\n"
            f"decoding), and all. LLM of {about['llm'].upper()}; {about['queries']} queries at\n"
            "each point; loads are parts of the saturation rate without passes. The paper\n"
            "computes instructions for every query; engines with a prefix cache keep them.\n"
            "[More](../experiments/ablation_graph/README.md).",
            f"![Speedups]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
        ]
    )
