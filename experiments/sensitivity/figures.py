"""How the ranges are shown: table, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.baselines.systems import PAPERS
from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.common.workloads import APPS
from experiments.sensitivity.measure import LOADS, ONE
from experiments.sensitivity.parameters import PARAMETERS

HEAD: Final = ("application", "LLM", "load", "as it is", "least", "with", "most", "with")
BASELINES_HEAD: Final = (*HEAD[:3], "baseline", *HEAD[3:])
NAMES: Final = tuple(system.name for system in PAPERS)


def _range(one: dict[str, Any]) -> list[str]:
    return [
        f"{one['speedup']:.2f}",
        f"{one['least']:.2f}",
        one["least_with"],
        f"{one['most']:.2f}",
        one["most_with"],
    ]


def _place(one: dict[str, Any]) -> tuple[int, str, int]:
    return APPS.index(one["app"]), one["llm"], (ONE, *LOADS).index(one["load"])


def _headlines(report: Report) -> list[list[str]]:
    """A row for each headline."""
    return [
        [
            *(one[key] for key in ("app", "llm", "load")),
            *_range(one),
        ]
        for one in sorted(report["headlines"], key=_place)
    ]


def _baselines(report: Report) -> list[list[str]]:
    return [
        [*(one[key] for key in ("app", "llm", "load", "baseline")), *_range(one)]
        for one in sorted(report["baselines"], key=_place)
    ]


def show(report: Report, console: Console) -> None:
    """The headlines on the terminal."""
    title = "Speedup over the slowest baseline, with one value changed"
    lines = (
        (app, llm, load, speedup, f"{least} to {most}")
        for app, llm, load, speedup, least, _, most, _ in _headlines(report)
    )
    console.print(pages.terminal(title, (*HEAD[:4], "range"), lines, left=3))


def plot(report: Report, path: Path) -> None:
    """A panel for each load; in it a bar from the least to the most for each application, LLM and
    baseline, with a mark where it is."""
    pyplot = plots.pyplot("sensitivity")
    found = sorted(report["baselines"], key=_place)
    groups = list(dict.fromkeys((one["app"], one["llm"]) for one in found))
    height = 0.62 * len(groups) + 0.9
    figure, axes = pyplot.subplots(
        1, 1 + len(LOADS), figsize=(9.6, height), sharex=True, sharey=True, squeeze=False
    )
    for axis, load in zip(axes[0], (ONE, *LOADS), strict=True):
        for one in (one for one in found if one["load"] == load):
            row = groups.index((one["app"], one["llm"])) + 0.2 * NAMES.index(one["baseline"]) - 0.3
            axis.barh(
                row,
                one["most"] - one["least"],
                left=one["least"],
                height=0.17,
                color=plots.COLOURS[one["baseline"]],
            )
            axis.plot(one["speedup"], row, "|", color="black", ms=4)
        axis.axvline(1.0, color="#8a8f98", lw=0.8)
        axis.set_title(load)
        axis.set_ylim(len(groups) - 0.5, -0.5)
        axis.set_xlim(min(o["least"] for o in found) - 0.02, max(o["most"] for o in found) + 0.02)
    axes[0][0].set_yticks(range(len(groups)), [f"{app}, {llm}" for app, llm in groups])
    axes[0][1].set_xlabel("mean latency of the baseline divided by Teola's")
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=plots.COLOURS[name]) for name in NAMES]
    axes[0][-1].legend(handles, NAMES, frameon=False, fontsize=6)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    return "\n\n".join(
        [
            "## What the simulated speedups rest on",
            pages.prose(
                f"{pages.called('sensitivity', about)} halves and doubles every figure of the",
                "testbed that was derived or assumed, one at a time, and repeats every",
                "headline: the speedup over the slowest of the paper's four baselines. TO's",
                "wait is also taken away. Loads are parts of what Teola sustains with the",
                f"changed figure, whether or not a baseline does. {about['queries']} queries at",
                "each point. [More](../experiments/sensitivity/README.md).",
            ),
            f"![Ranges]({picture.as_posix()})",
            pages.table(HEAD, _headlines(report)),
            "### Against each baseline",
            pages.table(BASELINES_HEAD, _baselines(report)),
            "### What was changed",
            pages.table(("value", "", "source"), _values()),
        ]
    )


def _values() -> list[tuple[Any, ...]]:
    return [(f"`{p.key}`", p.what, p.source) for p in PARAMETERS]
