"""What `explain` says of a query before it runs, and what it then takes. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress

from experiments.common import command, pages, plots
from experiments.common.command import Experiment, Options, Report
from experiments.explained.measure import measure as measure_all
from experiments.real_engines.workload import APPS
from teola.runtime import machine
from teola.runtime.hosts.model_server import PYTHON

SIZES: Final = (45, 480, 4000)
QUICK_SIZES: Final = (45,)
HEAD: Final = ("application", "chunks", "query", "explained, s", "measured, s", "error")


def measure(options: Options, progress: Progress) -> Report:
    """The report. worst_error: of all second queries; None if one of them was not known."""
    sizes = options.given.chunks or (QUICK_SIZES if options.quick else SIZES)
    total = len(APPS) * len(sizes) * options.queries + 2
    task = progress.add_task("", total=total)

    def told(what: str) -> None:
        progress.update(task, description=what, advance=1)

    runs = measure_all(APPS, sizes, options.queries, options.given.python, told)
    about = {"queries": options.queries, "quick": options.quick, "chunks": list(sizes)}
    return {
        "worst_error": worst(runs),
        "runs": runs,
        "about": about,
        "machine": machine.describe(),
    }


def worst(runs: Sequence[dict[str, Any]]) -> float | None:
    """The largest error of a second query, either way."""
    errors = [run["error"] for run in runs if run["query"] == 2]
    return None if None in errors else max(map(abs, errors), default=None)


def _lines(report: Report) -> list[list[Any]]:
    return [
        [
            *(run[name] for name in ("app", "chunks", "query")),
            "not known yet" if run["explained_s"] is None else f"{run['explained_s']:.2f}",
            f"{run['measured_s']:.2f}",
            "" if run["error"] is None else f"{run['error']:+.0%}",
        ]
        for run in report["runs"]
    ]


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    console.print(pages.terminal("Explained before it ran", HEAD, _lines(report), left=1))


def plot(report: Report, path: Path) -> None:
    """Second queries: explained beside measured."""
    pyplot = plots.pyplot("explained")
    figure, axis = pyplot.subplots(figsize=(5.6, 2.6))
    runs = [run for run in report["runs"] if run["query"] == 2]
    for k, kind in enumerate(("explained_s", "measured_s")):
        places = [i + 0.38 * (k - 0.5) for i in range(len(runs))]
        heights = [run[kind] or 0.0 for run in runs]
        axis.bar(places, heights, width=0.36, label=kind[:-2], color=plots.SHADES[k])
    labels = [f"{run['app']}\n{run['chunks']} chunks" for run in runs]
    axis.set_xticks(range(len(labels)), labels, fontsize=6)
    axis.set_ylabel("seconds")
    axis.legend(frameon=False)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about, command_line = report["machine"], pages.called("explained", report["about"])
    return "\n\n".join(
        [
            "## What explain says of a query before it runs",
            f"{command_line} asks each RAG application about one new document after another and\n"
            "has each query explained first, by what was learned from those before it.\n"
            "[More](../experiments/explained/README.md).",
            f"{about['cpu']}, {about['cores']} cores; load average {about['load_1min']}.",
            f"![Explained and measured]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
        ]
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chunks", type=_numbers, metavar="N,N", help="sizes of the documents")
    parser.add_argument("--python", type=Path, default=PYTHON, help="of the vLLM environment")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError("whole numbers are needed, such as 45,480") from None


EXPERIMENT: Final = Experiment(
    name="explained",
    about="What explain says of a query before it runs, and what it then takes on real engines",
    measure=measure,
    table=show,
    plot=plot,
    section=section,
    queries=(2, 2),
    arguments=_arguments,
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
