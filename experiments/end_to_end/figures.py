"""What follows from the rows: speedups, the worst ratio; and how they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.baselines.systems import ALL, BASELINES, TEOLA, TOPOLOGY
from experiments.common import pages, plots
from experiments.common.command import Report

PAPER: Final = {
    "naive-rag": {"low_load": "up to 1.62", "high_load": "up to 1.46"},
    "advanced-rag": {"low_load": "up to 2.09", "high_load": "up to 1.68"},
    "search-agent": {"low_load": "up to 1.79", "high_load": "up to 1.79"},
}
"""The paper's speedups, against the slowest of its baselines (section 7.2)."""
CEILINGS: Final = {
    "naive-rag": "1.32 to 1.36",
    "advanced-rag": "1.47 to 1.50",
    "search-agent": "1.19",
}
"""Worked out by hand from the profile: one query, 48 chunks, against TO with all its waits."""
LOADS: Final = {"low_load": "low", "high_load": "high"}
NAMES: Final = tuple(system.name for system in BASELINES)
SHORT: Final = ("PO", "TO", "PC PO", "PC TO")
"""The baselines as columns: LlamaDist and LlamaDistPC."""


def derive(report: Report) -> Report:
    """The report with `best_speedup` and `worst_ratio`, in its final order."""
    return {
        "rows": report["rows"],
        **_compared(report, TEOLA.name),
        "single_query": report["single_query"],
        "topology": {"rows": report["topology"], **_compared(report, TOPOLOGY.name)},
        "alone": report["alone"],
        "loads": report["loads"],
        "about": report["about"],
    }


def _compared(report: Report, ours: str) -> dict[str, Any]:
    """`best_speedup` and `worst_ratio` of one of our systems."""
    mean = _means(report)
    ratios = [
        {
            "app": app,
            "llm": llm,
            "rate": rate,
            "baseline": name,
            "ratio": round(seconds / mean[app, llm, rate, ours], 4),
        }
        for (app, llm, rate, name), seconds in mean.items()
        if name in NAMES
    ]
    best: dict[str, dict[str, dict[str, float]]] = {}
    for at in report["loads"]:
        for load, key in LOADS.items():
            speedups = best.setdefault(at["app"], {}).setdefault(load, dict.fromkeys(NAMES, 0.0))
            for r in ratios:
                if (r["app"], r["llm"], r["rate"]) == (at["app"], at["llm"], at[key]):
                    speedups[r["baseline"]] = max(speedups[r["baseline"]], r["ratio"])
    return {"best_speedup": best, "worst_ratio": min(ratios, key=lambda r: r["ratio"])}


def _means(report: Report) -> dict[tuple[str, str, float, str], float]:
    return {
        (r["app"], r["llm"], r["rate"], r["system"]): r["mean_s"]
        for r in (*report["rows"], *_rows_of_topology(report))
    }


def _rows_of_topology(report: Report) -> list[dict[str, Any]]:
    """Before and after `derive`."""
    part = report["topology"]
    rows: list[dict[str, Any]] = part if isinstance(part, list) else part["rows"]
    return rows


def speedups(report: Report, load: str) -> list[list[Any]]:
    """A row for each application and LLM: rate, Teola's mean, the ratio of each baseline, and that
    of the paper's batching policy."""
    mean = _means(report)
    found = []
    for at in report["loads"]:
        where = (at["app"], at["llm"], at[LOADS[load]])
        ours = mean[*where, TEOLA.name]
        ratios = [f"{mean[*where, name] / ours:.2f}" for name in NAMES]
        papers = f"{mean[*where, TOPOLOGY.name] / ours:.2f}"
        about = [at["app"], at["llm"], f"{where[2]:.3g}", f"{ours:.2f}"]
        found.append([*about, *ratios, papers])
    return found


def singles(report: Report) -> list[list[Any]]:
    """One query at a time: Teola's latency, its bound, the ratio of each baseline, and what the
    slowest one's would be if Teola had LLM instances without end."""
    found = []
    for one, all_of_them in zip(report["single_query"], report["alone"], strict=True):
        ours = one["latency_s"]
        ratios = [f"{all_of_them[name] / ours:.2f}" for name in NAMES]
        over = f"{ours / one['bound_s'] - 1:.1%}"
        ceiling = f"{all_of_them['llamadist_to'] / all_of_them['unlimited_s']:.2f}"
        about = [f"{ours:.2f}", f"{one['bound_s']:.2f}", over]
        found.append([one["app"], one["llm"], *about, *ratios, ceiling])
    return found


RATIOS_HEAD: Final = ("application", "LLM", "rate, 1/s", "Teola, s", *SHORT, "topology")
SINGLES_HEAD: Final = ("application", "LLM", "Teola, s", "bound, s", "above", *SHORT, "ceiling")


def show(report: Report, console: Console) -> None:
    """Tables on the terminal."""
    title = "One query at a time (baseline / Teola)"
    console.print(pages.terminal(title, SINGLES_HEAD, singles(report), left=2))
    for load in LOADS:
        title = f"{load.replace('_', ' ')}, mean latencies (baseline / Teola)"
        console.print(pages.terminal(title, RATIOS_HEAD, speedups(report, load), left=2))
    for name, worst in _worst(report):
        console.print(f"worst ratio with {name}: {worst}")


def _worst(report: Report) -> list[tuple[str, str]]:
    """The least ratio on the sweep, with our policy and with the paper's."""
    found = []
    for name, part in (("critical_path", report), ("topology", report["topology"])):
        worst = part["worst_ratio"]
        where = f"{worst['app']} with {worst['llm']} at {worst['rate']:.3g} queries a second"
        found.append((name, f"{worst['ratio']:.3f}, {worst['baseline']} on {where}"))
    return found


def plot(report: Report, path: Path) -> None:
    """Mean latency over the rate, a panel for each application and LLM."""
    pyplot = plots.pyplot("end_to_end")
    apps = list(dict.fromkeys(at["app"] for at in report["loads"]))
    llms = list(dict.fromkeys(at["llm"] for at in report["loads"]))
    figure, axes = pyplot.subplots(
        len(apps), len(llms), figsize=(3.1 * len(llms), 2.5 * len(apps)), squeeze=False
    )
    for i, app in enumerate(apps):
        for j, llm in enumerate(llms):
            axis = axes[i][j]
            for name in ALL:
                both = (*report["rows"], *_rows_of_topology(report))
                rows = [r for r in both if (r["app"], r["llm"]) == (app, llm)]
                line = [(r["rate"], r["mean_s"]) for r in rows if r["system"] == name]
                width = 1.8 if name in (TEOLA.name, TOPOLOGY.name) else 1.0
                axis.plot(*zip(*line, strict=True), label=name, color=plots.COLOURS[name], lw=width)
            axis.set_yscale("log")
            axis.set_title(f"{app}, {llm}")
            axis.set_xlabel("queries a second")
    axes[0][0].set_ylabel("mean latency, s")
    axes[0][0].legend(frameon=False, fontsize=6)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    best = [
        (
            app,
            load.replace("_", " "),
            policy,
            *(f"{part['best_speedup'][app][load][name]:.2f}" for name in NAMES),
            PAPER[app][load],
        )
        for app in report["best_speedup"]
        for load in LOADS
        for policy, part in (("critical path", report), ("topology", report["topology"]))
    ]
    worst = "\n".join(f"* `{name}`: {text}" for name, text in _worst(report))
    parts = [
        "## Whole applications under load, in simulation",
        "`python -m experiments.end_to_end` simulates figure 8 of the paper: three applications,\n"
        "three LLM sizes, rates from light load to 1.2 times the best system's saturation. The\n"
        "simulator drives the scheduler that serves, with the times of the paper's testbed. What\n"
        "the systems are, what low and high load mean and where every figure comes from is in\n"
        "[its README](../experiments/end_to_end/README.md).",
        f"{about['queries']} queries at each point after a warm-up, seed {about['seed']};\n"
        f"lengths: {about['lengths']}; arrivals: {about['arrivals']}.",
        f"![Mean latencies]({picture.as_posix()})",
        "### Best speedup over the LLM sizes",
        "Mean latency of the baseline divided by Teola's, and the paper's figure. PO and TO are\n"
        "LlamaDist, a chain of modules; PC PO and PC TO are LlamaDistPC. Teola batches by\n"
        "`critical_path`, which is its default; `topology` is the paper's policy.",
        pages.table(("application", "load", "Teola's policy", *SHORT, "paper"), best),
        "The least of all ratios on the sweep:",
        worst,
    ]
    for load in LOADS:
        parts += [
            f"### {load.replace('_', ' ').capitalize()}",
            "The last column is the ratio of Teola itself with the paper's policy, `topology`.",
            pages.table(RATIOS_HEAD, speedups(report, load)),
        ]
    parts += ["### One query at a time", _about_singles()]
    parts += [pages.table(SINGLES_HEAD, singles(report)), _about_speculation(report)]
    return "\n\n".join(parts)


def _about_singles() -> str:
    ceilings = "; ".join(f"{app} {value}" for app, value in CEILINGS.items())
    return (
        "48 chunks and mean lengths. The bound is worked out from the graph and the profile\n"
        "(experiments/common/bound.py): its longest path, and what each engine's instances have\n"
        "to do. The ceiling divides LlamaDist-TO's latency by the bound with LLM instances\n"
        f"without end. The ceilings by hand, before anything was simulated: {ceilings}."
    )


def _about_speculation(report: Report) -> str:
    """What starting the search before the judge has decided saves."""
    lines = [
        (
            one["llm"],
            f"{one['teola']:.2f}",
            f"{one['speculating']:.2f}",
            f"{one['llamadist_to'] / one['speculating']:.2f}",
        )
        for one in report["alone"]
        if "speculating" in one
    ]
    text = (
        "With speculation the search agent searches, and its core model reads what was found,\n"
        "while the judge still decides:"
    )
    head = ("LLM", "search agent, s", "speculating, s", "TO / speculating")
    return f"{text}\n\n{pages.table(head, lines)}"
