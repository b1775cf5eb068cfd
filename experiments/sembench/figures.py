"""How the report is shown: a table, a plot, what was to be reached, and the section of
docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.sembench import published
from experiments.sembench.measure import (
    EVERY,
    GOAL,
    KEPT,
    OURS_WITHOUT_ANSWERS,
    PAIRWISE,
    RELATIONS,
    SQL,
)

OURS: Final = (SQL, RELATIONS, KEPT, PAIRWISE)
HEAD: Final = ("question", "system", "calls", "prompt tokens", "answer tokens", "right", "of")
BRIEF: Final = ("question", *("calls", "of every row"), *("tokens", "of every row"), "right")
THEIRS: Final = ("question", SQL, *published.SYSTEMS)
GOALS: Final = ("goal", "wanted", "seen", "")
UNKNOWN: Final = "not told"
COUNTED: Final = ("calls", "prompt_tokens", "completion_tokens")


def by_question(report: Report) -> dict[str, dict[str, dict[str, Any]]]:
    """question -> system -> row."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in report["rows"]:
        found.setdefault(row["question"], {})[row["system"]] = row
    return found


def tokens(row: dict[str, Any]) -> int:
    """Of prompts and answers."""
    return int(row["prompt_tokens"] + row["completion_tokens"])


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            row["question"],
            row["system"],
            *(UNKNOWN if row[name] is None else f"{row[name]:,}" for name in COUNTED),
            *("" if row[name] is None else f"{row[name]:,}" for name in ("right", "of")),
        ]
        for row in report["rows"]
    ]


def _brief(report: Report) -> list[list[str]]:
    found = []
    for name, systems in by_question(report).items():
        for system in OURS:
            if system == RELATIONS or system not in systems:
                continue
            mine, every = systems[system], systems[EVERY]
            found.append(
                [
                    f"{name}{LABELS[system]}",
                    f"{mine['calls']:,}",
                    f"{every['calls']:,}",
                    f"{tokens(mine):,}",
                    f"{tokens(every):,}",
                    f"{mine['right']:,} of {mine['of']:,}",
                ]
            )
    return found


LABELS: Final = {SQL: "", KEPT: ", answers kept", PAIRWISE: ", pair by pair"}


def _beside(report: Report) -> list[list[str]]:
    return [
        [name, *(_cell(systems.get(system)) for system in THEIRS[1:])]
        for name, systems in by_question(report).items()
    ]


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    right = "" if row["right"] is None else f" ({row['right']:,} of {row['of']:,})"
    return f"{tokens(row):,}{right}"


def goals(report: Report) -> list[tuple[str, str, str, str]]:
    """What was to be reached: goal, wanted, seen, met or missed."""
    questions = by_question(report)
    least = min(GOAL, len(questions))
    right = sum(row["right"] == row["of"] for row in report["rows"] if row["system"] in OURS)
    ran = sum(row["system"] in OURS for row in report["rows"])
    fewer = [
        sum(
            one[system]["calls"] < one[EVERY]["calls"] and tokens(one[system]) < tokens(one[EVERY])
            for one in questions.values()
        )
        for system in OURS_WITHOUT_ANSWERS
    ]
    same = sum(report["same"].values())
    return [
        ("right results", f"{ran}", f"{right}", _met(right == ran)),
        (
            "SQL and relations give the same",
            f"{len(questions)}",
            f"{same}",
            _met(same == len(questions)),
        ),
        (
            "fewer calls and tokens than every row",
            f"{least} of {len(questions)} at least",
            " and ".join(map(str, fewer)),
            _met(min(fewer) >= least),
        ),
    ]


def _met(held: bool) -> str:
    return "met" if held else "missed"


def show(report: Report, console: Console) -> None:
    """All rows, on the terminal."""
    title = "SemBench's movie scenario"
    console.print(pages.terminal(title, HEAD, _lines(report), left=2))
    console.print(pages.terminal("Goals", GOALS, goals(report), left=1))


def plot(report: Report, path: Path) -> None:
    """Tokens by question and system, on a scale of powers of ten."""
    pyplot = plots.pyplot("sembench")
    figure, axis = pyplot.subplots(figsize=(7.2, 3.2))
    questions = by_question(report)
    systems = (SQL, EVERY, *published.SYSTEMS)
    for at, system in enumerate(systems):
        places = [k for k, one in enumerate(questions.values()) if system in one]
        heights = [tokens(one[system]) for one in questions.values() if system in one]
        axis.bar([k + (at - len(systems) / 2) * 0.13 for k in places], heights, 0.13, label=system)
    axis.set_yscale("log")
    axis.set_xticks(range(len(questions)), list(questions))
    axis.set_ylabel("tokens")
    axis.legend(frameon=False, fontsize=7, ncols=3)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about: dict[str, Any] = report["about"]
    return "\n\n".join(
        [
            "## SemBench's movies",
            pages.prose(
                f"{pages.called('sembench', about)} asks the ten questions of SemBench's movie",
                f"scenario about {about['reviews']:,} reviews. The model is scripted: it knows",
                "the truth, and answers by what stands in the prompt. `of every row`: what asking",
                "for each row (or pair) once takes, of those that the other conditions let",
                "through. `answers kept`: the ten one after the other with one table of answers.",
                "Tokens are characters over four.",
            ),
            f"![Tokens by question and system]({picture.as_posix()})",
            pages.table(BRIEF, _brief(report)),
            pages.prose(
                "Tokens of prompts and answers beside those that the benchmark publishes, of",
                f"{published.MODEL}, with its own tokenizer and prompts. By LOTUS's tokens, its Q1",
                "and Q10 seem to be of 1,000 reviews; ours are of 2,000. In brackets what was",
                "right, where that can be told. Calls are not published.",
            ),
            pages.table(THEIRS, _beside(report)),
            pages.table(GOALS, goals(report)),
            "Nothing here is a time. [More](../experiments/sembench/README.md).",
        ]
    )
