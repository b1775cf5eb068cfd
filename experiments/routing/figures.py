"""How the comparison is shown: tables, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.routing.measure import by_cell
from experiments.routing.sweep import FACTORS

OURS: Final = "graph_aware"
HEAD: Final = ("policy", "geometric mean", "worst")
VARIANTS: Final = {
    "round_robin": "round robin",
    "oracle_partition": "oracle partition",
    "e2-per-request": "E2, each call by itself",
    "e2-shifts": "+ shifting and replicas",
    "e2": "+ prefill and decode balance",
    "e2-prefix-groups": "+ priority groups in each queue",
}


def _lines(report: Report) -> list[list[str]]:
    return [
        [name, f"{of['geometric_mean']:.3f}", f"{of['worst']:.3f}"]
        for name, of in report["ratios"]["over_best"].items()
    ]


def _ablation(report: Report) -> list[list[str]]:
    found = report["ratios"].get("ablation", {})
    return [
        [VARIANTS[name], f"{of['mean_s']:.3f} s", f"{of['p99_s']:.3f} s"]
        for name, of in found.items()
    ]


def _sentences(report: Report) -> list[str]:
    told = []
    for name, what in (("e2_ahead", "round robin"), ("oracle_over_e2", "the oracle partition")):
        if name in report["ratios"]:
            (low, high), (p99_low, p99_high) = (report["ratios"][name][k] for k in ("mean", "p99"))
            told.append(
                f"Of E2's mean latency {what} has {low:.2f} to {high:.2f} times as much, and of "
                f"its p99 {p99_low:.2f} to {p99_high:.2f} times."
            )
    if report["routed_per_s"]:
        per_s = " and ".join(
            f"{count:,} ({name})" for name, count in report["routed_per_s"].items()
        )
        told.append(f"Calls placed a second on 16 instances, with prompts of 500 blocks: {per_s}.")
    return told


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    cells = len(by_cell(report["rows"], "mean_s"))
    title = f"Mean latency over the best policy's, {cells} cells"
    console.print(pages.terminal(title, HEAD, _lines(report), left=1))
    if lines := _ablation(report):
        console.print(pages.terminal("Ablation", ("", "mean", "p99"), lines, left=1))
    for sentence in _sentences(report):
        console.print(sentence)


def plot(report: Report, path: Path) -> None:
    """Mean latency over the best policy's, by policy and cell."""
    plots.save(drawn(report), path)


def drawn(report: Report) -> Any:
    """That picture, not yet saved."""
    pyplot = plots.pyplot("routing")
    figure, axis = pyplot.subplots(figsize=(7.2, 3.2))
    cells, names = by_cell(report["rows"], "mean_s"), list(report["ratios"]["over_best"])
    for number, name in enumerate(names):
        some = [of[name] / min(of[other] for other in names) for of in cells.values()]
        axis.plot([number] * len(some), some, "o", markersize=3, alpha=0.5, color="#1b6e5a")
    axis.set_yscale("log")
    axis.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axis.set_ylabel("mean latency, x the best")
    return figure


def best_policies(report: Report) -> list[list[str]]:
    """By workload, how OURS does at each load beside the best policy, on both counts of instances:
    the geometric mean of mean latencies over the least one, and who has that."""
    loads: dict[str, list[list[dict[str, float]]]] = {}
    found = by_cell(report["rows"], "mean_s")
    for place in dict.fromkeys(name for name, _ in found):
        of = [found[place, rate] for name, rate in sorted(found) if name == place]
        at = loads.setdefault(place.partition("/")[0], [[] for _ in of])
        for cells, cell in zip(at, of, strict=True):
            cells.append(cell)
    compared = list(report["ratios"]["over_best"])
    return [[f"`{name}`", *(_best(cells, compared) for cells in at)] for name, at in loads.items()]


def _best(cells: list[dict[str, float]], compared: list[str]) -> str:
    means = {name: geometric_mean([cell[name] for cell in cells]) for name in compared}
    first = min(means, key=means.__getitem__)
    if first == OURS or OURS not in means:
        return f"`{first}`"
    return f"`{first}`, {means[OURS] / means[first]:.2f} x"


def _called(about: Report) -> str:
    return pages.called("routing", about, f"--queries {about['queries']}")


def map_of(report: Report) -> dict[str, str]:
    """What docs/routing.md says: which policy when. Of a sweep, not of a single trace."""
    about = report["about"]
    told = pages.prose(
        f"{_called(about)} replayed these workloads on 4 and on 8 simulated",
        f"instances, {about['seeds']} seeds of {about['queries']:,} calls. In each cell stands the",
        "policy with the lowest mean latency to the last token and, if that is another, how much",
        f"longer `{OURS}` took. It knows which calls are of one conversation, document or problem;",
        "none has a graph. For what that gives, see [agents at scale](benchmarks.md). What the",
        "workloads are is",
        "[here](../experiments/routing/README.md).",
    )
    head = ("workload", *(f"{100 * factor:g} % of saturation" for factor in FACTORS))
    lines = best_policies(report)
    if any(len(line) != len(head) for line in lines):
        return {}
    return {"routing.md": f"{told}\n\n{pages.table(head, lines)}"}


def section(report: Report, picture: Path) -> str:
    """What docs/benchmarks.md says."""
    about = report["about"]
    cells = len(by_cell(report["rows"], "mean_s"))
    parts = [
        "## Routers",
        pages.prose(
            f"{_called(about)} replays Preble's five workloads, and traces where",
            "there are data, on 4 and on 8 simulated H100 with a model of 8B each, at 0.5, 0.8 and",
            f"1.1 of what they sustain: {cells} cells, {about['seeds']} seeds of",
            f"{about['queries']:,} calls. Figures are mean latencies, to the last token, over",
            "those of the best policy of a cell. [More](../experiments/routing/README.md).",
        ),
        pages.table(HEAD, _lines(report)),
        f"![Mean latency over the best, by policy]({picture})",
    ]
    if lines := _ablation(report):
        told = "Tool use, mean of its cells, in the order of Preble's ablation:"
        parts += [told, pages.table(("", "mean", "p99"), lines)]
    return "\n\n".join([*parts, pages.prose(*_sentences(report))])
