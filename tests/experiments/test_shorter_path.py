"""Steps that shorten the path: what differs between the two ways, and what the report holds."""

from __future__ import annotations

import json
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.common.simulate import alone
from experiments.shorter_path import __main__ as shorter_path
from experiments.shorter_path.steps import STEPS, Step

pytestmark = pytest.mark.slow

BY_KEY = {(step.key, step.app): step for step in STEPS}


def latency(step: Step, after: bool) -> float:
    way = step.after if after else step.before
    return alone(way.system(), way.setting(step.app, 1, 0, None), way.one(step.app))


@pytest.mark.parametrize("step", STEPS, ids=lambda s: f"{s.key}-{s.app}")
def test_the_ways_differ_in_one_thing(step: Step) -> None:
    names = [f.name for f in fields(step.before)]
    differ = [n for n in names if getattr(step.before, n) != getattr(step.after, n)]
    assert len(differ) == 1


@pytest.mark.parametrize(
    ("key", "app", "least"),
    [
        ("documents", "naive-rag", 1.3),
        ("prefixes", "search-agent", 1.02),
        ("reranking", "advanced-rag", 1.005),
        ("reranking, known", "advanced-rag", 1.05),
        ("rounds", "advanced-rag", 1.02),
        ("speculation", "search-agent", 1.2),
        ("guessed prefix", "search-agent", 1.1),
    ],
)
def test_one_query_is_faster_with_the_step(key: str, app: str, least: float) -> None:
    step = BY_KEY[key, app]
    assert latency(step, after=False) > least * latency(step, after=True)


@pytest.mark.nightly
def test_the_report_has_every_step_at_every_load(tmp_path: Path) -> None:
    shorter_path.main(["--quick", "--queries", "3", "--workers", "1", "--out", str(tmp_path)])
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    assert len(report["rows"]) == 3 * len(STEPS)
    for row in report["rows"]:
        assert row["speedup"] == pytest.approx(row["without_s"] / row["with_s"], abs=1e-3)
    console = Console(file=StringIO(), width=100, record=True)
    shorter_path.EXPERIMENT.table(report, console)
    assert "guessed prefix" in console.export_text()
    section = shorter_path.EXPERIMENT.section(report, Path("images/x.svg"))
    assert "| documents kept in the collection | naive-rag |" in section
    assert (tmp_path / "shorter_path.svg").read_text().startswith("<?xml")
