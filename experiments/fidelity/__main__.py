"""The same workload on real engines and in the simulator. See README.md here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress

from experiments.common import command, pages, plots
from experiments.common.command import Experiment, Options, Report
from experiments.fidelity.measure import FULL, LOADS, QUICK, TOLD
from experiments.fidelity.measure import measure as measure_all
from teola.runtime import machine

STEPS: Final = 6 + len(LOADS)
HEAD: Final = ("load", "", "live, s", "simulated, s", "error")


def measure(options: Options, progress: Progress) -> Report:
    """The report: its errors at the top are the largest ones of all loads."""
    task = progress.add_task("making a small model", total=STEPS)

    def told(what: str) -> None:
        progress.update(task, description=what, advance=1)

    size = QUICK if options.quick else FULL
    found = measure_all(size, options.seed, told)
    about = {**options.about(), "queries": size.queries}
    return {**found, "about": about, "machine": machine.describe()}


def _lines(report: Report) -> list[list[Any]]:
    return [
        [
            run["load"],
            name,
            f"{run[f'{name}_live_s']:.3f}",
            f"{run[f'{name}_simulated_s']:.3f}",
            f"{run[f'{name}_error']:.1%}",
        ]
        for run in report["runs"]
        for name in TOLD
    ]


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    title = "Latency on real engines and in the simulator with their profile"
    console.print(pages.terminal(title, HEAD, _lines(report), left=2))


def plot(report: Report, path: Path) -> None:
    """Means and percentiles, live beside simulated."""
    pyplot = plots.pyplot("fidelity")
    figure, axis = pyplot.subplots(figsize=(5.6, 2.6))
    runs = report["runs"]
    for k, kind in enumerate(("live", "simulated")):
        heights = [run[f"{name}_{kind}_s"] for run in runs for name in TOLD]
        places = [i + 0.38 * (k - 0.5) for i in range(len(heights))]
        axis.bar(places, heights, width=0.36, label=kind, color=plots.SHADES[k])
    labels = [f"{run['load']}, {name}" for run in runs for name in TOLD]
    axis.set_xticks(range(len(labels)), labels, fontsize=6)
    axis.set_ylabel("seconds")
    axis.legend(frameon=False)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about, command_line = report["machine"], pages.called("fidelity", report["about"])
    queries = report["about"]["queries"]
    return "\n\n".join(
        [
            "## How far the simulator is from real engines",
            pages.prose(
                f"{command_line} runs a workload on MiniLM, the reranker, the embedded pgvector",
                "and a small random Llama, each in its own process, and simulates it with the",
                "times that the runtime had learned by the end of each load, of",
                f"{queries:,} queries. [More](../experiments/fidelity/README.md).",
            ),
            f"{about['cpu']}, {about['cores']} cores; load average {about['load_1min']}.",
            f"![Live and simulated]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
        ]
    )


EXPERIMENT: Final = Experiment(
    name="fidelity",
    about="The same workload on real engines and in the simulator",
    measure=measure,
    table=show,
    plot=plot,
    section=section,
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
