"""How the report is shown: a table, a plot, what was to be reached, and the section of
docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.tables_peers.data import DATA
from experiments.tables_peers.installed import ASYNCIO, OURS

HEAD: Final = (
    *("data", "system", "rows", "calls", "prompt tokens", "found", "computed", "seconds"),
    *("MB", "wrong"),
)
TRIALS: Final = (
    *("system", "open at the kill", "answers given", "taken", "kept", "taken and lost"),
    "rows that one bad row took",
)
MISSING: Final = ("system", "why it is not here")
GOALS: Final = ("goal", "wanted", "seen", "")
FASTER: Final = 1.5
BEHIND: Final = 1.05
MOST_MB: Final = 300.0

Row = dict[str, Any]


def ran(report: Report) -> list[Row]:
    """Rows of systems that ran."""
    return [row for row in report["rows"] if row["calls"] is not None]


def by_data(report: Report) -> dict[str, dict[str, Row]]:
    """data -> system -> row."""
    found: dict[str, dict[str, Row]] = {}
    for row in ran(report):
        found.setdefault(row["data"], {})[row["system"]] = row
    return found


def computed(row: Row) -> int:
    """Prompt tokens that the cache did not have."""
    return int(row["prompt_tokens"] - row["hit_tokens"])


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            data,
            system,
            f"{row['rows']:,}",
            f"{row['calls']:,}",
            f"{row['prompt_tokens']:,}",
            f"{row['hit_tokens']:,}",
            f"{computed(row):,}",
            f"{row['seconds']:.2f}",
            f"{row['resident_mb']:.0f}",
            "" if row["wrong"] is None else f"{row['wrong']:,}",
        ]
        for data, systems in by_data(report).items()
        for system, row in systems.items()
    ]


def _trials(report: Report) -> list[list[str]]:
    rows = []
    for row in ran(report):
        if row["lost_after_kill"] is not None:
            kill = report["more"][f"{row['system']}, {row['data']}"]["kill"]
            counts = [kill[name] for name in ("open", "answered", "taken", "kept", "lost")]
            counts.append(row["failed_by_one_bad_row"])
            rows.append([row["system"], *(f"{count:,}" for count in counts)])
    return rows


def _missing(report: Report) -> list[list[str]]:
    return [
        [
            row["system"],
            row["version"] if row["data"] is None else f"{row['data']}: {row['version']}",
        ]
        for row in report["rows"]
        if row["calls"] is None
    ]


class Goal(NamedTuple):
    """goal, wanted, seen, met or missed."""

    goal: str
    wanted: str
    seen: str
    met: str


def goals(report: Report) -> list[Goal]:
    """What was to be reached, for each data set on which ours and another system ran."""
    found = []
    for data, systems in by_data(report).items():
        mine = systems.get(OURS)
        others = [row for name, row in systems.items() if name != OURS]
        if mine is None or not others:
            continue
        for what, least in (("calls", _calls), ("computed tokens", computed)):
            best = min(map(least, others))
            found.append(
                _goal(
                    f"{what}, {data}", f"at most {best:,}", f"{least(mine):,}", least(mine) <= best
                )
            )
        best_s = min(row["seconds"] for row in others)
        factor = best_s / mine["seconds"]
        if DATA[data].repeats:
            wanted, held = f"at least {FASTER:g} times", factor >= FASTER
        else:
            wanted, held = f"at least {1 / BEHIND:.2f} times", mine["seconds"] <= BEHIND * best_s
        found.append(_goal(f"as fast as the fastest, {data}", wanted, f"{factor:.2f}", held))
    found += _lost(report)
    mine_mb = max((row["resident_mb"] for row in ran(report) if row["system"] == OURS), default=0.0)
    others_mb = [row["resident_mb"] for row in ran(report) if row["system"] not in (OURS, ASYNCIO)]
    most = min([MOST_MB, *others_mb])
    found.append(_goal("memory, MB", f"at most {most:.0f}", f"{mine_mb:.0f}", mine_mb <= most))
    return found


def _calls(row: Row) -> int:
    return int(row["calls"])


def _lost(report: Report) -> list[Goal]:
    for row in ran(report):
        if row["system"] == OURS and row["lost_after_kill"] is not None:
            lost = row["lost_after_kill"], row["failed_by_one_bad_row"]
            seen = " and ".join(map(str, lost))
            return [
                _goal(
                    "taken and lost by a kill, lost by one bad row", "0 and 0", seen, lost == (0, 0)
                )
            ]
    return []


def _goal(goal: str, wanted: str, seen: str, held: bool) -> Goal:
    return Goal(goal, wanted, seen, "met" if held else "missed")


def show(report: Report, console: Console) -> None:
    """All rows, on the terminal."""
    console.print(pages.terminal("One query over tables", HEAD, _lines(report), left=2))
    console.print(pages.terminal(None, TRIALS, _trials(report), left=1))
    console.print(pages.terminal(None, MISSING, _missing(report), left=1))
    console.print(pages.terminal("Goals", GOALS, goals(report), left=1))


def plot(report: Report, path: Path) -> None:
    """Seconds by data set and system."""
    pyplot = plots.pyplot("tables_peers")
    figure, axis = pyplot.subplots(figsize=(7.2, 3.0))
    sets = by_data(report)
    systems = list(dict.fromkeys(row["system"] for row in ran(report)))
    wide = 0.8 / max(1, len(systems))
    for at, system in enumerate(systems):
        places = [k for k, one in enumerate(sets.values()) if system in one]
        heights = [one[system]["seconds"] for one in sets.values() if system in one]
        axis.bar([k + (at - len(systems) / 2) * wide for k in places], heights, wide, label=system)
    axis.set_xticks(range(len(sets)), [name.replace(" by ", "\nby ") for name in sets])
    axis.set_ylabel("seconds")
    axis.legend(frameon=False, fontsize=7, ncols=3)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about: dict[str, Any] = report["about"]
    versions = {row["system"]: row["version"] for row in ran(report)}
    told = ", ".join(f"`{name}` {version}" for name, version in versions.items())
    parts = [
        "## Tables, beside other systems",
        pages.prose(
            f"{pages.called('tables_peers', about)} asks one question about each of",
            f"{about['rows']:,} rows, one prompt a row, one system after another on one scripted",
            "server (Llama 2 7B on an L4, twenty times as fast, with a cache of prefixes). Each",
            f"system has its caches switched on and up to {about['at_once']} calls open ({told}).",
            "`computed`: prompt tokens that the server's cache did not have. `wrong`: rows whose",
            "answer is not the one that the server gives to their values.",
        ),
        f"![Seconds by data and system]({picture.as_posix()})",
        pages.table(HEAD, _lines(report)),
        pages.prose(
            "Killed (kill -9) when half of the calls were answered, and run again; and with one",
            "more row, which the server refuses. `taken`: answers after which the system asked",
            "again on their connection, or closed it, so it had read them; others may not have",
            "reached it. `kept`: answers that the second run did not ask for.",
        ),
        pages.table(TRIALS, _trials(report)),
    ]
    if missing := _missing(report):
        parts += ["Not here:", pages.table(MISSING, missing)]
    if added := about.get("added"):
        parts.append(added)
    parts += [
        "What was to be reached:",
        pages.table(GOALS, goals(report)),
        pages.foot("tables_peers", about["machine"]),
    ]
    return "\n\n".join(parts)
