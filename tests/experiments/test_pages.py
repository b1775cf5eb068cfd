"""Sections of docs/benchmarks.md: each experiment writes its own, in the order of the page."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from experiments.baselines.knowledge import LENDER
from experiments.baselines.systems import CROSS, SYSTEMS
from experiments.common import pages
from experiments.common.command import Experiment
from experiments.common.simulate import FINE, GROWS, LOADS, SUSTAINED_SEEDS
from experiments.common.testbed import SIZES, testbed
from experiments.end_to_end import figures
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


def test_a_busy_machine_is_told() -> None:
    quiet, busy = (
        pages.foot("edge", {"cpu": "C", "cores": 2, "load_1min": load}) for load in (4.0, 4.1)
    )
    assert quiet.startswith("C, load 4.0 at the end.\n[More]")
    assert "Far more wanted to run than its 2 cores could" in busy


def test_tables(page: Path) -> None:
    assert pages.table(("a", "b"), [(1, "x")]) == "| a | b |\n| --- | --- |\n| 1 | x |"


def test_tables_for_the_terminal_never_break_words() -> None:
    found = pages.terminal("Times", ("name", "s"), [("a-rather-long-name", 1.5), ("b", 10)], left=1)
    console = Console(width=30)
    with console.capture() as capture:
        console.print(found)
    lines = [line for line in capture.get().splitlines() if line.strip()]
    assert "Times" in lines[0]
    assert [line.split() for line in lines[-2:]] == [["a-rather-long-name", "1.5"], ["b", "10"]]
    assert lines[-2].index("1.5") == lines[-1].index("10") - 1, "numbers end below one another"


OWN_PAGE = ("decoding", "house", "memory", "mutants", "step_model", "text_to_sql")
"""Their tables are in their README.md, as their own tests say."""
REPORTS = sorted(pages.DOCS.parent.glob("experiments/*/report.json"))
KEPT = [file for file in REPORTS if file.parent.name not in OWN_PAGE]


@pytest.mark.parametrize("report", KEPT, ids=lambda file: file.parent.name)
def test_the_page_says_what_the_kept_report_does(report: Path) -> None:
    name = report.parent.name
    found = json.loads(report.read_text())
    if name == "real_engines":
        section = real_engines.section(found, pages.picture(name))
    else:
        experiment: Experiment = import_module(f"experiments.{name}.__main__").EXPERIMENT
        section = experiment.section(found, pages.picture(name))
        for page, told in experiment.elsewhere(found).items():
            marked = f"{pages.begin(name)}\n{told}\n{pages.end(name)}"
            assert marked in (pages.DOCS / page).read_text()
    assert f"{pages.begin(name)}\n{section}\n{pages.end(name)}" in pages.PAGE.read_text()
    assert [file.name for file in report.parent.glob("*.svg")] == [], "it is in docs/images"


# --- the experiments' own pages -------------------------------------------------------------

SIMULATED = (
    *("end_to_end", "baselines", "common", "motivation"),
    *("ablation_graph", "ablation_scheduling", "shorter_path", "sensitivity"),
)
"""Their results stand in docs/benchmarks.md, which is made from their reports, and nowhere else."""


def readme(name: str) -> str:
    """The page of an experiment, as one line."""
    text = (pages.DOCS.parent / "experiments" / name / "README.md").read_text()
    return " ".join(text.split())


@pytest.mark.parametrize("name", SIMULATED)
def test_no_page_of_a_simulated_experiment_states_a_result(name: str) -> None:
    result = re.compile(
        r"\d\.\d+ (?:to \d\.\d+ )?(?:times|x) (?:lower|less|faster|slower|later)"
        r"|(?:gains?|gets?|saves?|loses?|ahead by|behind by|faster by) (?:up to )?\d"
        r"|(?:are|is) reached|nowhere slower|as it is shipped, \d"
    )
    assert result.findall(readme(name)) == []


def test_pages_say_how_it_is_measured_as_the_code_does() -> None:
    loads = " and ".join(", ".join(f"{100 * load:g}" for load in LOADS).rsplit(", ", 1)) + " %"
    words = {5: "five", 2: "two"}
    for name in ("end_to_end", "ablation_graph"):
        experiment: Experiment = import_module(f"experiments.{name}.__main__").EXPERIMENT
        (full, quick), (seeds, few) = experiment.queries, experiment.seeds
        assert loads in readme(name)
        assert f"{full:,} queries and {words[seeds]} seeds" in readme(name)
        assert f"`--quick`: {quick} and {words[few]}" in readme(name)
        assert all(f'"{key}"' in readme(name) for key in experiment.told)
    assert loads in readme("ablation_scheduling")
    common = readme("common")
    assert f"over {SUSTAINED_SEEDS} seeds".replace("3", "three") in common
    assert f"at most {GROWS:g} times that of the middle third" in common
    assert f"by bisection, to {FINE - 1:.0%}".replace("%", " %") in common


def test_every_system_is_described_with_what_is_simulated() -> None:
    text = readme("baselines")
    assert [name for name in SYSTEMS if f"`{name}`" not in text] == []
    bed = testbed("13b")
    assert f"at most {bed.wait_s:g} s for more (at the database {bed.wait_store_s:g} s)" in text
    lent = ", ".join(f"{LENDER[f'paper-{llm}'].upper()} for {llm.upper()}" for llm in SIZES)
    assert f"({lent})" in text


# --- decisions ------------------------------------------------------------------------------


def decided(number: str) -> str:
    """The page of a decision, as one line."""
    (page,) = (pages.DOCS / "decisions").glob(f"{number}-*.md")
    return " ".join(page.read_text().split())


def kept(name: str) -> dict[str, Any]:
    report = pages.DOCS.parent / "experiments" / name / "report.json"
    return cast("dict[str, Any]", json.loads(report.read_text()))


def test_why_nothing_more_goes_ahead_is_what_breakdown_measured() -> None:
    shares: dict[str, list[float]] = {}
    for row in kept("breakdown")["rows"]:
        shares.setdefault(row["runtime"], []).append(100 * row["communication"])
    text = decided("0037")
    assert f"at most {max(shares['local']):.2f} % of the latency where they run in one" in text
    assert f"at most {max(shares['Ray actors']):.2f} % where each is an actor of Ray" in text


def test_what_wrong_times_cost_is_what_end_to_end_measured() -> None:
    rows = figures.by_place(kept("end_to_end")["rows"])
    above = {
        (measure, known, place): 100 / figures.ratio(rows, place, CROSS.name, known, measure) - 100
        for place in figures.places(rows)
        if place[0] == "search-agent"
        for known in ("teola_double", "teola_half")
        for measure in figures.MEASURES
    }
    worst = above.pop(("p99_s", "teola_half", ("search-agent", "7b", 0.5)))
    mean, p99 = (
        max(more for (measure, *_), more in above.items() if measure == name)
        for name in figures.MEASURES
    )
    text = decided("0012")
    assert f"its mean is at most {mean:.1f} % above that of LlamaDistPC's graph" in text
    assert f"its 99th percentile at most {p99:.1f} %, but for 7B at 50 %" in text
    assert f"where with half the times it is {worst:.1f} %" in text
