"""How the experiment is shown: means over its cells, goals, curves, tables, and prose."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.hexgen import goals
from experiments.hexgen.cases import KINDS, TENANTS, told_options
from experiments.hexgen.clusters import CLUSTERS
from experiments.hexgen.goals import (
    Row,
    best_alpha,
    gains,
    geometric,
    means,
    of_bursts,
    of_steady,
    worst,
)
from experiments.hexgen.measure import CURVE
from experiments.hexgen.policies import (
    ALPHAS,
    OURS,
    POLICIES,
    RR_FCFS,
    SWEEP,
    TUNED,
    WB_FCFS,
    WB_PQ,
)

HEAD: Final = ("policy", "slo95", "slo99", "p95, s", "mean, s", "queries/s", "attained")
COLOURS: Final = {OURS: "#1b6e5a", WB_PQ: "#c98524", RR_FCFS: "#b3312c", "least_loaded": "#3a78b4"}
BEFORE_AND_AFTER: Final = (RR_FCFS, WB_PQ, OURS)
"""Policies of the table of stages."""
OTHERS: Final = {
    "Bursts at both rates": "bursts.json",
    "The sweep of alpha": "sweep.json",
    "Steady at all rates": "steady.json",
    "A change of rate": "change.json",
    "The same objective for all": "same.json",
    "Shorter steps": "budget_512.json",
}
"""Kept reports of more rates, other objectives and budgets, beside report.json: title and file."""
FOLDER: Final = Path(__file__).parent
Table = tuple[str, Sequence[str], list[list[str]]]
"""Title, head and lines."""


# --- tables ---------------------------------------------------------------------------------


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


def tables(report: Report) -> list[Table]:
    """All that have something to say."""
    rows = report["rows"]
    found: list[Table] = [
        ("Goals", goals.HEAD, goals.lines(report)),
        ("Bursts", HEAD, lines(of_bursts(rows))),
        ("Steady", HEAD, lines(of_steady(rows))),
        ("A change of rate", HEAD, lines(report["change"])),
        ("Each answer's length known", HEAD, lines(report["oracle_length"])),
        ("Two tenants", *_of_tenants(report["tenants"], "tenants")),
        ("A tenant that nobody can serve in time", *_of_tenants(report["hopeless"], "hopeless")),
        ("Where calls ran", *_of_stages(report)),
        ("Alpha from 0 to 0.5, slo95", *_of_sweep(report)),
        ("Tuning", *_of_tuning(report)),
    ]
    return [(title, head, some) for title, head, some in found if some]


def _of_tenants(rows: Sequence[Row], kind: str) -> tuple[Sequence[str], list[list[str]]]:
    """What each tenant attained of its own objective."""
    scales = TENANTS[kind]
    head = ("policy", *(f"{name} ({scale:g} x base)" for name, scale in scales.items()), "mean, s")
    by_policy: dict[str, list[Row]] = {}
    for row in rows:
        by_policy.setdefault(row["policy"], []).append(row)
    return head, [
        [
            name,
            *(f"{fmean(row['attained'][tenant] for row in some):.2f}" for tenant in scales),
            f"{fmean(row['mean'] for row in some):.0f}",
        ]
        for name, some in by_policy.items()
    ]


def shares(report: Report, policy: str, cluster: str) -> Mapping[str, list[float]]:
    """Table 1 of the paper: of each stage's calls, the part that each instance got."""
    some: dict[str, dict[int, list[float]]] = {}
    for one in report["stages"]:
        if one["policy"] == policy and one["cluster"] == cluster:
            some.setdefault(one["stage"], {}).setdefault(one["instance"], []).append(one["share"])
    runs = max((len(of) for by in some.values() for of in by.values()), default=0)
    count = len(CLUSTERS[cluster])
    return {
        stage: [sum(by.get(i, ())) / runs for i in range(count)]  # none there: no line of it
        for stage, by in some.items()
    }


def _of_stages(report: Report, cluster: str = "hetero2") -> tuple[Sequence[str], list[list[str]]]:
    return ("policy", "stage, percent", *CLUSTERS[cluster]), [
        [policy, stage, *(f"{100 * share:.1f}" for share in found)]
        for policy in BEFORE_AND_AFTER
        for stage, found in shares(report, policy, cluster).items()
    ]


def _of_sweep(report: Report) -> tuple[Sequence[str], list[list[str]]]:
    """Figure 5 of the paper: the geometric mean of slo95 by alpha."""
    rows, found = report["rows"], []
    for what, some in (("bursts", of_bursts(rows)), ("steady", of_steady(rows))):
        for cluster in CLUSTERS:
            ran = means([row for row in some if row["cluster"] == cluster])
            if ran.keys() >= set(SWEEP):
                values = (f"{ran[name]['slo95']:.2f}" for name in SWEEP)
                found.append([f"{what}, {cluster}", *values])
    return ("runs", *map(str, ALPHAS)), found


def _of_tuning(report: Report) -> tuple[Sequence[str], list[list[str]]]:
    """Table 3 of the paper: seconds that it takes to find an alpha."""
    by_runs: dict[tuple[str, str], list[Row]] = {}
    for one in report["tuning"]:
        by_runs.setdefault((one["kind"], one["cluster"]), []).append(one)
    head = ("runs", "times", "processor seconds, mean", "longest", "alphas")
    found = []
    for (kind, cluster), some in by_runs.items():
        took = [one["replay_s"] for one in some]
        alphas = Counter(one["alpha"] for one in some)
        often = ", ".join(f"{alpha:g}: {times}" for alpha, times in sorted(alphas.items()))
        found.append([f"{kind}, {cluster}", str(len(some)), f"{fmean(took):.1f}",
                      f"{max(took):.1f}", often])  # fmt: skip
    return head, found


# --- sentences ------------------------------------------------------------------------------


def told(rows: Sequence[Row]) -> list[str]:
    """What bursts say of the policies that ran, in sentences."""
    ran = means(rows)
    pairs = [(WB_PQ, RR_FCFS, "slo95"), (WB_PQ, RR_FCFS, "throughput"), (WB_PQ, WB_FCFS, "slo95")]
    if (alpha := best_alpha(rows)) is not None:
        pairs.append((OURS, alpha, "slo95"))
    pairs.append((OURS, TUNED, "slo95"))
    found = [_between(rows, *pair) for pair in pairs if pair[0] in ran and pair[1] in ran]
    for key in ("slo95", "slo99", "p95", "mean", "throughput"):
        if (least := worst(rows, key)) is not None:
            found.append(
                f"{key} of `{OURS}` against any other: at worst {least[0]:.3f} ({least[1]})"
            )
    return found


def _between(rows: Sequence[Row], one: str, other: str, name: str) -> str:
    all_ = gains(rows, one, other, name)
    return (
        f"{name} of `{one}` against `{other}`: {geometric(all_):.2f} "
        f"({min(all_):.2f} to {max(all_):.2f})"
    )


def command(report: Report) -> str:
    """The command that made a report."""
    settings = report["settings"]
    return pages.called("hexgen", settings, *told_options(settings))


def left_out(report: Report) -> str:
    """What the whole experiment has and this report has not."""
    settings = report["settings"]
    kinds = [kind for kind in KINDS if kind not in (settings["only"] or KINDS)]
    ran = {row["policy"] for row in report["rows"]}
    policies = [f"`{name}`" for name in POLICIES if name not in ran]
    parts = []
    if settings["quick"]:
        parts.append("bursts at 0.5 a second")
    if settings["seeds"] < 5:
        parts.append("more seeds")
    if kinds:
        parts.append(f"runs of the kinds {', '.join(kinds)}")
    if policies:
        parts.append(f"the policies {', '.join(policies)}")
    return "; ".join(parts)


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    settings = report["settings"]
    for title, head, some in tables(report):
        if head is not goals.HEAD:  # sentences, for which a terminal has too few columns
            console.print(pages.terminal(title, head, some, left=1))
    for what, wanted, measured, word in goals.lines(report):
        console.print(f"{word or 'open'}: {what}: {measured} (wanted: {wanted})", highlight=False)
    for line in told(of_bursts(report["rows"])):
        console.print(line)
    console.print(
        f"objective {settings['objective']}, budget {settings['budget']}, "
        f"{settings['runs']} runs, {settings['runs_took_s']:.0f} processor seconds"
    )


# --- pages ----------------------------------------------------------------------------------


def plot(report: Report, path: Path) -> None:
    """Attainment by scale, and slo95 of each policy; the sweep of alpha, if there is one."""
    pyplot = plots.pyplot("hexgen")
    _, swept = _of_sweep(report)
    count = 3 if swept else 2
    figure, axes = pyplot.subplots(1, count, figsize=(4.8 * count, 3.6))
    left, right = axes[:2]
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
    for line in swept:
        axes[-1].plot(ALPHAS, [float(value) for value in line[1:]], marker="o", label=line[0])
    if swept:
        axes[-1].set_xlabel("alpha")
        axes[-1].set_ylabel("slo95")
        axes[-1].legend(frameon=False, fontsize=7)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    parts = [
        "## Objectives on unequal instances",
        pages.prose(
            f"{command(report)} replays recorded queries of",
            "text-to-SQL on two simulated clusters of four instances whose speeds differ",
            "threefold. `slo95`",
            "is the 95th percentile of latency over the time that the query would take alone;",
            "`attained` the part of the queries within five times that, which is their objective.",
            "It tells every policy that reads it how long the query is. Bursts come faster than",
            "the instances sustain.",
        ),
        pages.prose(*(f"{line}." for line in told(of_bursts(report["rows"])))),
        f"![Attainment and slo95 by policy]({picture.as_posix()})",
        *_shown(report),
        "[More](../experiments/hexgen/README.md).",
    ]
    return "\n\n".join(parts)


def _shown(report: Report, level: str = "###") -> list[str]:
    parts = []
    for title, head, some in tables(report):
        parts += [f"{level} {title}", pages.table(head, some)]
    return parts


def elsewhere(report: Report) -> Mapping[str, str]:
    """The figures of docs/scheduling.md and of the README here."""
    bursts = pages.table(HEAD, lines(of_bursts(report["rows"])))
    return {
        "scheduling.md": f"{PICTURE}\n\n{bursts}",
        "../experiments/hexgen/README.md": readme(report),
    }


PICTURE: Final = "![Attainment by objective, and slo95 by policy](images/hexgen.svg)"


def readme(report: Report) -> str:
    """What was run and what it gave: of this report, and of those that are kept beside it."""
    parts = _of_report("What was run", report)
    for title, file in OTHERS.items():
        if (FOLDER / file).exists():
            other = json.loads((FOLDER / file).read_text(encoding="utf-8"))
            parts += _of_report(title, other)
    return "\n\n".join(parts)


def _of_report(title: str, report: Report) -> list[str]:
    settings = report["settings"]
    some = pages.plural(settings["runs"], "run")
    sentences = [f"{command(report)}: {some}."]
    if missing := left_out(report):
        sentences.append(f"Not run for it: {missing}.")
    facts = "\n".join(f"* {line}" for line in told(of_bursts(report["rows"])))
    return [f"## {title}", pages.prose(*sentences), *([facts] if facts else []), *_shown(report)]
