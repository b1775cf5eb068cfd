"""The ablation of batching policies in small: what its report holds, and the tree by hand."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.ablation_scheduling import __main__ as ablation
from experiments.ablation_scheduling import tree
from experiments.ablation_scheduling.measure import (
    COMPARED,
    INSTRUCTIONS,
    ONE,
    POLICIES,
    QUICK_LOADS,
)
from experiments.common.workloads import APPS
from teola.schedule.plan import Plan

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ablation")
    ablation.main(["--quick", "--workers", "1", "--queries", "30", "--out", str(folder)])
    assert (folder / "ablation_scheduling.svg").read_text().startswith("<?xml")
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_every_policy_is_measured_at_every_load(report: dict[str, Any]) -> None:
    places = len(APPS) * len(INSTRUCTIONS) * (1 + len(QUICK_LOADS))
    assert len(report["rows"]) == places * len(POLICIES)
    assert len(report["gains"]) == places * len(COMPARED)
    assert all(0 < row["mean_s"] <= row["p99_s"] for row in report["rows"])


def test_a_gain_is_the_ratio_of_two_means(report: dict[str, Any]) -> None:
    means = {(r["app"], r["instructions"], r["load"], r["policy"]): r for r in report["rows"]}
    for gain in report["gains"]:
        place = gain["app"], gain["instructions"], gain["load"]
        mine, other = means[*place, gain["policy"]], means[*place, gain["against"]]
        assert gain["mean"] == pytest.approx(other["mean_s"] / mine["mean_s"], abs=1e-3)


def test_critical_path_is_never_slower_than_topology(report: dict[str, Any]) -> None:
    gains = [g["mean"] for g in report["gains"] if g["policy"] == "critical_path"]
    assert min(gains) >= 0.99
    assert max(gains) >= 1.1


def test_the_tree_gains_what_the_arithmetic_says(report: dict[str, Any]) -> None:
    """7.28 s and 5.11 s (tests/golden/test_batching_examples.py works them out)."""
    alone = {row["policy"]: row["mean_s"] for row in report["tree"] if row["load"] == ONE}
    assert alone.pop("one call after the other") == pytest.approx(7.28, abs=0.01)
    assert list(alone.values()) == pytest.approx([5.11] * len(POLICIES), abs=0.01)


def test_one_by_one_is_a_chain() -> None:
    plan = Plan(tree.one_by_one(tree._tree()))
    calls = [i for i, members in enumerate(plan.members) if members]
    assert len(calls) == tree.LEAVES + 1
    waiting = [plan.indegree[i] for i in calls]
    assert waiting[0] == 0
    assert min(waiting[1:]) >= 1


def test_what_is_shown(report: dict[str, Any]) -> None:
    console = Console(width=100, file=StringIO())
    ablation.EXPERIMENT.table(report, console)
    assert "│ advanced-rag │ one query │" in console.file.getvalue()  # type: ignore[attr-defined]
    section = ablation.EXPERIMENT.section(report, Path("images/x.svg"))
    assert "one call after the other takes 7.28 s" in section
    assert f"| {APPS[0]} | cached | one query |" in section
