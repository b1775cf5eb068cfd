"""Are small bugs noticed? See README.md here."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.common import command, pages
from experiments.common.command import Report
from experiments.mutants import judged, running, tree
from experiments.mutants.running import PACKAGES, Asked
from experiments.mutants.worker import LIMIT_S
from teola.errors import TeolaError

PAGE: Final = Path(__file__).with_name("README.md")
STATES: Final = ("killed", "timeout", "survived", "equivalent")
KEYS: Final = ("path", "line", "operator", "state", "by", "seconds")
COLUMNS: Final = ("package", "mutants", "killed", "survived", "equivalent", "share")


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        if options.table:
            _table(options)
            return
        report = _report(options)
    except TeolaError as error:
        raise SystemExit(f"error: {error}") from None
    if options.out:
        command.save(report, options.out)
    if options.docs:
        pages.write("mutants", section(report), PAGE)
    if options.json:
        print(json.dumps(told(report), indent=1))
    else:
        show(report, Console())


def measure(asked: Asked) -> Report:
    """rows: a row a mutant, see running.run. The rest says what was asked, and how long it took
    since this start. Raises TeolaError."""
    began = time.monotonic()
    with running.alone(asked.work) as lock:
        rows = running.run(asked, _say, lock)
    return {
        "rows": rows,
        "sample": asked.sample,
        "seed": asked.seed,
        "paths": list(asked.paths),
        "workers": asked.workers,
        "seconds": round(time.monotonic() - began, 1),
    }


def counts(rows: Sequence[Report]) -> Report:
    """killed, survived, equivalent, and share: killed of those that are not equivalent, None if
    there are none. A timeout counts as killed."""
    count = dict.fromkeys(STATES, 0)
    for row in rows:
        count[row["state"]] += 1
    killed = count["killed"] + count["timeout"]
    real = killed + count["survived"]
    return {
        "killed": killed,
        "survived": count["survived"],
        "equivalent": count["equivalent"],
        "share": round(killed / real, 4) if real else None,
    }


def told(report: Report) -> Report:
    """What `--json` prints."""
    rows = [{key: row[key] for key in KEYS} for row in report["rows"]]
    return {"rows": rows, **counts(report["rows"])}


def show(report: Report, console: Console) -> None:
    """The table on the terminal, and the survivors."""
    console.print(pages.terminal("Mutants", COLUMNS, _lines(report), left=1))
    for row in report["rows"]:
        if row["state"] == "survived":
            console.print(f"{row['path']}:{row['line']} {row['function']}", style="bold")
            console.print(f"  {row['operator']}", markup=False)


def section(report: Report) -> str:
    """What README.md says of the kept report."""
    paths = "" if report["paths"] == list(PACKAGES) else f" --paths {','.join(report['paths'])}"
    options = f"--sample {report['sample']} --seed {report['seed']}{paths}"
    ran = f"`python -m experiments.mutants {options}`"
    took = f"{report['seconds']:.0f} s with {report['workers']} workers"
    return "\n\n".join([f"{ran}, {took}:", pages.table(COLUMNS, _lines(report))])


def _lines(report: Report) -> list[list[str]]:
    rows = report["rows"]
    names = sorted({row["package"] for row in rows})
    parts = [(name, [row for row in rows if row["package"] == name]) for name in names]
    return [
        [
            name,
            str(len(part)),
            *(str(count[key]) for key in COLUMNS[2:5]),
            "" if count["share"] is None else f"{count['share']:.2f}",
        ]
        for name, part in [*parts, ("all", rows)]
        for count in [counts(part)]
    ]


def _table(options: argparse.Namespace) -> None:
    asked = _asked(options)
    with running.alone(asked.work):
        made = running.make_table(asked, _say)
    if options.json:
        print(json.dumps(made, indent=1))
    else:
        print(
            f"{made['files']} test files were run in {made['seconds']:.0f} s; the table has "
            f"{made['tests']:,} tests of {made['functions']:,} functions"
        )


def _report(options: argparse.Namespace) -> Report:
    if options.report is None:
        report = measure(_asked(options))
    else:
        report = json.loads(options.report.read_text(encoding="utf-8"))
    for wrong in judged.judge(report["rows"], judged.equivalents()):
        _say(f"{judged.KEPT.name} calls equivalent what a test notices: {wrong}")
    return report | counts(report["rows"])


def _asked(options: argparse.Namespace) -> Asked:
    paths = tuple(options.paths.split(",")) if options.paths else PACKAGES
    return Asked(
        sample=options.sample,
        seed=options.seed,
        paths=paths,
        workers=options.workers,
        work=options.work.resolve(),
        limit_s=LIMIT_S,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.mutants",
        description="Draws small bugs that mutmut makes, and runs the tests that reach each.",
    )
    positive = command._positive
    parser.add_argument("--sample", type=positive, default=300, metavar="N", help="mutants (300)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="draws them (0)")
    parser.add_argument("--paths", default="", metavar="A,B", help="packages: folders or files")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--table",
        action="store_true",
        help="run no mutant, make the table of tests by function",
    )
    parser.add_argument("--workers", type=positive, default=command.WORKERS, metavar="N")
    parser.add_argument(
        "--work",
        type=Path,
        default=tree.ROOT / "build" / "mutants",
        metavar="FOLDER",
        help="what runs keep, so that they can go on (build/mutants)",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="run nothing, read this")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="report.json goes there")
    parser.add_argument("--docs", action="store_true", help="write the table of README.md")
    return parser


if __name__ == "__main__":
    main()
