"""Load: what the server promises of it, held against the measurement of experiments/serving."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from experiments.serving import __main__ as serving
from tests.soak.forms import Figures

Goal = tuple[str, float, float]
"""Its name, what was seen, and the most that it may be."""
GOOD: dict[str, Any] = {
    "crowd": {"null": {"queries_per_s": 1000.0, "errors": {}}},
    "added": {"added_ms": 1.0},
    "overload": [
        {"app": app, "load": load, "of_peak": peak, "of_calm_p99": p99, "refusal_p99_ms": ms}
        for app, peak, p99, ms in (("waiting", 0.9, 2.0, 50.0), ("naive-rag", 0.5, 9.0, 900.0))
        for load in (0.8, 10.0)
    ],
}


def goals(report: dict[str, Any]) -> list[Goal]:
    """All five of a report. What must be large is given as how much it is short of that."""
    rows = [row for row in report["overload"] if row["app"] == "waiting"]
    flooded = max(rows, key=lambda row: row["load"])
    return [
        ("queries a second, short of 1,000", 1000 - report["crowd"]["null"]["queries_per_s"], 0),
        ("ms added to a query", report["added"]["added_ms"], 1.0),
        ("goodput at ten times too many, short of 0.9", 0.9 - flooded["of_peak"], 0),
        ("p99 of those let in, to that at 0.8", flooded["of_calm_p99"], 2.0),
        ("p99 of refusals in ms", flooded["refusal_p99_ms"], 50.0),
    ]


def missed(report: dict[str, Any]) -> list[Goal]:
    return [goal for goal in goals(report) if goal[1] > goal[2]]


def test_a_goal_that_is_missed_is_seen() -> None:
    assert missed(GOOD) == []
    for number, (path, name, bad) in enumerate(
        (
            (lambda report: report["crowd"]["null"], "queries_per_s", 999.0),
            (lambda report: report["added"], "added_ms", 1.01),
            (lambda report: report["overload"][1], "of_peak", 0.89),
            (lambda report: report["overload"][1], "of_calm_p99", 2.01),
            (lambda report: report["overload"][1], "refusal_p99_ms", 50.1),
        )
    ):
        worse = deepcopy(GOOD)
        path(worse)[name] = bad
        assert missed(worse) == [goals(worse)[number]], name


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_load(figures: Figures, tmp_path: Path) -> None:
    serving.main(["--out", str(tmp_path)])
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    figures("load", {key: report[key] for key in ("crowd", "added", "overload", "anew")})
    for row in report["overload"]:
        if row["app"] != "waiting":  # whose engines need the processor that its clients use
            print(row)
    assert [row["errors"] for row in report["overload"]] == [{}] * len(report["overload"])
    assert missed(report) == []
