"""How the runs are shown: table, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.eviction.measure import BELADY, ENDLESS, POLICIES, UNLIMITED

SHOWN: Final = (*(policy for policy in POLICIES if policy != ENDLESS), ENDLESS)
HEAD: Final = ("trace", "blocks", *SHOWN, BELADY)
COLOURS: Final = ("#b8bcc4", "#d9b77a", "#b9a3cf", "#8fb6da", "#3a78b4", "#1b6e5a", "#e3a79a")


def cells(report: Report) -> dict[tuple[str, int], dict[str, float]]:
    """Hit ratios by trace and capacity, and then by policy."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in report["rows"]:
        if row["policy"] != UNLIMITED:
            cell = found.setdefault((row["trace"], row["capacity"]), {})
            cell[row["policy"]] = row["hit_ratio"]
    for trace, ratios in report["belady"].items():
        for capacity, ratio in ratios.items():
            found[trace, int(capacity)][BELADY] = ratio
    return found


def _lines(report: Report) -> list[list[str]]:
    return [
        [trace, f"{blocks:,}", *(_ratio(cell.get(policy)) for policy in (*SHOWN, BELADY))]
        for (trace, blocks), cell in cells(report).items()
    ]


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.4f}"


def _waits(report: Report) -> list[list[str]]:
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in report["rows"]:
        found.setdefault((row["trace"], row["capacity"]), {})[row["policy"]] = row["qttft_mean_s"]
    shown = ("lru", "workload_aware", "next_use")
    return [
        [trace, f"{blocks:,}", *(f"{cell[policy]:.2f}" for policy in shown)]
        for (trace, blocks), cell in found.items()
        if UNLIMITED not in cell
    ]


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    console.print(pages.terminal("Fraction of the blocks that was found", HEAD, _lines(report), 1))
    for row in report["rows"]:
        if row["policy"] == UNLIMITED:
            console.print(f"{row['trace']}: {row['hit_ratio']:.4f} if nothing is evicted")


def plot(report: Report, path: Path) -> None:
    """Hit ratios over the capacity, a picture for each trace."""
    pyplot = plots.pyplot("eviction")
    found = cells(report)
    names = [*dict.fromkeys(trace for trace, _ in found)]
    figure, axes = pyplot.subplots(1, len(names), figsize=(2.4 * len(names), 2.6), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        sizes = sorted(blocks for trace, blocks in found if trace == name)
        for policy, colour in zip((*SHOWN, BELADY), (*COLOURS, "#000000"), strict=True):
            if policy in found[name, sizes[0]]:
                ratios = [found[name, blocks][policy] for blocks in sizes]
                axis.plot(sizes, ratios, "o-", markersize=2, color=colour, label=policy)
        axis.set_xscale("log")
        axis.set_title(name)
        axis.set_xlabel("blocks")
    axes[0][0].set_ylabel("found")
    axes[0][-1].legend(frameon=False, fontsize=5)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    best = [
        f"{name} blocks of {trace}: {100 * (cell['workload_aware'] / cell['lru'] - 1):+.1f} %"
        for (trace, blocks), cell in cells(report).items()
        if (name := f"{blocks:,}") and cell["lru"] > 0
    ]
    return "\n\n".join(
        [
            "## Eviction",
            pages.prose(
                f"{pages.called('eviction', report['about'])} replays traces over a cache of so",
                "many blocks: the fraction of the second half's blocks that each policy finds.",
                "[More](../experiments/eviction/README.md).",
            ),
            f"![Blocks found]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            pages.prose(f"`workload_aware` over `lru`: {'; '.join(best)}."),
            "Seconds to the first token, in the queue of one server:",
            pages.table(("trace", "blocks", "lru", "workload_aware", "next_use"), _waits(report)),
        ]
    )
