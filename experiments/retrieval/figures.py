"""How retrieval is shown: a table, a plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report

SETS: Final = {"kept_back": "kept back", "all": "all"}
RANKED: Final = ("hit1", "hit3", "hit10", "mrr10")
READ: Final = ("declined_unanswerable", "answered_answerable")
HEAD: Final = (
    *("questions", "system", "n", "hit@1", "hit@3", "hit@10", "MRR@10"),
    *("declined", "answered", "seconds"),
)


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            SETS[row["set"]],
            row["system"],
            f"{row['n']:,}",
            *(f"{row[name]:.3f}" for name in RANKED),
            *("" if row[name] is None else f"{row[name]:.3f}" for name in READ),
            f"{row['seconds']:,.1f}",
        ]
        for row in report["rows"]
    ]


def _chosen(report: Report) -> str:
    chosen = report["chosen"]
    return (
        f"On the other half of the articles a lexical weight of {chosen['lexical_weight']:g} was "
        f"chosen for the reranker, and {chosen['least_maxsim']} would be for the reader "
        f"({chosen['shipped_maxsim']:g} is what it has by default)."
    )


def show(report: Report, console: Console) -> None:
    """All rows, on the terminal."""
    console.print(pages.terminal("Which passage answers", HEAD, _lines(report), left=2))
    console.print(_chosen(report))


def plot(report: Report, path: Path) -> None:
    """hit@1 and MRR of each system on the questions that are kept back."""
    pyplot = plots.pyplot("retrieval")
    rows = [row for row in report["rows"] if row["set"] == "kept_back"][::-1]
    figure, axis = pyplot.subplots(figsize=(7.2, 0.6 + 0.26 * len(rows)))
    names = [row["system"] for row in rows]
    axis.barh(names, [row["mrr10"] for row in rows], color="#a9cce0", label="MRR@10")
    axis.barh(names, [row["hit1"] for row in rows], height=0.4, color="#1b6e5a", label="hit@1")
    axis.set_xlim(min(row["hit1"] for row in rows) - 0.05, 1.0)
    axis.legend(loc="lower right")
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about: Mapping[str, Any] = report["about"]
    return "\n\n".join(
        [
            "## Which passage answers",
            pages.prose(
                f"{pages.called('retrieval', about)} asks {about['questions']:,} questions about",
                f"{about['passages']} passages of {about['articles']} articles",
                f"(`{about['file']}`), and looks at the rank of the passage that answers.",
                "Weights and thresholds are chosen on questions about half of the articles;",
                "`kept back` are those about the other half. `declined`: of the questions whose",
                "article is taken away, the share that the extractive reader does not answer;",
                "`answered`: the share that it answers with the article.",
                _chosen(report),
            ),
            f"![hit@1 and MRR@10 of questions kept back]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            pages.foot(
                "retrieval",
                about["machine"],
                f"MiniLM in {about['dtype']}",
                *(f"{name} {version}" for name, version in about["machine"]["packages"].items()),
            ),
        ]
    )
