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
)
from experiments.common.simulate import LOADS
from experiments.common.workloads import APPS
from teola.graph import Op

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ablation")
    ablation.main(
        ["--quick", "--workers", "1", "--queries", "3", "--seeds", "1", "--out", str(folder)]
    )
    assert (folder / "ablation_scheduling.svg").read_text().startswith("<?xml")
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


@pytest.mark.nightly
def test_every_policy_is_measured_at_every_load(report: dict[str, Any]) -> None:
    places = len(APPS) * len(INSTRUCTIONS) * (1 + len(LOADS))
    assert len(report["rows"]) == places * len(POLICIES)
    assert len(report["gains"]) == places * len(COMPARED)
    assert all(0 < row["mean_s"] <= row["p99_s"] for row in report["rows"])


@pytest.mark.nightly
def test_a_gain_is_the_ratio_of_two_means(report: dict[str, Any]) -> None:
    means = {(r["app"], r["instructions"], r["load"], r["policy"]): r for r in report["rows"]}
    for gain in report["gains"]:
        place = gain["app"], gain["instructions"], gain["load"]
        mine, other = means[*place, gain["policy"]], means[*place, gain["against"]]
        assert gain["mean"] == pytest.approx(other["mean_s"] / mine["mean_s"], abs=1e-3)


@pytest.mark.nightly
def test_the_tree_gains_what_the_arithmetic_says(report: dict[str, Any]) -> None:
    """7.28 s and 5.11 s (tests/golden/test_batching_examples.py works them out). Two at a time:
    four rounds and the merge, in which the second prompt waits for the first."""
    alone = {
        row["policy"]: row["mean_s"]
        for row in report["tree"]
        if row["load"] == ONE and row["profile"] == tree.OWN.name
    }
    assert alone.pop("one call after the other") == pytest.approx(7.28, abs=0.01)
    assert alone.pop("two calls at a time") == pytest.approx(6.04, abs=0.01)
    assert list(alone.values()) == pytest.approx([5.11] * len(POLICIES), abs=0.01)


@pytest.mark.parametrize(("together", "waiting"), [(1, [0] + [1] * 7), (2, [0, 0] + [2] * 6)])
def test_calls_in_turn_wait_for_those_before(together: int, waiting: list[int]) -> None:
    made = tree.in_turn(tree._tree(), together)
    heads = [p for p in made.primitives if p.op is Op.PREFILLING]
    assert [len(head.after) for head in heads[:-1]] == waiting


@pytest.mark.nightly
def test_what_is_shown(report: dict[str, Any]) -> None:
    console = Console(width=120, file=StringIO())
    ablation.EXPERIMENT.table(report, console)
    shown = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert any(line.split()[:3] == ["advanced-rag", "one", "query"] for line in shown)
    section = ablation.EXPERIMENT.section(report, Path("images/x.svg"))
    assert f"With the times {tree.OWN.name}: 1.42 times less" in " ".join(section.split())
    assert f"| {APPS[0]} | cached | one query |" in section
