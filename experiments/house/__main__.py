"""How large is the code, and what in it needs each other? See README.md here."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.common import command, pages
from experiments.common.command import Report
from experiments.house import counting
from teola.errors import TeolaError

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = Path(__file__).with_name("README.md")
COLUMNS: Final = tuple(field.name for field in fields(counting.Counts))


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        report = _report(options)
    except TeolaError as error:
        parser.error(str(error))
    if options.out:
        command.save(report, options.out)
    if options.docs:
        pages.write("house", section(report), PAGE)
    if options.json:
        print(json.dumps({"rows": report["rows"]}, indent=1))
    else:
        show(report, Console())


def measure(tree: Path, before: Path | None = None) -> Report:
    """rows: a row a package, see counting.Counts. commit: of the tree, None outside of git. before:
    the same two of an earlier tree, if one is compared. Raises TeolaError."""
    earlier = _counted(before) if before else None
    return {**_counted(tree), "before": earlier}


def show(report: Report, console: Console) -> None:
    """The table on the terminal, of the tree alone."""
    rows = report["rows"]
    lines = [[f"{row[key]:,}" if key != "package" else row[key] for key in COLUMNS] for row in rows]
    console.print(pages.terminal("The code", COLUMNS, lines, left=1))


def section(report: Report) -> str:
    """What README.md says of the kept report."""
    before = report["before"]
    commits = f"Commit {report['commit']}"
    if before:
        commits += (
            f"; in brackets what was counted at {before['commit']}, where it was another figure"
        )
    return "\n\n".join([f"{commits}.", pages.table(COLUMNS, _compared(report))])


def _counted(tree: Path) -> Report:
    return {"rows": counting.rows(tree), "commit": _commit(tree)}


def _commit(tree: Path) -> str | None:
    """The commit that a tree is at, in short."""
    asked = ["git", "-C", str(tree), "rev-parse", "--short=7", "HEAD"]
    answered = subprocess.run(asked, capture_output=True, text=True, check=False)
    return answered.stdout.strip() if answered.returncode == 0 else None


def _compared(report: Report) -> list[list[str]]:
    """Lines of the table, with what stood in the tree before in brackets."""
    now, before = (
        {row["package"]: row for row in rows}
        for rows in (
            report["rows"],
            report["before"]["rows"] if report["before"] else report["rows"],
        )
    )
    packages = [*sorted((now.keys() | before.keys()) - {"all"}), "all"]
    nothing = dict.fromkeys(COLUMNS, 0)
    return [
        [
            name,
            *(_cell(now.get(name, nothing)[k], before.get(name, nothing)[k]) for k in COLUMNS[1:]),
        ]
        for name in packages
    ]


def _cell(now: int, before: int) -> str:
    return f"{now:,}" if now == before else f"{now:,} ({before:,})"


def _report(options: argparse.Namespace) -> Report:
    if options.report is None:
        return measure(options.tree, options.before)
    found: Report = json.loads(options.report.read_text(encoding="utf-8"))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.house",
        description="Counts statements, comments, circles and satellites of teola and engines.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--tree", type=Path, default=ROOT, metavar="FOLDER", help="another checkout to count"
    )
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="one to compare it with")
    parser.add_argument("--report", type=Path, metavar="FILE", help="count nothing, read this")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="report.json goes there")
    parser.add_argument("--docs", action="store_true", help="write the table of README.md")
    return parser


if __name__ == "__main__":
    main()
