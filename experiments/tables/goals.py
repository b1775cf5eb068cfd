"""What the figures are held to, and which of it is met."""

from __future__ import annotations

from typing import Final

from experiments.common.command import Report
from experiments.tables import paper

MET, MISSED = "met", "missed"
SLOWER: Final = 1.01
BEST_ORDER: Final = 1.01


def cells_of(report: Report, where: str = "simulated") -> dict[tuple[str, str], dict[str, Report]]:
    """Rows of the report by query and data set, and by system."""
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


def of_paper(row: Report) -> str:
    """The paper's ratio; "": it has none."""
    if row["name"] == "dedup":
        return f"{paper.DEDUP[row['data'], tuple(row['case'].split(', '))]:.1f}"
    if row["name"] == "filter_first":
        least, factor = paper.FILTER_FIRST[row["data"]]
        return f"{factor:.1f}" if row["case"] == f"{least:g}, cheap first" else ""
    if row["name"] == "column_order" and "(chosen)" in row["case"]:
        return f"{paper.COLUMN_ORDER[row['data']]:.1f}"
    return ""


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
    for cell, systems in cells_of(report).items():
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
            wanted = float(of_paper(row))
            met = abs(row["ratio"] / wanted - 1) <= paper.DEDUP_NEAR
            goal = f"dedup of {row['case']}, {row['rows']:,} rows"
            near = f"{wanted:.1f} within {100 * paper.DEDUP_NEAR:.0f} %"
            found.append(_goal(goal, near, f"{row['ratio']:.2f}", met))
        elif row["name"] == "filter_first" and of_paper(row):
            wanted = float(of_paper(row))
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
    for row in report.get("bounds", ()):
        systems = cells_of(report, row["where"])[row["query"], row["data"]]
        factor, wanted = factors(systems)["ours"], paper.LIVE[row["query"]]
        of_bound = row["seconds"] / row["bound_s"]
        found.append(
            _goal(
                f"ours / none, {row['where']}, {row['query']} on {row['data']}",
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
