"""Agents with function calls, by Teola's modes and by other frameworks. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.agents.measure import SWEPT, means, measure, ratios
from experiments.common import command, pages, plots
from experiments.common.command import Experiment, Report

HEAD: Final = ("set", "mode", "mean, s", "to streamed", "simulated, s", "calls", "correct")
SWEEP_HEAD: Final = ("step, ms", "mode", "mean, s", "to streamed", "simulated, s")


def summed(report: Report) -> dict[str, list[dict[str, Any]]]:
    """Lines of each set."""
    names = dict.fromkeys(row["set"] for row in report["rows"])
    step = report["about"]["step_ms"]
    return {name: means(report["rows"], report["simulated"], step, name) for name in names}


def _figures(lines: Sequence[dict[str, Any]], one: dict[str, Any]) -> list[str]:
    ratio = ratios(lines).get(one["mode"], 1.0)
    simulated = one["simulated_s"]
    return [
        f"{one['makespan_s']:.2f}",
        f"{ratio:.2f} x",
        "" if simulated is None else f"{simulated:.2f}",
    ]


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            name,
            one["mode"],
            *_figures(lines, one),
            str(one["calls"]),
            f"{one['correct']} of {one['tasks']}",
        ]
        for name, lines in summed(report).items()
        for one in lines
    ]


def _sweep(report: Report) -> list[list[str]]:
    found = []
    for step in sorted({one["step_ms"] for one in report["sweep"]}):
        lines = [one for one in report["sweep"] if one["step_ms"] == step]
        found += [[f"{step:g}", one["mode"], *_figures(lines, one)] for one in lines]
    return found


def _sentences(report: Report) -> str:
    rows, told = report["rows"], ratios(summed(report).get(SWEPT, ()))
    beside = ", ".join(f"{ratio:.2f} x as fast as {mode}" for mode, ratio in told.items())
    right = sum(row["correct"] for row in rows)
    first = f"On ParallelQA teola_streamed is {beside}." if told else ""
    return pages.prose(first, f"{right} of {len(rows)} runs were right.")


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    console.print(pages.terminal("Agents with function calls", HEAD, _lines(report), left=2))
    if report["sweep"]:
        console.print(pages.terminal("ParallelQA by step time", SWEEP_HEAD, _sweep(report), left=2))
    console.print(_sentences(report))


def plot(report: Report, path: Path) -> None:
    """Mean makespans by set and mode, and simulated ones as marks."""
    pyplot = plots.pyplot("agents")
    sets = summed(report)
    figure, axes = pyplot.subplots(1, len(sets), figsize=(2.1 * len(sets), 2.6), squeeze=False)
    for axis, (name, lines) in zip(axes[0], sets.items(), strict=True):
        places = range(len(lines))
        shades = plots.SHADES[: len(lines)]
        axis.bar(places, [one["makespan_s"] for one in lines], color=shades)
        known = [(k, one["simulated_s"]) for k, one in enumerate(lines) if one["simulated_s"]]
        axis.plot(*zip(*known, strict=True), "k_", markersize=9, label="simulated")
        modes = [one["mode"].removeprefix("teola_") for one in lines]
        axis.set_xticks(places, modes, rotation=60, fontsize=6)
        axis.set_title(name, fontsize=7)
    axes[0][0].set_ylabel("mean makespan, s")
    axes[0][0].legend(frameon=False, fontsize=6)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about, machine = report["about"], report["machine"]
    command_line = pages.called("agents", about, f"--queries {about['queries']}")
    parts = [
        "## Agents with function calls",
        pages.prose(
            f"{command_line} asks agents {about['queries']} tasks of each set, up to twelve side",
            f"by side, on one OpenAI-compatible server whose steps take {about['step_ms']:g} ms",
            "and which writes the tasks' plans in as many tokens for every system. Makespans are",
            "means, from the question to the answer. Whether a run was right is found out from the",
            "calls that were executed.",
            "[More](../experiments/agents/README.md).",
        ),
        pages.prose(
            f"{machine['cpu']}, {machine['cores']} cores;",
            f"load average {machine['load_before']} before.",
        ),
        f"![Mean makespan by set and mode]({picture.as_posix()})",
        pages.table(HEAD, _lines(report)),
        _sentences(report),
    ]
    if report["sweep"]:
        parts += [
            "ParallelQA by the time of a step:",
            pages.table(SWEEP_HEAD, _sweep(report)),
        ]
    return "\n\n".join(parts)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", metavar="A,B", help="by default all")
    parser.add_argument("--modes", metavar="A,B", help="by default all")


EXPERIMENT: Final = Experiment(
    name="agents",
    about="Agents with function calls, by Teola's modes and by other frameworks",
    measure=measure,
    table=show,
    plot=plot,
    section=section,
    queries=(24, 12),
    arguments=_arguments,
    told=("rows", "simulated"),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
