"""What the experiment was built to show, and what a report says of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, Final, NamedTuple

from experiments.hexgen.cases import OWN, SAME, STEADY
from experiments.hexgen.clusters import BUDGET
from experiments.hexgen.policies import OURS, RR_FCFS, SWEEP, TUNED, WB_FCFS, WB_PQ
from teola.runtime.tuning.tuner import TunerOptions

Row = Mapping[str, Any]
Cell = tuple[str, str, float]
Found = tuple[str, bool]
"""What was measured, and whether it is what was wanted."""
Judge = Callable[[list[Row], list[Row], Row], Found | None]
"""Of bursts, steady runs and the whole report; None: what it compares did not run."""
FIGURES: Final = ("slo95", "slo99", "p95", "mean", "throughput", "attained")
GEOMETRIC: Final = frozenset({"slo95", "slo99", "p95", "mean", "throughput"})
HIGHER: Final = frozenset({"throughput", "attained"})
"""Figures of which more is better."""
SHORT: Final = 512
"""Prompt tokens of a step of an engine whose steps are short anyway."""
WINDOWS_S: Final = 2 * TunerOptions().window_s


# --- means over cells and seeds -------------------------------------------------------------


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
    return [
        mine[c][name] / theirs[c][name] if name in HIGHER else theirs[c][name] / mine[c][name]
        for c in mine
    ]


def best_alpha(rows: Sequence[Row]) -> str | None:
    """The fixed alpha with the least slo95, if any ran."""
    found = means(rows)
    ran = [name for name in (*SWEEP, WB_PQ) if name in found]
    return min(ran, key=lambda name: found[name]["slo95"], default=None)


def worst(rows: Sequence[Row], name: str) -> tuple[float, str] | None:
    """The least gain of ours in any cell, and against whom."""
    ran = by_cell(rows)
    others = [other for other in ran if other != OURS]
    if OURS not in ran or not others:
        return None
    return min((min(gains(rows, OURS, other, name)), other) for other in others)


# --- the goals ------------------------------------------------------------------------------


class Goal(NamedTuple):
    """what, wanted: in words."""

    what: str
    wanted: str
    found: Judge


def _range(one: str, other: str, name: str, least: float, somewhere: float) -> Judge:
    """In each cell at least `least`, and in one at least `somewhere`."""

    def found(bursts: list[Row], steady: list[Row], report: Row) -> Found | None:
        if not {one, other} <= by_cell(bursts).keys():
            return None
        all_ = gains(bursts, one, other, name)
        return f"{min(all_):.2f} to {max(all_):.2f}", min(all_) >= least and max(all_) >= somewhere

    return found


def _worst(name: str, least: float) -> Judge:
    """Ours in each cell against every other policy."""

    def found(bursts: list[Row], steady: list[Row], report: Row) -> Found | None:
        if (least_gain := worst(bursts, name)) is None:
            return None
        gain, against = least_gain
        return f"at worst {gain:.3f} ({against})", gain >= least

    return found


def _mean(rows: list[Row], one: str, other: str | None, name: str, least: float) -> Found | None:
    """The geometric mean of the gains over all cells."""
    if other is None or not {one, other} <= by_cell(rows).keys():
        return None
    gain = geometric(gains(rows, one, other, name))
    return f"{gain:.3f} ({other})", gain >= least


def _every_mean(name: str) -> Judge:
    """Ours in the geometric mean against every other policy."""

    def found(bursts: list[Row], steady: list[Row], report: Row) -> Found | None:
        ran = by_cell(bursts)
        others = [other for other in ran if other != OURS]
        if OURS not in ran or not others:
            return None
        gain, against = min((geometric(gains(bursts, OURS, o, name)), o) for o in others)
        return f"at worst {gain:.3f} ({against})", gain >= 1.0

    return found


def _twice(bursts: list[Row], steady: list[Row], report: Row) -> Found | None:
    found = means(bursts)
    if not {OURS, WB_PQ} <= found.keys():
        return None
    mine, theirs = (found[name]["attained"] for name in (OURS, WB_PQ))
    return f"{mine:.2f} against {theirs:.2f}", mine >= 2 * theirs


def _equal(bursts: list[Row], steady: list[Row], report: Row) -> Found | None:
    other = best_alpha(steady)
    if other is None or OURS not in by_cell(steady):
        return None
    all_ = gains(steady, OURS, other, "throughput")
    near = all(abs(gain - 1) <= 0.02 for gain in all_)
    return f"{min(all_):.3f} to {max(all_):.3f} ({other})", near


def _answered(bursts: list[Row], steady: list[Row], report: Row) -> Found | None:
    after = [
        one["since_middle_s"]
        for one in report.get("tuning", ())
        if one["kind"] == "change" and one["since_middle_s"] > 0
    ]
    return (f"{min(after):.0f} s", min(after) <= WINDOWS_S) if after else None


GOALS: Final[Mapping[tuple[str, int], Sequence[Goal]]] = {
    (OWN, BUDGET): (
        Goal(
            "`wb_pq` against `rr_fcfs`, slo95",
            "1.67 somewhere, nowhere below 1.0",
            _range(WB_PQ, RR_FCFS, "slo95", 1.0, 1.67),
        ),
        Goal(
            "the same, throughput",
            "1.75 somewhere, nowhere below 1.0",
            _range(WB_PQ, RR_FCFS, "throughput", 1.0, 1.75),
        ),
        Goal(
            "`wb_pq` against `wb_fcfs`, slo95",
            "0.97 everywhere",
            _range(WB_PQ, WB_FCFS, "slo95", 0.97, 0.97),
        ),
        Goal(
            "`ours` against every other policy, slo95",
            "1.0 in every cell",
            _worst("slo95", 1.0),
        ),
        Goal(
            "`ours` against the best fixed alpha, slo95",
            "1.20 in the mean",
            lambda bursts, steady, report: _mean(bursts, OURS, best_alpha(bursts), "slo95", 1.2),
        ),
        Goal(
            "`ours` against the tuned alpha, slo95",
            "1.20 in the mean",
            lambda bursts, steady, report: _mean(bursts, OURS, TUNED, "slo95", 1.2),
        ),
        Goal("`ours`, slo99", "nowhere behind", _worst("slo99", 1.0)),
        Goal("`ours`, mean", "nowhere behind", _worst("mean", 1.0)),
        Goal("`ours` against `wb_pq`, attained", "twice", _twice),
        Goal("`ours`, throughput", "0.90 of the best in every cell", _worst("throughput", 0.9)),
        Goal(
            "`ours` against the best fixed alpha, slo95, steady",
            "1.05 in the mean",
            lambda bursts, steady, report: _mean(steady, OURS, best_alpha(steady), "slo95", 1.05),
        ),
        Goal("the same, throughput", "equal within 2 % in every cell", _equal),
        Goal(
            "tuned alpha against alpha 0, slo95, steady",
            "1.0 in the mean",
            lambda bursts, steady, report: _mean(steady, TUNED, SWEEP[0], "slo95", 1.0),
        ),
        Goal(
            "tuned alpha against the best fixed one, slo95, steady",
            "within 8 % in the mean",
            lambda bursts, steady, report: _mean(
                steady, TUNED, best_alpha(steady), "slo95", 1 / 1.08
            ),
        ),
        Goal(
            "tuned alpha against alpha 0, slo95, bursts",
            "within 3 % in the mean",
            lambda bursts, steady, report: _mean(bursts, TUNED, SWEEP[0], "slo95", 1 / 1.03),
        ),
        Goal("tuned again after a change of rate", f"within {WINDOWS_S:.0f} s", _answered),
    ),
    (SAME, BUDGET): (
        Goal(
            "`ours` against every other policy, p95",
            "1.0 in the mean",
            _every_mean("p95"),
        ),
        Goal("the same, mean", "1.0 in the mean", _every_mean("mean")),
    ),
    (OWN, SHORT): (
        Goal(
            "`ours` against `wb_pq`, slo95",
            "1.03 in the mean",
            lambda bursts, steady, report: _mean(bursts, OURS, WB_PQ, "slo95", 1.03),
        ),
    ),
}
"""By the objective and the budget of a report."""
HEAD: Final = ("goal", "wanted", "measured", "")


def lines(report: Row) -> list[list[str]]:
    """Of the table of goals."""
    settings, rows = report["settings"], report["rows"]
    bursts, steady = of_bursts(rows), of_steady(rows)
    found = []
    for goal in GOALS.get((settings["objective"], settings["budget"]), ()):
        measured = goal.found(bursts, steady, report)
        told = ("not run", "") if measured is None else (measured[0], _word(measured[1]))
        found.append([goal.what, goal.wanted, *told])
    return found


def _word(met: bool) -> str:
    return "met" if met else "missed"
