"""How the experiment is shown: means over its cells, gains against others, curves, and prose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.hexgen.measure import CURVE, STEADY
from experiments.hexgen.policies import OURS, POLICIES, RR_FCFS, SWEEP, TUNED, WB_FCFS, WB_PQ

Row = dict[str, Any]
Cell = tuple[str, str, float]
FIGURES: Final = ("slo95", "slo99", "p95", "mean", "throughput", "attained")
HEAD: Final = ("policy", "slo95", "slo99", "p95, s", "mean, s", "queries/s", "attained")
GEOMETRIC: Final = frozenset({"slo95", "slo99", "p95", "mean", "throughput"})
COLOURS: Final = {OURS: "#1b6e5a", WB_PQ: "#c98524", RR_FCFS: "#b3312c", "least_loaded": "#3a78b4"}


def of_bursts(rows: Sequence[Row]) -> list[Row]:
    """Those whose rate is above what the instances sustain."""
    return [row for row in rows if row["rate"] not in STEADY]


def of_steady(rows: Sequence[Row]) -> list[Row]:
    """The others."""
    return [row for row in rows if row["rate"] in STEADY]


def by_cell(rows: Sequence[Row]) -> dict[str, dict[Cell, Row]]:
    """Policy -> trace, cluster and rate -> the mean over the seeds."""
    some: dict[str, dict[Cell, list[Row]]] = {}
    for row in rows:
        cell = row["trace"], row["cluster"], row["rate"]
        some.setdefault(row["policy"], {}).setdefault(cell, []).append(row)
    return {
        policy: {
            cell: {name: fmean(row[name] for row in found) for name in FIGURES}
            for cell, found in cells.items()
        }
        for policy, cells in some.items()
    }


def geometric(values: Sequence[float]) -> float:
    """The geometric mean."""
    return exp(fmean(map(log, values)))


def means(rows: Sequence[Row]) -> dict[str, Row]:
    """Policy -> figures over all cells: geometric means, of what was attained the mean."""
    return {
        policy: {
            name: (geometric if name in GEOMETRIC else fmean)([c[name] for c in cells.values()])
            for name in FIGURES
        }
        for policy, cells in by_cell(rows).items()
    }


def gains(rows: Sequence[Row], one: str, other: str, name: str) -> list[float]:
    """In each cell, by how much `one` is better than `other`: above 1 is better."""
    cells = by_cell(rows)
    mine, theirs = cells[one], cells[other]
    up = name in ("throughput", "attained")
    return [
        mine[c][name] / theirs[c][name] if up else theirs[c][name] / mine[c][name] for c in mine
    ]


def best_alpha(rows: Sequence[Row]) -> str:
    """The fixed alpha with the least slo95."""
    found = means(rows)
    return min((n for n in (*SWEEP, WB_PQ) if n in found), key=lambda n: found[n]["slo95"])


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """Of the table of means."""
    found = means(rows)
    return [
        [
            name,
            *(f"{found[name][key]:.2f}" for key in ("slo95", "slo99")),
            *(f"{found[name][key]:.0f}" for key in ("p95", "mean")),
            f"{found[name]['throughput']:.3f}",
            f"{found[name]['attained']:.2f}",
        ]
        for name in (*POLICIES, *sorted(found.keys() - POLICIES.keys()))
        if name in found
    ]


def told(rows: Sequence[Row]) -> list[str]:
    """What bursts say of the policies that ran, in sentences."""
    ran = means(rows)
    pairs = [(WB_PQ, RR_FCFS, "slo95"), (WB_PQ, RR_FCFS, "throughput"), (WB_PQ, WB_FCFS, "slo95")]
    if any(name in ran for name in (*SWEEP, WB_PQ)):
        pairs.append((OURS, best_alpha(rows), "slo95"))
    pairs.append((OURS, TUNED, "slo95"))
    found = [_between(rows, *pair) for pair in pairs if pair[0] in ran and pair[1] in ran]
    others = [name for name in ran if name != OURS]
    if OURS not in ran or not others:
        return found
    for key in ("slo95", "slo99", "p95", "mean", "throughput"):
        worst, against = min((min(gains(rows, OURS, name, key)), name) for name in others)
        found.append(f"{key} of `{OURS}` against any other: at worst {worst:.2f} ({against})")
    return found


def _between(rows: Sequence[Row], one: str, other: str, name: str) -> str:
    all_ = gains(rows, one, other, name)
    return (
        f"{name} of `{one}` against `{other}`: {geometric(all_):.2f} "
        f"({min(all_):.2f} to {max(all_):.2f})"
    )


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    settings = report["settings"]
    for title, rows in _parts(report):
        console.print(pages.terminal(title, HEAD, lines(rows), left=1))
    for line in told(of_bursts(report["rows"])):
        console.print(line)
    console.print(
        f"objective {settings['objective']}, budget {settings['budget']}, "
        f"{settings['runs']} runs, which took {settings['runs_took_s']:.0f} s in all"
    )


def _parts(report: Report) -> list[tuple[str, list[Row]]]:
    rows = report["rows"]
    found = [("Bursts", of_bursts(rows)), ("Steady", of_steady(rows))]
    for key, title in (
        ("oracle_length", "Each call's answer known"),
        ("change", "A change of rate"),
    ):
        found.append((title, report.get(key, [])))
    return [(title, some) for title, some in found if some]


def plot(report: Report, path: Path) -> None:
    """Attainment by scale, and slo95 of each policy."""
    pyplot = plots.pyplot("hexgen")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.6, 3.6))
    for name, curve in report["curves"].items():
        colour = COLOURS.get(name, "#c9ccd2")
        label = name if name in COLOURS else None
        left.plot(CURVE, curve, color=colour, label=label, lw=1.6 if label else 0.8)
    left.set_xlabel("objective, times the query's base")
    left.set_ylabel("part of the queries in time")
    left.legend(frameon=False, fontsize=7)
    found = means(of_bursts(report["rows"]))
    order = sorted(found, key=lambda name: -found[name]["slo95"])
    right.barh(order, [found[name]["slo95"] for name in order],
               color=[COLOURS.get(name, "#c9ccd2") for name in order])  # fmt: skip
    right.set_xlabel("slo95")
    right.tick_params(axis="y", labelsize=6)
    plots.save(figure, path)


def shares(report: Report, policy: str, cluster: str) -> Mapping[str, list[float]]:
    """Table 1 of the paper: of each stage's calls, the part that each instance got."""
    some: dict[str, dict[int, list[float]]] = {}
    for one in report["stages"]:
        if one["policy"] == policy and one["cluster"] == cluster:
            some.setdefault(one["stage"], {}).setdefault(one["instance"], []).append(one["share"])
    return {stage: [fmean(found) for _, found in sorted(by.items())] for stage, by in some.items()}


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    settings = report["settings"]
    policies = settings["policies"]
    options = [f"--policies {','.join(policies)}"] if policies else []
    if settings["bursts_only"] and not policies:
        options = ["--bursts"]
    parts = [
        "## Objectives on unequal instances",
        pages.prose(
            f"{pages.called('hexgen', settings, *options)} replays recorded queries of",
            "text-to-SQL on two simulated clusters of four instances whose speeds differ",
            "threefold. `slo95`",
            "is the 95th percentile of latency over the time that the query would take alone;",
            "`attained` the part of the queries within five times that, which is their objective.",
            "It tells every policy that reads it how long the query is. Bursts come faster than",
            "the instances sustain.",
        ),
        pages.prose(*(f"{line}." for line in told(of_bursts(report["rows"])))),
        f"![Attainment and slo95 by policy]({picture.as_posix()})",
    ]
    for title, rows in _parts(report):
        parts += [f"### {title}", pages.table(HEAD, lines(rows))]
    parts.append("[More](../experiments/hexgen/README.md).")
    return "\n\n".join(parts)
