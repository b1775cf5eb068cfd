"""How both figures are shown: tables, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.motivation.measure import CHAIN, OURS

PAPER_S: Final = (4.1, 2.4)
"""The paper's running example: chain of modules, and finer orchestration."""
TITLES: Final = {CHAIN: "a chain of modules (LlamaDist, PO)", OURS: "Teola"}
SHARES_HEAD: Final = ("application", "LLM", "share of each module of the latency")
EXAMPLE_HEAD: Final = ("running example", "chain of modules, s", "Teola, s", "ratio")
ENGINES: Final = ("embedding", "vectorstore", "rerank", "llm")
Bar = Mapping[str, Any]


def _share_lines(report: Report) -> list[list[str]]:
    """A row for each application and LLM: its modules with their shares."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in report["shares"]:
        text = f"{one['module']} {one['share']:.0%}"
        found.setdefault((one["app"], one["llm"]), []).append(text)
    return [[app, llm, ", ".join(parts)] for (app, llm), parts in found.items()]


def _example_lines(report: Report) -> list[list[str]]:
    example = report["example"]
    chain, ours = example[f"{CHAIN}_s"], example[f"{OURS}_s"]
    lines = [("here, simulated", chain, ours), ("paper", *PAPER_S)]
    return [[who, f"{a:.2f}", f"{b:.2f}", f"{a / b:.2f}"] for who, a, b in lines]


def show(report: Report, console: Console) -> None:
    """Both figures as tables."""
    for head, lines, left in (
        (SHARES_HEAD, _share_lines(report), 3),
        (EXAMPLE_HEAD, _example_lines(report), 1),
    ):
        console.print(pages.terminal(None, head, lines, left))


def plot(report: Report, path: Path) -> None:
    """Shares as stacked bars above, the two timelines below, a row for each engine."""
    pyplot = plots.pyplot("motivation")
    figure, (top, *below) = pyplot.subplots(3, 1, figsize=(8.4, 7.6), height_ratios=(3, 2, 2))
    colours = dict(zip(_modules(report), plots.SHADES, strict=False))
    _draw_shares(top, report["shares"], colours)
    example = report["example"]
    last = max(bar["end_s"] for bar in example["timeline"])
    for axis, system in zip(below, TITLES, strict=True):
        mine = [bar for bar in example["timeline"] if bar["system"] == system and bar["engine"]]
        _draw_timeline(axis, mine, colours, last)
        axis.set_xlim(0, last * 1.02)
        seconds = example[f"{system}_s"]
        axis.set_title(f"{example['app']}, {example['llm']}, {TITLES[system]}: {seconds:.2f} s")
    below[-1].set_xlabel("seconds")
    plots.save(figure, path)


def _modules(report: Report) -> list[str]:
    return list(dict.fromkeys(one["module"] for one in report["shares"]))


def _draw_shares(axis: Any, shares: Sequence[Bar], colours: Mapping[str, str]) -> None:
    places = list(dict.fromkeys((one["app"], one["llm"]) for one in shares))
    for row, place in enumerate(places):
        left = 0.0
        for one in (one for one in shares if (one["app"], one["llm"]) == place):
            _bar(axis, row, left, one["share"], one["module"], colours)
            left += one["share"]
    axis.set_yticks(range(len(places)), [f"{app}, {llm}" for app, llm in places])
    axis.set_ylim(len(places) - 0.4, -0.6)
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of the latency")


def _draw_timeline(axis: Any, bars: Sequence[Bar], colours: Mapping[str, str], last: float) -> None:
    """Bars of one engine that overlap share its row's height."""
    for row, engine in enumerate(ENGINES):
        mine = sorted((b for b in bars if b["engine"] == engine), key=lambda b: b["start_s"])
        found = lanes(mine)
        count = max(found, default=0) + 1
        for bar, lane in zip(mine, found, strict=True):
            at, width = row + 0.8 * ((lane + 0.5) / count - 0.5), bar["end_s"] - bar["start_s"]
            _bar(
                axis, at, bar["start_s"], width, bar["module"], colours, unit=last,
                height=0.8 / count,
            )  # fmt: skip
    axis.set_yticks(range(len(ENGINES)), ENGINES)
    axis.set_ylim(len(ENGINES) - 0.4, -0.6)


def lanes(bars: Sequence[Bar]) -> list[int]:
    """For each bar, in order of their starts, the first lane that is free by then."""
    ends: list[float] = []
    found = []
    for bar in bars:
        free = (i for i, end in enumerate(ends) if end <= bar["start_s"] + 1e-3)
        lane = next(free, len(ends))
        ends[lane : lane + 1] = [bar["end_s"]]
        found.append(lane)
    return found


def _bar(
    axis: Any,
    row: float,
    left: float,
    width: float,
    module: str,
    colours: Mapping[str, str],
    *,
    unit: float = 1.0,
    height: float = 0.8,
) -> None:
    """A bar, with the name of its module in it if there is room. unit: width of the picture."""
    edge = "white" if width >= 0.02 * unit else colours[module]  # a narrow bar is all edge
    axis.barh(
        row, width, left=left, height=height, color=colours[module], edgecolor=edge, linewidth=0.5
    )
    if width >= 0.0075 * len(module) * unit:
        axis.text(left + width / 2, row, module, ha="center", va="center_baseline", fontsize=6)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    return "\n\n".join(
        [
            "## Where a chain of modules spends its time",
            pages.prose(
                "`python -m experiments.motivation` simulates figures 1 and 3 of the paper with",
                "one query over 48 chunks: how the latency of LlamaDist is made up, and the",
                "running example with modules one after the other and as an e-graph.",
                "[More](../experiments/motivation/README.md).",
            ),
            f"![Shares and timelines]({picture.as_posix()})",
            pages.table(SHARES_HEAD, _share_lines(report)),
            pages.table(EXAMPLE_HEAD, _example_lines(report)),
        ]
    )
