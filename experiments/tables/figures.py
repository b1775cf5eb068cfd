"""How the report is shown: beside the paper's figures, with what is missed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import pages, plots
from experiments.common.command import Report
from experiments.tables import paper
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
MET, MISSED = "met", "missed"
SLOWER: Final = 1.01
BEST_ORDER: Final = 1.01


def _cells(report: Report, where: str = "simulated") -> dict[tuple[str, str], dict[str, Report]]:
    found: dict[tuple[str, str], dict[str, Report]] = {}
    for row in report["rows"]:
        if row["where"] == where:
            found.setdefault((row["query"], row["data"]), {})[row["system"]] = row
    return found


def factors(systems: dict[str, Report]) -> dict[str, float]:
    """How many times as fast, of one query on one data set."""
    seconds = {name: row["seconds"] for name, row in systems.items()}
    return {
        "fifo": seconds["no_cache"] / seconds["fifo"],
        "psm": seconds["fifo"] / seconds["psm"],
        "all": seconds["no_cache"] / seconds["psm_dedup_sql"],
        "ours": seconds["no_cache"] / seconds["ours"],
        "groups": seconds["no_cache"] / seconds["groups"],
    }


def lines(report: Report) -> list[list[str]]:
    """The factors beside the paper's."""
    found = []
    for cell, systems in _cells(report).items():
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
    return computing_s + llm.step.per_context_s * written * context + llm.step.base_s * steps


def least_lines(report: Report) -> list[list[str]]:
    """How far all of the paper's is from what the model takes at least."""
    fitted_to = report.get("fitted", ())
    outputs = {(one["query"], one["data"]): one["output_tokens"] for one in fitted_to}
    found = []
    for cell, systems in _cells(report).items():
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


def live_lines(report: Report) -> list[list[str]]:
    """The factors on a real engine, and what bounds ours."""
    found = []
    bounds = {(row["query"], row["data"]): row for row in report.get("bounds", ())}
    for cell, systems in _cells(report, "live").items():
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
    for cell, systems in _cells(report).items():
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
            _theirs(row),
        ]
        for row in report["ablations"]
        if row["name"] != "hit_share"
    ]


def _theirs(row: Report) -> str:
    """The paper's ratio; "": it has none."""
    if row["name"] == "dedup":
        return f"{paper.DEDUP[row['data'], tuple(row['case'].split(', '))]:.1f}"
    if row["name"] == "filter_first":
        least, factor = paper.FILTER_FIRST[row["data"]]
        return f"{factor:.1f}" if row["case"] == _cheap_first(least) else ""
    if row["name"] == "column_order" and "(chosen)" in row["case"]:
        return f"{paper.COLUMN_ORDER[row['data']]:.1f}"
    return ""


def _cheap_first(share: float) -> str:
    return f"{share:g}, cheap first"


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


# --- goals ------------------------------------------------------------------------------------


def goals(report: Report) -> list[list[str]]:
    """What is wanted, what was seen, and whether it is met."""
    return [
        *_of_rows(report),
        *_of_ablations(report),
        *_of_overheads(report),
        *_of_live(report),
        *_of_hits(report),
    ]


def _goal(goal: str, wanted: str, seen: str, met: bool) -> list[str]:
    return [goal, wanted, seen, MET if met else MISSED]


def _of_rows(report: Report) -> list[list[str]]:
    found = []
    for cell, systems in _cells(report).items():
        where, ours, theirs = " on ".join(cell), factors(systems), paper.FACTORS[cell]
        for name, told in (("fifo", "FIFO / none"), ("psm", "PSM / FIFO"), ("all", "all / none")):
            wanted = getattr(theirs, name)
            if wanted is not None:
                met = abs(ours[name] / wanted - 1) <= paper.NEAR
                goal = f"{wanted:.1f} within {100 * paper.NEAR:.0f} %"
                found.append(_goal(f"{told}, {where}", goal, f"{ours[name]:.2f}", met))
        met = ours["ours"] >= theirs.all
        wanted = f"{theirs.all:.1f} at least"
        found.append(_goal(f"ours / none, {where}", wanted, f"{ours['ours']:.2f}", met))
        for name, told in (("psm_dedup_sql", "all"), ("groups", "groups")):
            slower = systems["ours"]["seconds"] / systems[name]["seconds"]
            seen = f"{100 * (slower - 1):+.1f} %"
            goal = f"ours against {told}, {where}"
            found.append(_goal(goal, "+1 % at most", seen, slower <= SLOWER))
        if cell[0] == "Q5":
            continue
        low, high = paper.HIT_POINTS
        points = systems["psm"]["hit_share"] - systems["fifo"]["hit_share"]
        wanted = f"{100 * low:.0f} to {100 * high:.0f} points"
        met = low <= points <= high
        found.append(_goal(f"hits of PSM less FIFO, {where}", wanted, f"{100 * points:.1f}", met))
    return found


def _of_ablations(report: Report) -> list[list[str]]:
    found = []
    rows = report["ablations"]
    for data in paper.COLUMNS:
        orders = [row for row in rows if row["name"] == "column_order" and row["data"] == data]
        chosen = next((row for row in orders if "(chosen)" in row["case"]), None)
        if chosen is not None:
            worse = chosen["seconds"] / min(row["seconds"] for row in orders)
            seen = f"{100 * (worse - 1):.1f} %"
            goal = f"chosen order against the fastest, {data}"
            found.append(_goal(goal, "1 % at most", seen, worse <= BEST_ORDER))
    for row in rows:
        if row["name"] == "dedup":
            wanted = float(_theirs(row))
            met = abs(row["ratio"] / wanted - 1) <= paper.DEDUP_NEAR
            goal = f"dedup of {row['case']}, {row['rows']:,} rows"
            near = f"{wanted:.1f} within {100 * paper.DEDUP_NEAR:.0f} %"
            found.append(_goal(goal, near, f"{row['ratio']:.2f}", met))
        elif row["name"] == "filter_first" and _theirs(row):
            wanted = float(_theirs(row))
            met = abs(row["ratio"] / wanted - 1) <= paper.FILTER_NEAR
            near = f"{wanted:.1f} within {100 * paper.FILTER_NEAR:.0f} %"
            goal = f"cheap filter first, {row['data']}"
            found.append(_goal(goal, near, f"{row['ratio']:.2f}", met))
        elif row["name"] == "batches" and row["data"]:
            if "batch_aware" in row["case"]:
                seen, met = f"{row['ratio']:.2f}", row["ratio"] >= 1
                goal = f"{row['case']} against sorted, {row['data']}"
                found.append(_goal(goal, "1 at least", seen, met))
        elif row["name"] == "batches":
            wanted_calls = 9 if row["case"].startswith("[1,1,1]") else 3
            met = row["calls"] == wanted_calls
            found.append(
                _goal(f"computed of {row['case']}", str(wanted_calls), str(row["calls"]), met)
            )
    return found


def _of_overheads(report: Report) -> list[list[str]]:
    found = []
    for row in report["overheads"]:
        for what, share, most in (
            ("SQL", row["sql_share"], paper.SQL_SHARE),
            ("embedding", row["embedding_share"], paper.EMBEDDING_SHARE),
        ):
            if share is not None:
                goal = f"{what}'s share, {row['query']} on {row['data']}"
                wanted = f"{100 * most:.1f} % at most"
                found.append(_goal(goal, wanted, f"{100 * share:.2f} %", share <= most))
    return found


def _of_live(report: Report) -> list[list[str]]:
    found = []
    cells = _cells(report, "live")
    for row in report.get("bounds", ()):
        systems = cells[row["query"], row["data"]]
        factor, wanted = factors(systems)["ours"], paper.LIVE[row["query"]]
        of_bound = row["seconds"] / row["bound_s"]
        found.append(
            _goal(
                f"ours / none, live, {row['query']} on {row['data']}",
                f"{wanted} at least, or {paper.NEAR_BOUND:g} of the bound at most",
                f"{factor:.2f}, and {of_bound:.2f} of the bound",
                factor >= wanted or of_bound <= paper.NEAR_BOUND,
            )
        )
    return found


def _of_hits(report: Report) -> list[list[str]]:
    found = []
    for row in report.get("hits", ()):
        for told, name, near in (
            ("the engine counts", "engine_hit_tokens", paper.COUNTED_NEAR),
            ("explain expects", "explained_cached_tokens", paper.EXPLAINED_NEAR),
        ):
            ratio = row[name] / row["cached_tokens"]
            goal = f"hits that {told} to cached_tokens, {row['data']}"
            wanted, met = f"1 within {100 * near:.0f} %", abs(ratio - 1) <= near
            found.append(_goal(goal, wanted, f"{ratio:.3f}", met))
    return found


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
    cells = _cells(report)
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
            "its passes, and calls that say what may be answered.",
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
