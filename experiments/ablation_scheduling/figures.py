"""How the ablation is shown: table, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console

from experiments.ablation_scheduling.measure import COMPARED, INSTRUCTIONS, ONE, POLICIES
from experiments.ablation_scheduling.tree import TOGETHER
from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.common.workloads import APPS

COLOURS: Final = dict(zip(POLICIES, ("#b8bcc4", "#c98524", "#3a78b4", "#1b6e5a"), strict=True))
CHAIN, PAIRS = TOGETHER
HEAD: Final = (
    "application",
    "instructions",
    "load",
    *(f"{name}, s" for name in POLICIES),
    *(f"{policy} against {other}" for policy, other in COMPARED),
)
SHORT: Final = (
    "application",
    "load",
    "fifo",
    "per inv.",
    "topo.",
    "crit. path",
    "topo. / fifo",
    "topo. / per inv.",
    "crit. path / topo.",
)
"""For a terminal."""
TREE_HEAD: Final = ("times", "load", "order", "mean, s")


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    for kept in INSTRUCTIONS:
        title = (
            f"Mean latency in seconds by batching policy, instructions {kept}; "
            "how many times lower it is"
        )
        lines = [(line[0], *line[2:]) for line in _lines(report) if line[1] == kept]
        console.print(pages.terminal(title, SHORT, lines, left=1))
    title = "The two-level summarisation tree"
    console.print(pages.terminal(title, TREE_HEAD, _tree_lines(report), left=3))


def _lines(report: Report) -> list[list[str]]:
    """A row for each place: means, and how many times lower one is than another."""
    gains = {(*_place(g), g["policy"], g["against"]): f"{g['mean']:.3f}" for g in report["gains"]}
    means = {key: f"{seconds:.2f}" for key, seconds in _means(report).items()}
    return [
        [
            *(place[0], place[1], _load(place[2])),
            *(means[*place, policy] for policy in POLICIES),
            *(gains[*place, *pair] for pair in COMPARED),
        ]
        for place in dict.fromkeys(map(_place, report["rows"]))
    ]


def _means(report: Report) -> dict[tuple[Any, ...], float]:
    """By place and policy, over all seeds."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in report["rows"]:
        found.setdefault((*_place(row), row["policy"]), []).append(row["mean_s"])
    return {key: fmean(seconds) for key, seconds in found.items()}


def _place(row: dict[str, Any]) -> tuple[str, str, float]:
    return row["app"], row["instructions"], row["load"]


def _load(load: float) -> str:
    return "one query" if load == ONE else f"{load:.0%}"


def _tree_lines(report: Report) -> list[list[str]]:
    return [
        [r["profile"], _load(r["load"]), r["policy"], f"{r['mean_s']:.2f}"] for r in report["tree"]
    ]


def plot(report: Report, path: Path) -> None:
    """Mean latency over the load, divided by that of `topology`: a panel for each application."""
    pyplot = plots.pyplot("ablation_scheduling")
    figure, axes = pyplot.subplots(
        len(INSTRUCTIONS), len(APPS), figsize=(9.6, 4.6), sharex=True, sharey="row", squeeze=False
    )
    means = _means(report)
    for row, kept in zip(axes, INSTRUCTIONS, strict=True):
        for axis, app in zip(row, APPS, strict=True):
            loads = sorted({r["load"] for r in report["rows"] if r["load"] != ONE})
            for policy in POLICIES:
                heights = [
                    means[app, kept, load, policy] / means[app, kept, load, "topology"]
                    for load in loads
                ]
                axis.plot(loads, heights, marker="o", ms=3, label=policy, color=COLOURS[policy])
            axis.set_title(f"{app}, instructions {kept}")
        row[0].set_ylabel("mean latency / topology's")
    for axis in axes[-1]:
        axis.set_xlabel("load (part of what is sustained)")
    axes[0][0].legend(frameon=False, fontsize=6)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    best = max(
        (g for g in report["gains"] if g["policy"] == "critical_path"), key=lambda g: g["mean"]
    )
    return "\n\n".join(
        [
            "## What the batching policies gain",
            pages.prose(
                f"{pages.called('ablation_scheduling', about)} simulates figure 10 of the paper:",
                "the same graphs under four batching policies. `fifo` and `per_invocation` are",
                "the paper's TO and PO (here without TO's wait), `topology` is its Algorithm 2,",
                "`critical_path` is ours and the default ([decision",
                f"0012](decisions/0012-critical-path.md)). LLM of {about['llm'].upper()};",
                f"{about['queries']} queries at each point, {about['seeds']} seeds; loads are",
                "parts of what `critical_path` sustains. The last columns say how many times",
                "lower the mean is. The paper: topology-aware batching lowers the mean under",
                "load by up to 19.2 %. [More](../experiments/ablation_scheduling/README.md).",
            ),
            pages.prose(
                f"`critical_path` gains most in {best['app']} with instructions",
                f"{best['instructions']} at {_load(best['load'])} load: {best['mean']:.2f} times",
                "lower than `topology`. Where a policy does not sustain a load, its mean grows",
                "with the number of queries, and with it what others are better by.",
            ),
            f"![Mean latency by load]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            "### The two-level summarisation tree",
            _about_tree(report),
            pages.table(TREE_HEAD, _tree_lines(report)),
        ]
    )


def _about_tree(report: Report) -> str:
    """What the calls of one depth gain with each profile, in sentences."""
    found: dict[str, dict[str, float]] = {}
    for row in report["tree"]:
        if row["load"] == ONE:
            found.setdefault(row["profile"], {})[row["policy"]] = row["mean_s"]
    sentences = []
    for name, one in found.items():
        chain, pairs = (one[other] / one["topology"] for other in (CHAIN, PAIRS))
        sentences += [
            f"With the times {name}: {chain:.2f} times less than one call after the other,",
            f"{pairs:.2f} times less than two at a time.",
        ]
    return pages.prose(
        "Eight calls and one that merges their answers, on one instance; calls of one depth",
        "share batches. The paper gains 1.4 over batches of two and gives no times. The",
        "first times here were chosen for this example alone; the others are those of all",
        "other simulations.",
        *sentences,
    )
