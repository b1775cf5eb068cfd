"""Sections of docs/benchmarks.md: each experiment writes its own, in the order of the page."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

from experiments.common import pages
from experiments.common.command import Experiment
from experiments.real_engines import pages as real_engines


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "benchmarks.md"


def order(page: Path) -> list[str]:
    """Names of the sections, as they stand."""
    lines = page.read_text().splitlines()
    return [line.split()[1][:-1] for line in lines if line.startswith("<!--") and "made by" in line]


def test_sections_stand_in_order_whoever_comes_first(page: Path) -> None:
    for name in ("sensitivity", "end_to_end", "fidelity", "ablation_graph"):
        pages.write(name, f"## {name}", page)
    assert order(page) == ["end_to_end", "ablation_graph", "sensitivity", "fidelity"]
    assert page.read_text().startswith("# Benchmarks")


def test_a_section_replaces_its_own_and_nothing_else(page: Path) -> None:
    for name in ("end_to_end", "unheard_of", "breakdown"):
        pages.write(name, f"## {name}\n\nold", page)
    page.write_text(page.read_text() + "\nBy hand.\n")
    before = page.read_text()
    pages.write("end_to_end", "## end_to_end\n\nnew", page)
    assert page.read_text() == before.replace("## end_to_end\n\nold", "## end_to_end\n\nnew")
    pages.write("end_to_end", "## end_to_end\n\nold", page)
    assert page.read_text() == before


def test_tables(page: Path) -> None:
    assert pages.table(("a", "b"), [(1, "x")]) == "| a | b |\n| --- | --- |\n| 1 | x |"


def test_tables_for_the_terminal_never_break_words() -> None:
    found = pages.terminal("Times", ("name", "s"), [("a-rather-long-name", 1.5), ("b", 10)], left=1)
    console = Console(width=30)
    with console.capture() as capture:
        console.print(found)
    lines = capture.get().splitlines()
    assert "Times" in lines[0]
    assert [line.strip("│ ").split() for line in lines if "│" in line] == [
        ["a-rather-long-name", "│", "1.5"],
        ["b", "│", "10"],
    ]
    assert lines[4].index("1.5") == lines[5].index("10") - 1, "numbers end below one another"


OWN_PAGE = "step_model"
"""Its table is in its README.md, as its own test says."""
REPORTS = sorted(pages.DOCS.parent.glob("experiments/*/report.json"))
KEPT = [file for file in REPORTS if file.parent.name != OWN_PAGE]


@pytest.mark.parametrize("report", KEPT, ids=lambda file: file.parent.name)
def test_the_page_says_what_the_kept_report_does(report: Path) -> None:
    name = report.parent.name
    found = json.loads(report.read_text())
    if name == "real_engines":
        section = real_engines.section(found, pages.picture(name))
    else:
        experiment: Experiment = import_module(f"experiments.{name}.__main__").EXPERIMENT
        section = experiment.section(found, pages.picture(name))
    assert f"{pages.begin(name)}\n{section}\n{pages.end(name)}" in pages.PAGE.read_text()
    assert [file.name for file in report.parent.glob("*.svg")] == [], "it is in docs/images"
