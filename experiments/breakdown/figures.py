"""How the breakdown is shown: table, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report

PARTS: Final = ("optimisation", "communication", "queueing", "execution")
HEAD: Final = ("application", "runtime", "load", "latency, s", *PARTS)
SHORT: Final = ("app", "runtime", "load", "s", "optim.", "comm.", "queue", "exec.")
"""For the terminal."""
PAPER: Final = "1.3 to 3 % and 3.1 to 6.2 %"
"""The paper's optimisation (with its cache) and communication, of the latency."""


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            *(r[key] for key in ("app", "runtime", "load")),
            f"{r['latency_s']:.2f}",
            *(f"{r[part]:.3%}" for part in PARTS[:2]),
            *(f"{r[part]:.1%}" for part in PARTS[2:]),
        ]
        for r in report["rows"]
    ]


def _planning(report: Report) -> str:
    """What planning takes, in one sentence."""
    first, cached = ([one[name] for one in report["planning"]] for name in ("first_s", "cached_s"))
    return (
        f"Optimisation is from the cache, {min(cached) * 1e6:.0f} to {max(cached) * 1e6:.0f} µs a "
        f"query; the first query of a shape takes {min(first) * 1e3:.1f} to "
        f"{max(first) * 1e3:.1f} ms."
    )


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    title = "Latency along the real critical path"
    console.print(pages.terminal(title, SHORT, _lines(report), left=3))
    console.print(_planning(report))
    console.print(f"The paper's optimisation and communication: {PAPER} of the latency")


def plot(report: Report, path: Path) -> None:
    """Seconds of each part as stacked bars."""
    pyplot = plots.pyplot("breakdown")
    rows = report["rows"]
    figure, axis = pyplot.subplots(figsize=(8.0, 0.32 * len(rows) + 0.9))
    labels = [f"{r['app']}, {r['runtime']}, {r['load']}" for r in rows]
    left = [0.0] * len(rows)
    for part, colour in zip(PARTS, plots.SHADES, strict=False):
        widths = [r[part] * r["latency_s"] for r in rows]
        axis.barh(labels, widths, left=left, label=part, color=colour)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(left=0)
    axis.set_xlabel("seconds")
    axis.legend(frameon=False, fontsize=7)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["machine"]
    return "\n\n".join(
        [
            "## What the latency is made of",
            pages.prose(
                "`python -m experiments.breakdown` follows the real critical path of each query",
                "(figure 11 of the paper): what it waited for last, back to the beginning.",
                "Simulated rows have the times of the paper's testbed with a 30B model, as in",
                "the paper; the others are real engines on this machine, in one process or each",
                f"in a Ray actor. The paper has {PAPER} for optimisation and communication.",
                "[More](../experiments/breakdown/README.md).",
            ),
            f"{about['cpu']}, {about['cores']} cores; load average {about['load_1min']}.",
            f"![Parts]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            _planning(report),
        ]
    )
