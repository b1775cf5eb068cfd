"""What follows from the rows: ratios between systems; and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console

from experiments.baselines.systems import BASELINES, CROSS, PAPERS, TEOLA, VARIANTS
from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.common.latencies import geometric, within
from experiments.common.simulate import LOADS

PAPER: Final = {
    "naive-rag": {"low load": "up to 1.62", "high load": "up to 1.46"},
    "advanced-rag": {"low load": "up to 2.09", "high load": "up to 1.68"},
    "search-agent": {"low load": "up to 1.79", "high load": "up to 1.79"},
}
"""The paper's speedups over the slowest of its baselines (section 7.2); its loads are not given as
parts of what is sustained."""
NAMES: Final = tuple(system.name for system in BASELINES)
SHORT: Final = {
    "llamadist_po": "PO",
    "llamadist_to": "TO",
    "llamadist_pc_po": "PC PO",
    "llamadist_pc_to": "PC TO",
    "llamadist_to_nowait": "TO, no wait",
    "llamadist_pc_to_nowait": "PC TO, no wait",
    CROSS.name: "PC graph, our policy",
}
"""The baselines as columns: LlamaDist and LlamaDistPC."""
MEASURES: Final = ("mean_s", "p99_s")
SATURATED: Final = "saturated"
Place = tuple[str, str, float]
"""Application, LLM, load."""
Rows = Mapping[tuple[Place, str], list[dict[str, Any]]]
"""By place and system: a row for each seed."""


def derive(report: Report) -> Report:
    """The report with `worst_ratio`, in its final order."""
    found = by_place(report["rows"])
    worst = {name: worst_of(found, name, TEOLA.name) for name in NAMES}
    return {
        "rows": report["rows"],
        "single_query": report["single_query"],
        "worst_ratio": {name: ratio for name, (ratio, _) in worst.items() if ratio},
        **{name: report[name] for name in ("alone", "sustained", "about")},
    }


def by_place(rows: Iterable[dict[str, Any]]) -> Rows:
    """The rows of each system at each place, in order of their seeds."""
    found: dict[tuple[Place, str], list[dict[str, Any]]] = {}
    for row in rows:
        place = row["app"], row["llm"], row["load"]
        found.setdefault((place, row["system"]), []).append(row)
    return found


def places(rows: Rows) -> list[Place]:
    """Where something was measured."""
    return sorted({place for place, _ in rows}, key=lambda place: (place[2], *_order(place)))


def _order(place: Place) -> tuple[int, str]:
    return list(PAPER).index(place[0]), place[1].rjust(4)


def ratio(rows: Rows, place: Place, other: str, ours: str, measure: str) -> float:
    """How many times as high the other's figure is: the geometric mean over the seeds."""
    pairs = zip(rows[place, other], rows[place, ours], strict=True)
    return geometric([theirs[measure] / mine[measure] for theirs, mine in pairs])


def saturated(rows: Rows, place: Place, system: str) -> bool:
    """Whether the load is more than the system sustains."""
    return any(row["saturated"] for row in rows[place, system])


def worst_of(rows: Rows, other: str, ours: str) -> tuple[float, str]:
    """The least ratio of mean or 99th percentile where the other is not saturated, and where that
    is; 0 if it is saturated everywhere."""
    found = [
        (ratio(rows, place, other, ours, measure), f"{measure[:-2]} of {_said(place)}")
        for place in places(rows)
        if not saturated(rows, place, other)
        for measure in MEASURES
    ]
    least, where = min(found, default=(0.0, ""))
    return round(least, 4), where


def _said(place: Place) -> str:
    app, llm, load = place
    return f"{app} with {llm.upper()} at {load:.0%}"


# --- tables -----------------------------------------------------------------------------------

RATIOS_HEAD: Final = ("application", "LLM", "load", "Teola, s", *SHORT.values())
LATENCY_HEAD: Final = ("application", "LLM", "load", "mean, s", "p50, s", "p95, s", "p99, s")
KNOWN_HEAD: Final = (
    "what the core knows",
    "mean",
    "p99",
    "least against a baseline",
    "which",
    "where",
)
SINGLES_HEAD: Final = ("application", "LLM", "Teola, s", "bound, s", "above", *SHORT.values())
WORST_HEAD: Final = ("baseline", "least ratio", "where")
KNOWN: Final = {
    TEOLA.name: "what it learns",
    "teola_exact": "the engines' profile",
    "teola_borrowed": "that of another LLM",
    "teola_double": "twice the times",
    "teola_half": "half the times",
}


def ratios(rows: Rows, measure: str) -> list[list[str]]:
    """A row for each place: Teola's figure, and how many times as high each baseline's is."""
    found = []
    for place in places(rows):
        ours = [row[measure] for row in rows[place, TEOLA.name]]
        cells = [
            SATURATED
            if saturated(rows, place, name)
            else f"{ratio(rows, place, name, TEOLA.name, measure):.2f}"
            for name in SHORT
        ]
        mine = f"{fmean(ours):.2f}" + (
            f" ({SATURATED})" if saturated(rows, place, TEOLA.name) else ""
        )
        found.append([place[0], place[1], f"{place[2]:.0%}", mine, *cells])
    return found


def latencies(rows: Rows) -> list[list[str]]:
    """Teola's own figures with 95 % intervals over the seeds."""
    found = []
    for place in places(rows):
        ours = rows[place, TEOLA.name]
        cells = []
        for name in ("mean_s", "p50_s", "p95_s", "p99_s"):
            some = [row[name] for row in ours]
            cells.append(f"{fmean(some):.2f} ± {within(some):.2f}")
        found.append([place[0], place[1], f"{place[2]:.0%}", *cells])
    return found


def known(rows: Rows) -> list[list[str]]:
    """What knowing other times changes: a variant's figures divided by those of Teola as shipped
    (geometric mean over all places), and its least ratio to any baseline."""
    found = []
    for system in (TEOLA, *VARIANTS):
        cells = []
        for measure in MEASURES:
            some = [ratio(rows, at, system.name, TEOLA.name, measure) for at in places(rows)]
            cells.append(f"{geometric(some):.3f}")
        least = min(
            (*worst_of(rows, name, system.name), SHORT[name])
            for name in NAMES
            if worst_of(rows, name, system.name)[0]
        )
        found.append([KNOWN[system.name], *cells, f"{least[0]:.3f}", least[2], least[1]])
    return found


def worst(rows: Rows) -> list[list[str]]:
    """The least ratio to each baseline, and where it is."""
    found = []
    for name in NAMES:
        least, where = worst_of(rows, name, TEOLA.name)
        found.append([SHORT[name], f"{least:.3f}" if least else SATURATED, where])
    return found


def best(rows: Rows) -> list[list[str]]:
    """The best ratio of the means over LLMs against the slowest of the paper's baselines, where it
    is not saturated, beside the paper's figures."""
    found = []
    apps = dict.fromkeys(place[0] for place in places(rows))
    for app in apps:
        cells = []
        for load in LOADS:
            some = [
                ratio(rows, place, system.name, TEOLA.name, "mean_s")
                for place in places(rows)
                if place[0] == app and place[2] == load
                for system in PAPERS
                if not saturated(rows, place, system.name)
            ]
            cells.append(f"{max(some):.2f}" if some else SATURATED)
        found.append([app, *cells, *PAPER[app].values()])
    return found


def singles(report: Report) -> list[list[str]]:
    """One query at a time: Teola's latency, its bound, and the ratio of each baseline."""
    found = []
    for one, times in zip(report["single_query"], report["alone"], strict=True):
        ours, least = one["latency_s"], one["bound_s"]
        cells = [f"{times[name] / ours:.2f}" for name in SHORT]
        about = [f"{ours:.2f}", f"{least:.2f}", f"{ours / least - 1:.1%}"]
        found.append([one["app"], one["llm"], *about, *cells])
    return found


def show(report: Report, console: Console) -> None:
    """Tables on the terminal."""
    rows = by_place(report["rows"])
    title = "One query alone, others like it having been there (baseline / Teola)"
    console.print(pages.terminal(title, SINGLES_HEAD, singles(report), left=2))
    for measure in MEASURES:
        title = f"{measure[:-2]} under load (baseline / Teola)"
        console.print(pages.terminal(title, RATIOS_HEAD, ratios(rows, measure), left=2))
    title = "By what the core knows (as shipped: 1)"
    console.print(pages.terminal(title, KNOWN_HEAD, known(rows), left=1))
    console.print(pages.terminal("The least ratios", WORST_HEAD, worst(rows), left=1))


def plot(report: Report, path: Path) -> None:
    """Mean latency over the load, a panel for each application and LLM."""
    pyplot = plots.pyplot("end_to_end")
    rows = by_place(report["rows"])
    apps = list(dict.fromkeys(place[0] for place in places(rows)))
    llms = list(dict.fromkeys(place[1] for place in places(rows)))
    figure, axes = pyplot.subplots(
        len(apps), len(llms), figsize=(3.1 * len(llms), 2.5 * len(apps)), squeeze=False
    )
    for i, app in enumerate(apps):
        for j, llm in enumerate(llms):
            axis = axes[i][j]
            for name in (TEOLA.name, *NAMES):
                means = [
                    fmean(row["mean_s"] for row in rows[(app, llm, load), name]) for load in LOADS
                ]
                width = 1.8 if name == TEOLA.name else 1.0
                axis.plot(
                    LOADS, means, label=name, color=plots.COLOURS[name], lw=width, marker="o", ms=2
                )
            axis.set_yscale("log")
            axis.set_xticks(LOADS, [f"{load:.0%}" for load in LOADS])
            axis.set_title(f"{app}, {llm}")
    axes[-1][0].set_xlabel("of what the best system sustains")
    axes[0][0].set_ylabel("mean latency, s")
    axes[0][0].legend(frameon=False, fontsize=5)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about, rows = report["about"], by_place(report["rows"])
    part = [
        (one["app"], one["llm"], one["system"], f"{one['rate']:.3g}") for one in report["sustained"]
    ]
    return "\n\n".join(
        [
            "## Whole applications under load, in simulation",
            pages.prose(
                f"{pages.called('end_to_end', about)} simulates figure 8 of the paper: three",
                "applications, three LLM sizes, and loads of 50, 80 and 95 % of what the best",
                "system sustains. Teola runs as it is shipped, on the applications' own graphs,",
                "and knows of the engines what it finds out by itself. What the systems are and",
                "what sustained means is in [its README](../experiments/end_to_end/README.md).",
            ),
            pages.prose(
                f"{about['queries']} queries at each load after a warm-up, {about['seeds']}",
                f"seeds; lengths: {about['lengths']}; arrivals: {about['arrivals']}.",
            ),
            f"![Mean latencies]({picture.as_posix()})",
            "### The least of all ratios",
            pages.prose(
                "A ratio is the baseline's figure divided by Teola's, the geometric mean over",
                "the seeds: above 1, Teola is faster. Here is the least one for mean and 99th",
                "percentile at all loads that the baseline sustains. PO and TO are LlamaDist, a",
                "chain of modules; with PC, LlamaDistPC, independent modules run side by side.",
                "In the last row that graph runs under Teola's policy, so that only the passes",
                "can make a difference.",
            ),
            pages.table(WORST_HEAD, worst(rows)),
            *(
                text
                for measure, name in zip(MEASURES, ("Mean", "99th percentile"), strict=True)
                for text in (
                    f"### {name} under load",
                    pages.table(RATIOS_HEAD, ratios(rows, measure)),
                )
            ),
            "### Teola's latencies",
            "With 95 % confidence intervals over the seeds.",
            pages.table(LATENCY_HEAD, latencies(rows)),
            "### By what the core knows of the engines' times",
            pages.prose(
                "Mean and 99th percentile divided by those of Teola as it is shipped, which",
                "begins with nothing and learns; the others are given a profile and learn",
                "nothing.",
            ),
            pages.table(KNOWN_HEAD, known(rows)),
            "### Beside the paper's figures",
            pages.prose(
                "The best ratio of the means over the LLM sizes, against the slowest of the",
                "paper's four baselines that sustains the load. The paper's low and high load",
                "are not given as parts of what is sustained, and its LlamaDist has no prefix",
                "cache; all systems here have one.",
            ),
            pages.table(
                ("application", *(f"{load:.0%}" for load in LOADS), "paper, low load", "high"),
                best(rows),
            ),
            "### One query at a time",
            pages.prose(
                "A query over 48 chunks with mean lengths, after others like it, so that what",
                "engines keep is there. The bound is worked out from the plan that ran and the",
                "engines' times (experiments/common/bound.py): its longest path, and what each",
                "engine has to do.",
            ),
            pages.table(SINGLES_HEAD, singles(report)),
            "### What is sustained",
            "The best system at each place, and the queries a second that it sustains.",
            pages.table(("application", "LLM", "system", "queries a second"), part),
        ]
    )
