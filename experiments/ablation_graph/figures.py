"""How the ablation is shown: tables, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.ablation_graph.measure import ALL, GROUPS, ONE
from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.common.simulate import LOADS

VARIANTS: Final = tuple(GROUPS)[1:]
HEAD: Final = ("application", "load", "none, s", *VARIANTS)
PASSES_HEAD: Final = ("application", "load", *ALL)


def said(load: float) -> str:
    """A load in a table."""
    return "one query" if load == ONE else f"{load:.0%}"


def _lines(report: Report) -> list[list[str]]:
    """A row for each place: the latency without passes, and the speedups."""
    found = {(g["app"], g["load"], g["variant"]): g for g in report["groups"]}
    return [
        [
            app,
            said(load),
            f"{found[app, load, 'none']['mean_s']:.2f}",
            *(f"{found[app, load, name]['speedup']:.2f}" for name in VARIANTS),
        ]
        for app, load in dict.fromkeys((app, load) for app, load, _ in found)
    ]


def _passes(report: Report) -> list[list[str]]:
    """A row for each place: of each pass, how many times as high the mean is without it."""
    found = {(r["app"], r["load"], r["pass"]): f"{r['ratio']:.3f}" for r in report["rows"]}
    return [
        [app, said(load), *(found[app, load, name] for name in ALL)]
        for app, load in dict.fromkeys((app, load) for app, load, _ in found)
    ]


def _least(report: Report) -> str:
    """Which pass gains least, in a sentence."""
    least = min(report["rows"], key=lambda row: row["ratio"])
    return (
        f"The least of these ratios is {least['ratio']:.3f}: `{least['pass']}`, {least['app']}, "
        f"{said(least['load'])}."
    )


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    title = "Mean latency without each pass, divided by that with all"
    console.print(pages.terminal(title, PASSES_HEAD, _passes(report), left=2))
    title = "Mean latency without passes, and how many times lower it is with some"
    console.print(pages.terminal(title, HEAD, _lines(report), left=2))
    console.print(_least(report))


def plot(report: Report, path: Path) -> None:
    """Speedups as bars, a panel for each application."""
    pyplot = plots.pyplot("ablation_graph")
    apps = list(dict.fromkeys(g["app"] for g in report["groups"]))
    figure, axes = pyplot.subplots(
        2, len(apps) // 2, figsize=(9.6, 4.8), sharey=True, squeeze=False
    )
    loads = (ONE, *LOADS)
    for i, app in enumerate(apps):
        axis = axes[i % 2][i // 2]
        for k, name in enumerate(VARIANTS):
            found = {
                g["load"]: g["speedup"]
                for g in report["groups"]
                if (g["app"], g["variant"]) == (app, name)
            }
            places = [at + 0.27 * (k - 1) for at in range(len(loads))]
            axis.bar(places, [found[load] for load in loads], width=0.25, label=name)
        axis.axhline(1.0, color="#8a8f98", lw=0.8)
        axis.set_xticks(range(len(loads)), [said(load) for load in loads])
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
            pages.prose(
                f"{pages.called('ablation_graph', about)} takes each pass away from Teola as it",
                f"is shipped. LLM of {about['llm'].upper()}, as in the paper; {about['queries']}",
                f"queries at each point, {about['seeds']} seeds; loads are parts of what all",
                "passes together sustain. Engines keep instructions, or compute them for every",
                "query, as in the paper. [More](../experiments/ablation_graph/README.md).",
            ),
            pages.prose(
                "Mean latency without a pass divided by that with all, the geometric mean over",
                "the seeds: above 1, the pass gains.",
            ),
            pages.table(PASSES_HEAD, _passes(report)),
            _least(report),
            "### Figure 9 of the paper",
            pages.prose(
                "The same scheduler after no pass, after those that make work parallel (prune",
                "dependencies, split prefilling), after those that pipeline it (decompose",
                "stages, pipeline decoding, split reranking), and after all.",
            ),
            f"![Speedups]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
        ]
    )
