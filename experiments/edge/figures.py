"""How the cases are shown: a table, a plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.edge.goals import goals
from experiments.edge.measure import SYSTEMS

HEAD: Final = (
    "case",
    "system",
    "policy",
    "queries",
    "ok",
    "lost",
    "wrong",
    "calls",
    "needed",
    "p50, s",
    "p99, s",
    "at the bad one",
    "quota used",
    "s",
)
GOALS: Final = ("goal", "seen", "held")
COLOURS: Final = ("#1b6e5a", "#c98524", "#3a78b4")


def _lines(report: Report) -> list[list[str]]:
    return [_line(row) for row in report["rows"]]


def _line(row: dict[str, Any]) -> list[str]:
    def number(key: str, form: str) -> str:
        return "" if row[key] is None else format(row[key], form)

    return [
        row["case"],
        row["system"],
        row["policy"],
        *(number(key, ",") for key in ("queries", "ok", "lost", "wrong", "calls", "calls_needed")),
        *(number(key, ".2f") for key in ("p50_s", "p99_s")),
        *(number(key, ".1%") for key in ("share_of_bad", "quota_used")),
        number("seconds", ".1f"),
    ]


def _added(about: dict[str, Any]) -> list[str]:
    """Which cases were run at another time, and how busy the machine was then."""
    if not (added := about.get("added")):
        return []
    told = ", ".join(f"`{case}` {load:g}" for case, load in added.items())
    return [f"Run at other times, with a load of the machine of: {told}."]


def _goals(report: Report) -> list[list[str]]:
    return [[goal.text, goal.seen, "yes" if goal.held else "no"] for goal in goals(report)]


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    console.print(pages.terminal("Servers that misbehave", HEAD, _lines(report), left=3))
    console.print(pages.terminal("Goals", GOALS, _goals(report), left=1))
    told = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    console.print(told)


def plot(report: Report, path: Path) -> None:
    """What part of the queries each system answered, by case."""
    pyplot = plots.pyplot("edge")
    rows = [row for row in report["rows"] if row["queries"]]
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, axis = pyplot.subplots(figsize=(7.2, 0.6 + 0.42 * len(cases)))
    for k, (system, colour) in enumerate(zip(SYSTEMS, COLOURS, strict=True)):
        parts = {}
        for row in rows:
            if row["system"] == system:
                parts.setdefault(row["case"], row["ok"] / row["queries"])
        at = [len(cases) - 1 - cases.index(case) + 0.27 * (1 - k) for case in parts]
        axis.barh(at, list(parts.values()), height=0.25, color=colour, label=system)
    axis.set_yticks(range(len(cases)), cases[::-1])
    axis.set_xlabel("part of the queries that were answered, and rightly")
    axis.legend(frameon=False, loc="lower left", fontsize=6)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    rows = [row for row in report["rows"] if row["system"] == SYSTEMS[0] and row["queries"]]
    queries = sum(row["queries"] for row in rows)
    told = ", ".join(f"`{name}` {version}" for name, version in report["versions"].items())
    return "\n\n".join(
        [
            "## Servers that misbehave",
            pages.prose(
                f"{pages.called('edge', about)} asks scripted model servers that refuse, hang,",
                "slow down, reset connections and come back; each system asks servers of its own,",
                f"all at the same time ({told}). Teola asked {queries:,} queries, with nothing",
                "configured but the servers' addresses. `policy` is its routing, or how a peer",
                "spreads calls.",
            ),
            f"![What part of the queries was answered, by case and system]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            "What was to be reached:",
            pages.table(GOALS, _goals(report)),
            *_added(about),
            pages.foot("edge", about["machine"]),
        ]
    )
