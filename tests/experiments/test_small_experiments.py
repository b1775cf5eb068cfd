"""The other simulated experiments in small: what their reports hold, and that they repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.ablation_graph import __main__ as ablation
from experiments.ablation_graph.measure import CACHES, GROUPS, ONE, loosened
from experiments.common import command, workloads
from experiments.common.simulate import LOADS
from experiments.common.testbed import testbed
from experiments.common.workloads import APPS
from experiments.motivation import __main__ as motivation
from experiments.motivation.figures import lanes
from experiments.sensitivity import __main__ as sensitivity
from experiments.sensitivity.measure import ranges
from experiments.sensitivity.parameters import PARAMETERS
from teola.graph import Op
from teola.passes import PIPELINE

pytestmark = pytest.mark.slow


def run(main: Any, folder: Path, *arguments: str) -> dict[str, Any]:
    main(["--quick", "--workers", "1", "--out", str(folder), *arguments])
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def shown(experiment: command.Experiment, report: dict[str, Any], width: int = 160) -> str:
    """What the terminal and the page show."""
    console = Console(width=width, record=True, quiet=True)
    experiment.table(report, console)
    return console.export_text() + experiment.section(report, Path("images/x.svg"))


# --- motivation -----------------------------------------------------------------------------


def test_modules_of_a_chain_add_up_to_its_latency(tmp_path: Path) -> None:
    report = run(motivation.main, tmp_path)
    for key in {(one["app"], one["llm"]) for one in report["shares"]}:
        shares = [one["share"] for one in report["shares"] if (one["app"], one["llm"]) == key]
        assert sum(shares) == pytest.approx(1.0, abs=1e-3)
    example = report["example"]
    assert example["llamadist_po_s"] > 1.2 * example["teola_s"]
    ends = {b["system"]: 0.0 for b in example["timeline"]}
    for bar in example["timeline"]:
        ends[bar["system"]] = max(ends[bar["system"]], bar["end_s"])
    assert ends == {n: pytest.approx(example[f"{n}_s"], abs=1e-3) for n in ends}
    assert "| paper | 4.10 | 2.40 | 1.71 |" in shown(motivation.EXPERIMENT, report)
    assert (tmp_path / "motivation.svg").read_text().startswith("<?xml")


def test_bars_that_overlap_get_lanes_of_their_own() -> None:
    times = [(0.0, 2.0), (1.0, 3.0), (2.0, 4.0), (2.5, 3.0), (4.0, 5.0)]
    bars = [{"start_s": start, "end_s": end} for start, end in times]
    assert lanes(bars) == [0, 1, 0, 2, 0]


# --- ablation -------------------------------------------------------------------------------


@pytest.mark.nightly
def test_ablation_leaves_out_every_pass_at_every_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run(ablation.main, tmp_path, "--queries", "3", "--seeds", "1", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told == {"rows": report["rows"]}
    places = {(row["app"], row["pass"], row["load"]) for row in told["rows"]}
    apps = {app + kept for app in APPS for kept in CACHES}
    assert places == {(app, name, load) for app in apps for name in PIPELINE for load in LOADS}
    assert len(told["rows"]) == len(places)
    assert all(set(row) == {"app", "pass", "load", "ratio"} for row in told["rows"])
    one = {
        g["variant"]: g["speedup"]
        for g in report["groups"]
        if (g["app"], g["load"]) == ("advanced-rag, instructions computed", ONE)
    }
    assert one["all"] >= 0.99 * max(one["parallelisation"], one["pipelining"])
    assert one["all"] > one["none"] == 1.0
    assert "| advanced-rag, instructions computed | 80% |" in shown(ablation.EXPERIMENT, report)


def test_all_has_every_pass_and_each_is_in_one_group() -> None:
    assert GROUPS["all"] == tuple(PIPELINE)
    groups = (*GROUPS["parallelisation"], *GROUPS["pipelining"])
    assert sorted(groups) == sorted(PIPELINE)


def test_loosened_modules_keep_the_order_that_no_data_implies() -> None:
    builder = workloads.find_app("advanced-rag").builder
    graph = builder.build(builder.configure({}), {"chunks": 48})
    made = loosened(graph)
    assert [order.producer for order in made["expand.prefill"].after] == ["index.ingest"]
    assert [order.producer for order in made["embed.embed"].after] == []
    assert [order.effect for order in made["search.search"].after] == [True]


# --- sensitivity ----------------------------------------------------------------------------


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda p: p.key)
def test_every_parameter_changes_its_own_value_and_goes_back(parameter: Any) -> None:
    bed = testbed(parameter.llm)
    assert parameter.change(bed, 1.0) == bed
    if parameter.key == "searches":
        assert parameter.change(bed, 2.0).values.searches == 1.0
        return
    doubled = parameter.change(bed, 2.0)
    assert doubled != bed
    assert parameter.change(doubled, 0.5) == bed


def test_a_parameter_of_a_cost_changes_that_cost() -> None:
    bed = testbed("13b")
    rerank = next(p for p in PARAMETERS if p.key == "rerank_pair").change(bed, 2.0)
    old, new = (b.profile.engines["rerank"].costs[Op.RERANKING] for b in (bed, rerank))
    assert (new.per_item_s, new.base_s) == (2 * old.per_item_s, old.base_s)
    assert rerank.profile.engines["llm"] == bed.profile.engines["llm"]


def test_ranges_name_what_made_them() -> None:
    where = {"app": "a", "llm": "13b", "load": "one query", "baseline": "b"}
    rows = [
        {"parameter": name, "factor": factor, "speedup": speedup, **where}
        for name, factor, speedup in (("", 1.0, 1.2), ("x", 0.5, 1.1), ("y", 2.0, 1.5))
    ]
    (found,) = ranges(rows)
    assert (found["speedup"], found["least"], found["least_with"]) == (1.2, 1.1, "x x 0.5")
    assert (found["most"], found["most_with"]) == (1.5, "y x 2")


@pytest.mark.nightly
def test_sensitivity_reports_a_range_for_every_headline(tmp_path: Path) -> None:
    report = run(sensitivity.main, tmp_path, "--queries", "2", "--values", "waits,prefill_30b")
    assert len(report["headlines"]) == 2 * 3 * 3  # LLMs, applications, loads
    assert len(report["baselines"]) == 4 * len(report["headlines"])
    assert {row["parameter"] for row in report["rows"]} == {"", "waits", "prefill_30b"}
    assert all(o["least"] <= o["speedup"] <= o["most"] for o in report["headlines"])
    for one in report["headlines"]:
        same = [row for row in report["rows"] if not row["parameter"]]
        same = [row for row in same if all(row[k] == one[k] for k in ("app", "llm", "load"))]
        assert one["speedup"] == max(row["speedup"] for row in same)
    waits = [o for o in report["baselines"] if o["baseline"] == "llamadist_to"]
    assert any(o["most_with"] == "waits x 2" for o in waits)
    assert any(o["least_with"] == "waits x 0" for o in waits)
    text = shown(sensitivity.EXPERIMENT, report)
    assert "`rerank_pair`" in text


# --- the command ----------------------------------------------------------------------------


def test_an_earlier_report_is_shown_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run(motivation.main, tmp_path)
    capsys.readouterr()
    motivation.main(["--report", str(tmp_path / "report.json"), "--json"])
    assert json.loads(capsys.readouterr().out) == report


def test_errors_of_the_user_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        ablation.main(["--quick", "--workers", "1", "--data", str(tmp_path)])
    assert str(stopped.value).startswith(f"error: {tmp_path} has no truthfulqa.csv")
    with pytest.raises(SystemExit):
        ablation.main(["--queries", "0"])
    assert "at least 1 is needed" in capsys.readouterr().err
