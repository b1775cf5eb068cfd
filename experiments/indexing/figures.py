"""How indexing is shown: a table, a plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.indexing.files import PIECES

HEAD: Final = (
    *("case", "files", "changed", "removed", "renamed", "chunks embedded"),
    *("as a fresh one", "mixed answers", "seconds"),
)


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            row["case"],
            *(f"{row[name]:,}" for name in HEAD[1:5]),
            f"{row['embedded']:,}",
            "yes" if row["equal"] else "no",
            str(row["mixed"]),
            f"{row['seconds']:.1f}",
        ]
        for row in report["rows"]
    ]


def summary(report: Report) -> str:
    """What all rows say together."""
    rows: list[dict[str, Any]] = report["rows"]
    _, second, *killed = rows
    equal = sum(row["equal"] for row in rows)
    return (
        f"{equal} of {len(rows)} times the collection held what a fresh one holds. "
        f"{sum(row['mixed'] for row in rows)} of {report['about']['searches']:,} answers beside it "
        f"had passages of two versions of one file. {second['changed']} changed files have "
        f"{second['changed'] * PIECES} chunks: {second['embedded']} were embedded, and at most "
        f"{max((row['embedded'] for row in killed), default=0)} after a kill."
    )


def show(report: Report, console: Console) -> None:
    """All rows, on the terminal."""
    console.print(pages.terminal("Files that change", HEAD, _lines(report), left=1))
    console.print(summary(report))


def plot(report: Report, path: Path) -> None:
    """Seconds of each indexing that came to its end."""
    rows, what = report["rows"], "seconds; of `killed` those of the indexing afterwards"
    cases, seconds = [row["case"] for row in rows], [row["seconds"] for row in rows]
    figure, _ = plots.rows("indexing", cases, seconds, what)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    return "\n\n".join(
        [
            "## Files that change",
            pages.prose(
                f"{pages.called('indexing', about)} indexes a folder of short files, changes some",
                "of them and indexes it again with `sync`, while others search. Then it does that",
                "again and again, and kills the process that indexes at a random moment, after",
                "which another one indexes.",
                summary(report),
            ),
            f"![Seconds of each indexing]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            pages.foot("indexing", about["machine"]),
        ]
    )
