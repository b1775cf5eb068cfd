"""The command line that all simulated experiments share.

    python -m experiments.NAME [--quick] [--json] [--out FOLDER] [--docs] [--data FOLDER]

--quick: a smaller run. --json: what the report says instead of a table. --out: report.json goes
there, and the plot, unless `--docs` puts it beside its page. --docs: write the experiment's section
of docs/benchmarks.md and its picture, from this run or, with --report FILE, from an earlier one.
--data: a folder with the public data sets (else the environment's TEOLA_DATA; without either,
lengths are drawn from how the sets' are distributed).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.common import pages
from teola.errors import TeolaError

Report = dict[str, Any]
WORKERS: Final = 2


@dataclass(frozen=True)
class Options:
    """What the user asked for. queries: counted queries of each point under load. seed: the first
    of so many seeds."""

    quick: bool
    queries: int
    seed: int
    seeds: int
    workers: int
    data: Path | None
    given: argparse.Namespace

    def about(self) -> Report:
        """What a report says about how it was made, so that it can be made again."""
        return {
            "queries": self.queries,
            "quick": self.quick,
            "seed": self.seed,
            "seeds": self.seeds,
            "lengths": "those of TruthfulQA and HotpotQA"
            if self.data
            else "drawn as those of TruthfulQA and HotpotQA are distributed",
        }


@dataclass(frozen=True)
class Experiment:
    """One experiment. measure: makes the report, telling a Progress how far it is. table: prints
    it. plot: draws it to an SVG file. section: its Markdown for docs/benchmarks.md, given the path
    of the picture. elsewhere: name of another page in docs/ -> the section that it has there.
    queries, seeds: by default, and with --quick. arguments: adds its own. told: what of the report
    `--json` prints (all of it if empty)."""

    name: str
    about: str
    measure: Callable[[Options, Progress], Report]
    table: Callable[[Report, Console], None]
    plot: Callable[[Report, Path], None]
    section: Callable[[Report, Path], str]
    queries: tuple[int, int] = (2000, 200)
    arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    seeds: tuple[int, int] = (1, 1)
    told: tuple[str, ...] = ()
    elsewhere: Callable[[Report], Mapping[str, str]] = lambda report: {}


def main(experiment: Experiment, argv: Sequence[str] | None = None) -> None:
    """Run an experiment as its command. Errors of the user's making are one line."""
    given = _parse(experiment, argv)
    try:
        report = _load(given.report) if given.report else _measure(experiment, given)
    except TeolaError as error:
        raise SystemExit(f"error: {error}") from None
    if given.out:
        save(report, given.out)
        if not given.docs:  # else the plot is there
            experiment.plot(report, given.out / f"{experiment.name}.svg")
    if given.docs:
        picture = pages.picture(experiment.name)
        experiment.plot(report, pages.DOCS / picture)
        pages.write(experiment.name, experiment.section(report, picture))
        for page, text in experiment.elsewhere(report).items():
            pages.write(experiment.name, text, pages.DOCS / page)
    if given.json:
        told = {name: report[name] for name in experiment.told if name in report} or report
        print(json.dumps(told, indent=1))
    else:
        experiment.table(report, Console())


def save(report: Report, folder: Path) -> None:
    """Write report.json to `folder`, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _measure(experiment: Experiment, given: argparse.Namespace) -> Report:
    queries = given.queries or experiment.queries[given.quick]
    data = given.data or (Path(os.environ["TEOLA_DATA"]) if os.environ.get("TEOLA_DATA") else None)
    seeds = given.seeds or experiment.seeds[given.quick]
    options = Options(given.quick, queries, given.seed, seeds, given.workers, data, given)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        return experiment.measure(options, progress)


def _load(path: Path) -> Report:
    found: Report = json.loads(path.read_text(encoding="utf-8"))
    return found


def _parse(experiment: Experiment, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{experiment.name}", description=experiment.about
    )
    full, quick = experiment.queries
    full_seeds, quick_seeds = experiment.seeds
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="report.json and the plot")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--report", type=Path, metavar="FILE", help="run nothing, read this")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="public data sets and traces")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first one")
    if full_seeds > 1:
        parser.add_argument(
            "--seeds", type=_positive, metavar="N", help=f"how many ({full_seeds}, {quick_seeds})"
        )
    else:
        parser.set_defaults(seeds=1)
    parser.add_argument(
        "--queries", type=_positive, metavar="N", help=f"counted at each point ({full}, {quick})"
    )
    parser.add_argument("--workers", type=_positive, default=WORKERS, metavar="N")
    experiment.arguments(parser)
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return int(text)
