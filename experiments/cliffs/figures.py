"""How the cells are shown: a table, a picture, and what docs/routing.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.cliffs.measure import (
    OURS,
    OVERLOADED_S,
    PLAIN,
    ROUTERS,
    SPEEDUPS,
    TAIL,
    Row,
    by_cell,
)
from experiments.common import pages, plots
from experiments.common.command import Report

HEAD: Final = ("policy", "geometric mean", "worst", f"worst, best within {OVERLOADED_S:g} s")
CELLS: Final = ("file", "KV tokens", "speed", OURS, PLAIN, "best router", "p99", f"{TAIL}'s p99")


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    console.print(
        pages.terminal("Mean latency over the best router's", HEAD, _means(report), left=1)
    )
    console.print(pages.terminal("Cells: mean latency, first token's p99", CELLS, _cells(report)))


def _means(report: Report) -> list[list[str]]:
    return [
        [name, *("" if figure is None else f"{figure:.3f}" for figure in of.values())]
        for name, of in report["over_best"].items()
    ]


def _cells(report: Report) -> list[list[str]]:
    return [
        [cell.file, f"{cell.kv_tokens:,}", f"{cell.speedup:g}", *_figures(of)]
        for cell, of in by_cell(report["rows"]).items()
    ]


def _figures(of: dict[str, Row]) -> list[str]:
    best = min((of[name] for name in ROUTERS if name in of), key=_latency, default=None)
    told = "" if best is None else f"{best['latency_s']:.2f} s ({best['routing']})"
    ours, plain = (_seconds(of.get(name), "latency_s") for name in (OURS, PLAIN))
    tails = (_seconds(of.get(name), "ttft_p99_s") for name in (OURS, TAIL))
    return [ours, plain, told, *tails]


def _latency(row: Row) -> float:
    return float(row["latency_s"])


def _seconds(row: Row | None, name: str) -> str:
    return "" if row is None else f"{row[name]:.2f} s"


def plot(report: Report, path: Path) -> None:
    """By file and memory: mean latency over the best router's, over the load."""
    plots.save(drawn(report), path)


def drawn(report: Report) -> Any:
    """That picture, not yet saved."""
    pyplot = plots.pyplot("cliffs")
    cells = by_cell(report["rows"])
    files = list(dict.fromkeys(cell.file for cell in cells))
    sizes = sorted({cell.kv_tokens for cell in cells})
    figure, axes = pyplot.subplots(
        len(files),
        len(sizes),
        figsize=(2.4 * len(sizes) + 0.8, 1.9 * len(files) + 0.4),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    names = list(report["over_best"])
    for file, line in zip(files, axes, strict=True):
        for kv_tokens, axis in zip(sizes, line, strict=True):
            here = {c.speedup: of for c, of in cells.items() if c[:2] == (file, kv_tokens)}
            for name in reversed(names):
                ours = name == OURS
                axis.plot(
                    [*here],
                    [of[name]["to_best"] for of in here.values()],
                    marker="o",
                    ms=2.5,
                    lw=1.6 if ours else 0.9,
                    color=plots.COLOURS["teola"] if ours else plots.SHADES[names.index(name) - 1],
                    label=name,
                )
            axis.set_title(f"{file.removesuffix('.jsonl')}, {kv_tokens:,} tokens", fontsize=7)
    for axis in axes.flat:
        axis.set_yscale("log", base=2)
        axis.set_xticks(SPEEDUPS, [f"{speedup:g}" for speedup in SPEEDUPS])
    for axis in axes[-1]:
        axis.set_xlabel("speed")
    for axis in axes[:, 0]:
        axis.set_ylabel("mean latency, x the best")
    axes[-1][-1].legend(frameon=False, fontsize=5)
    return figure


def section(report: Report, picture: Path) -> str:
    """What docs/benchmarks.md says."""
    return "\n\n".join(
        [
            "## Cliffs",
            pages.prose(
                f"{_called(report)} replays recorded agents on four simulated instances, by the KV",
                "memory of each and by how fast calls come. Figures are mean latencies over those",
                "of the best stock router of a cell.",
                "[What each cell has](routing.md#agents-by-memory-and-load).",
            ),
            pages.table(HEAD, _means(report)),
        ]
    )


def table_of(report: Report) -> dict[str, str]:
    """What docs/routing.md says: every cell, and the picture."""
    told = pages.prose(
        f"{_called(report)} replayed recorded agents on {report['about']['instances']} instances",
        "of Llama-3.1-8B on H100, by the KV memory of each and by how many times as fast as",
        "recorded their calls come. Times are mean latencies to the last token, and the first",
        "token's 99th percentile.",
    )
    picture = f"![Mean latency over the best, by memory and load]({pages.picture('cliffs')})"
    parts = [told, picture, pages.table(HEAD, _means(report)), pages.table(CELLS, _cells(report))]
    return {"routing.md": "\n\n".join(parts)}


def _called(report: Report) -> str:
    about = report["about"]
    half = [f"--half {about['half']}"] if about["half"] else []
    return pages.called("cliffs", about, *half, *about["files"])
