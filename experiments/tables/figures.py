"""How the report is shown: beside the paper's figures, with what is missed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.tables import paper
from experiments.tables.goals import MET, MISSED, cells_of, factors, goals, of_paper
from experiments.tables.model import profile_of

HEAD: Final = (
    *("query", "data", "FIFO / none", "paper", "PSM / FIFO", "paper", "all / none", "paper"),
    *("groups / none", "ours / none"),
)
LEAST_HEAD: Final = ("query", "data", "all, s", "at least, s", "all / none", "at most", "paper")
HIT_HEAD: Final = ("query", "data", "FIFO", "PSM", "points")
LIVE_HEAD: Final = (
    *("query", "data", "rows", "FIFO / none", "PSM / FIFO", "all / none", "groups / none"),
    *("ours / none", "bound / none", "hits, FIFO", "hits, ours"),
)
FOUND_HEAD: Final = (
    "data", "rows", "prompt tokens", "cached_tokens", "the engine's counter", "explain, before",
)  # fmt: skip
GOAL_HEAD: Final = ("goal", "wanted", "seen", "")
ABLATION_HEAD: Final = ("ablation", "data", "case", "rows", "calls", "seconds", "ratio", "paper")
OVERHEAD_HEAD: Final = ("query", "data", "SQL, %", "embedding, %", "planning, %")


def lines(report: Report) -> list[list[str]]:
    """The factors beside the paper's."""
    found = []
    for cell, systems in cells_of(report).items():
        ours, theirs = factors(systems), paper.FACTORS[cell]
        found.append(
            [
                *cell,
                f"{ours['fifo']:.2f}",
                f"{theirs.fifo:.1f}",
                f"{ours['psm']:.2f}",
                "" if theirs.psm is None else f"{theirs.psm:.1f}",
                f"{ours['all']:.2f}",
                f"{theirs.all:.1f}",
                f"{ours['groups']:.2f}",
                f"{ours['ours']:.2f}",
            ]
        )
    return found


def least_s(row: Report, output: int) -> float:
    """What the simulated model takes at least for the calls of a row of the report, with answers of
    `output` tokens: each token that is not found is computed, each written one reads its context,
    and there are as many steps as those have room for, or as the writing takes with as many answers
    at once as the memory holds beside what they share."""
    llm = profile_of(cache=True).engines["llm"]
    assert llm.kv_blocks is not None
    calls, computed = row["calls"], row["prompt_tokens"] - row["hit_tokens"]
    written, context = calls * output, row["prompt_tokens"] / calls + output / 2
    at_once = llm.kv_blocks * llm.block_tokens / (computed / calls + output / 2)
    steps = max(computed / llm.max_batch, written / at_once)
    computing_s = llm.step.per_token_s * computed
    reading_s = llm.step.per_context_s * written * context
    return float(computing_s + reading_s + llm.step.base_s * steps)


def least_lines(report: Report) -> list[list[str]]:
    """How far all of the paper's is from what the model takes at least."""
    fitted_to = report.get("fitted", ())
    outputs = {(one["query"], one["data"]): one["output_tokens"] for one in fitted_to}
    found = []
    for cell, systems in cells_of(report).items():
        row, none_s = systems["psm_dedup_sql"], systems["no_cache"]["seconds"]
        least = least_s(row, outputs[cell])
        found.append(
            [
                *cell,
                f"{row['seconds']:,.1f}",
                f"{least:,.1f}",
                f"{none_s / row['seconds']:.2f}",
                f"{none_s / least:.2f}",
                f"{paper.FACTORS[cell].all:.1f}",
            ]
        )
    return found


def live_lines(report: Report, where: str = "live") -> list[list[str]]:
    """The factors on a real engine, and what bounds ours. where: live or local."""
    found = []
    rows = [row for row in report.get("bounds", ()) if row["where"] == where]
    bounds = {(row["query"], row["data"]): row for row in rows}
    for cell, systems in cells_of(report, where).items():
        ours, none, bound = factors(systems), systems["no_cache"], bounds[cell]
        found.append(
            [
                *cell,
                f"{none['rows']}",
                *(f"{ours[name]:.2f}" for name in ("fifo", "psm", "all", "groups", "ours")),
                f"{none['seconds'] / bound['bound_s']:.2f}",
                *(f"{systems[name]['hit_share']:.3f}" for name in ("fifo", "ours")),
            ]
        )
    return found


def in_process(report: Report) -> str:
    """What the engine in this process ran on."""
    machine = report.get("about", {}).get("local", {}).get("machine", {})
    on = machine.get("accelerator", machine.get("cpu"))
    return f"On the engine transformers in this process ({on}), times as fast"


def found_lines(report: Report) -> list[list[str]]:
    """Tokens that a real engine found, by who tells them."""
    return [
        [
            row["data"],
            f"{row['rows']}",
            f"{row['prompt_tokens']:,}",
            f"{row['cached_tokens']:,}",
            f"{row['engine_hit_tokens']:,}",
            f"{row['explained_cached_tokens']:,}",
        ]
        for row in report.get("hits", ())
    ]


def hit_lines(report: Report) -> list[list[str]]:
    """What of the prompts is found."""
    found = []
    for cell, systems in cells_of(report).items():
        fifo, psm = systems["fifo"]["hit_share"], systems["psm"]["hit_share"]
        found.append([*cell, f"{fifo:.3f}", f"{psm:.3f}", f"{100 * (psm - fifo):+.1f}"])
    return found


def ablation_lines(report: Report) -> list[list[str]]:
    """The ablations but for the hit shares, which have a table of their own."""
    return [
        [
            row["name"],
            row["data"],
            row["case"],
            f"{row['rows']:,}",
            f"{row['calls']:,}",
            f"{row['seconds']:,.1f}",
            f"{row['ratio']:.2f}",
            of_paper(row),
        ]
        for row in report["ablations"]
        if row["name"] != "hit_share"
    ]


def overhead_lines(report: Report) -> list[list[str]]:
    """What of a query's time is not the model's."""
    return [
        [
            row["query"],
            row["data"],
            f"{100 * row['sql_share']:.2f}",
            "" if row["embedding_share"] is None else f"{100 * row['embedding_share']:.2f}",
            f"{100 * row['plan_share']:.2f}",
        ]
        for row in report["overheads"]
    ]


def fitted(report: Report) -> str:
    """The one parameter, in a sentence."""
    told = ", ".join(
        f"{one['query']} on {one['data']} {one['output_tokens']}" for one in report["fitted"]
    )
    how = "given" if any(one["given"] for one in report["fitted"]) else "fitted to FIFO / none"
    return f"Tokens of an answer, {how}: {told}."


# --- where it is shown --------------------------------------------------------------------------


def _tables(report: Report) -> list[tuple[str, Sequence[str], list[list[str]], int]]:
    found: list[tuple[str, Sequence[str], list[list[str]], int]] = [
        ("Times as fast", HEAD, lines(report), 2),
        ("Share of the prompts' tokens that is found", HIT_HEAD, hit_lines(report), 2),
        ("All, and what its tokens take at least", LEAST_HEAD, least_lines(report), 2),
        ("On a real vLLM, times as fast", LIVE_HEAD, live_lines(report), 2),
        (in_process(report), LIVE_HEAD, live_lines(report, "local"), 2),
        ("Tokens that a real vLLM found", FOUND_HEAD, found_lines(report), 1),
        ("Ablations", ABLATION_HEAD, ablation_lines(report), 2),
        ("Beside the model", OVERHEAD_HEAD, overhead_lines(report), 2),
    ]
    return [one for one in found if one[2]]


def counted(report: Report) -> str:
    """How many goals are met."""
    all_ = goals(report)
    return f"{sum(one[-1] == MET for one in all_)} of {len(all_)} goals are met."


def show(report: Report, console: Console) -> None:
    """All tables, and the goals that are missed."""
    for title, head, body, left in _tables(report):
        console.print(pages.terminal(title, head, body, left=left))
    missed = [one[:-1] for one in goals(report) if one[-1] == MISSED]
    if missed:
        console.print(pages.terminal("Missed", GOAL_HEAD[:-1], missed, left=2))
    if report.get("fitted"):
        console.print(fitted(report))
    console.print(counted(report))


def plot(report: Report, path: Path) -> None:
    """Seconds of each query under each system, of those without a cache."""
    pyplot = plots.pyplot("tables")
    cells = cells_of(report)
    figure, axis = pyplot.subplots(figsize=(9.0, 3.4))
    systems = list(dict.fromkeys(name for one in cells.values() for name in one))
    for at, system in enumerate(systems):
        heights = [one[system]["seconds"] / one["no_cache"]["seconds"] for one in cells.values()]
        places = [k + at * 0.16 for k in range(len(cells))]
        colour = "#1b6e5a" if system == "ours" else plots.SHADES[at]
        axis.bar(places, heights, width=0.15, label=system, color=colour)
    middle = 0.16 * (len(systems) - 1) / 2
    axis.set_xticks(
        [k + middle for k in range(len(cells))], [f"{name}\n{data}" for name, data in cells]
    )
    axis.set_ylabel("time, of that without a cache")
    axis.legend(frameon=False, fontsize=7, ncols=5)
    plots.save(figure, path)


def _on_gpu(report: Report) -> list[str]:
    machine = report["about"].get("local", {}).get("machine", {})
    if not live_lines(report, "local"):
        return []
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return [
        "The table after it is of the engine `transformers` in this process, with a random model",
        f"of three billion parameters, on {machine.get('accelerator', machine['cpu'])}",
        f"({packages}), by the clock.",
    ]


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about: dict[str, Any] = report["about"]
    missed = [one[:-1] for one in goals(report) if one[-1] == MISSED]
    parts = [
        "## Queries over tables",
        pages.prose(
            f"{pages.called('tables', about)} runs the paper's queries over generated tables, with",
            "the planner as it is and a simulated model (Llama 2 7B on an L4). FIFO: prefixes are",
            "kept, rows and fields as they are. PSM: the paper's order of fields, and rows sorted.",
            "All: also dedup, and conditions without calls first. Groups: as all, with an order of",
            "fields for each group of rows, as the paper has it later. Ours: the planner with all",
            "its passes, and calls that say what may be answered. Q5 asks about passages",
            "that a search finds. On a real vLLM, a small random model on a CPU, times are of its",
            "engine's processor.",
            *_on_gpu(report),
            fitted(report),
        ),
        f"![Time by query and system]({picture.as_posix()})",
        *(pages.table(head, body) for _, head, body, _ in _tables(report)),
        counted(report),
    ]
    if missed:
        parts += ["Missed:", pages.table(GOAL_HEAD[:-1], missed)]
    parts.append(pages.foot("tables", about["machine"], "the model's times are simulated"))
    return "\n\n".join(parts)
