"""Objectives on unequal instances, in small: what is replayed, and what its report says."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from experiments.common.command import Options
from experiments.hexgen import __main__ as command
from experiments.hexgen import cases, figures, goals, kept, measure
from experiments.hexgen.cases import Case
from experiments.hexgen.clusters import base_s, profile_of
from experiments.hexgen.graph import Recording
from experiments.hexgen.measure import nearest, play, row_of
from experiments.hexgen.policies import OURS, POLICIES, Compared
from experiments.hexgen.recorded import NAMES, RecordedQuery, read
from teola.errors import TeolaError
from teola.runtime.tuning import recent
from teola.schedule import overdue
from tests.planted import catches, edited

FOLDER = Path(figures.__file__).parent
ROW = {
    "trace", "cluster", "rate", "seed", "policy", "slo95", "slo99", "p95", "mean", "throughput",
    "attained", "queries",
}  # fmt: skip
FILE_NAMES = {name: told for told, name in NAMES.items()}


def steps(repairs: int, tests: int = 5, keywords: bool = True) -> list[dict[str, Any]]:
    """One query as a file has it; without tests nothing is evaluated."""
    names = ["linking", *(["keywords"] if keywords else []), *["linking"] * 3, *["candidate"] * 2]
    names += [*["revise"] * repairs, "testing", *(["tests"] if tests else []), "testing"]
    names += [*["evaluate"] * tests, "testing"]
    return [
        {"step": FILE_NAMES[name], "input_length": 300 + 10 * k, "output_length": 5 + k}
        for k, name in enumerate(names)
    ]


def written(folder: Path, *queries: Any, name: str = "hexgen_trace1.json") -> Path:
    path = folder / name
    path.write_text(json.dumps([{"Text2SQLRequest": query} for query in queries]))
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> list[RecordedQuery]:
    shapes = ((0, 5, True), (3, 4, True), (10, 6, False), (1, 0, True))
    return read(written(tmp_path, *(steps(*shape) for shape in shapes)))


@catches(
    "one-turn",
    "a repair less is replayed than was recorded",
    edited(Recording.__init__, 'query.of("revise"), query', 'query.of("revise")[:-1], query'),
)
def test_a_replayed_query_has_the_calls_that_were_recorded(recorded: list[RecordedQuery]) -> None:
    """`play` itself holds prompts and answers of each query to the record's, and their number."""
    found = play(recorded, Case("trace1", "hetero2", 1.0, 0, POLICIES[OURS]))
    assert sum(found.placed.values()) == sum(len(query.calls) for query in recorded)
    assert len(found.latencies) == 4
    alone = play(recorded[1:2], Case("trace1", "hetero1", 1.0, 0, POLICIES["least_loaded"]))
    assert 0.5 < alone.ratios[0] < 1.0  # by itself it runs on the fastest


@catches(
    "both-places",
    "a call that was late and moved counts at both instances",
    edited(play, "in at.items()", "in ((sent[0], sent[5]) for sent in scope.trace.raw[0])"),
)
def test_a_call_that_moved_counts_where_it_ended(
    recorded: list[RecordedQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overdue, "FACTOR", 1.1)
    monkeypatch.setattr(overdue, "LEAST_S", 0.0)
    moved = Counter[str]()
    whole = measure.scopes

    def looked(trace: Any) -> Any:
        found = [*whole(trace)]
        moved.update(
            str(n) for scope in found for n in Counter(s[0] for s in scope.trace.raw[0]).values()
        )
        return found

    monkeypatch.setattr(measure, "scopes", looked)
    found = play(recorded * 3, Case("trace1", "hetero1", 20.0, 0, POLICIES["rr_fcfs"]))
    assert moved["2"]
    assert sum(found.placed.values()) == 3 * sum(len(query.calls) for query in recorded)


def test_what_is_side_by_side_is_one_stage_and_repairs_are_one_after_another(
    recorded: list[RecordedQuery],
) -> None:
    stages = [[call.stage for call in stage] for stage in recorded[1].stages]
    assert stages.count(["candidate", "candidate"]) == 1
    assert stages.count(["revise"]) == 3
    assert ["evaluate"] * 4 in stages
    profile = profile_of("hetero1")
    assert base_s(recorded[2], profile) > base_s(recorded[0], profile)


@pytest.mark.parametrize("name", ["paced_fcfs", "rr_fcfs", "wb_pq", "work_edf", "sjf"])
def test_the_same_seed_gives_the_same_figures(recorded: list[RecordedQuery], name: str) -> None:
    case = Case("trace1", "hetero2", 1.0, 3, POLICIES[name])
    assert row_of(case, play(recorded, case)) == row_of(case, play(recorded, case))


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ([], "not an empty one"),
        ([{"input_length": 1, "output_length": 1}], "it has no name"),
        ([{"step": "rewrite", "input_length": 1, "output_length": 1}], "rewrite"),
        ([{"step": "revise", "input_length": 0, "output_length": 1}], "from 1 on"),
        ([{"step": "revise", "input_length": 1, "output_length": -1}], "from 1 on"),
        ([{"step": "revise", "input_length": 1, "output_length": 1}] * 1001, "1,001 steps"),
        (steps(11), "more than 10 repairs"),
        (steps(2)[::-1], "no such order"),
    ],
)
def test_what_is_no_recorded_query_is_refused(tmp_path: Path, query: Any, told: str) -> None:
    with pytest.raises(TeolaError, match=told):
        read(written(tmp_path, steps(1), query))


def test_no_file_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TeolaError, match="give --data FOLDER"):
        read(tmp_path / "missing.json")
    with pytest.raises(TeolaError, match="not an empty one"):
        read(written(tmp_path))


def test_percentiles_are_by_the_nearest_rank() -> None:
    assert nearest(range(1, 101), 95) == 95
    assert nearest([3.0], 99) == 3.0


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a run on one trace of two queries."""
    for module in (measure, cases):
        monkeypatch.setattr(module, "TRACES", ("trace1",))
    written(tmp_path, steps(1), steps(2, 4))
    return ["--quick", "--workers", "1", "--seeds", "1", "--data", str(tmp_path), "--json"]


def test_the_report_has_a_row_of_each_run(few: list[str], tmp_path: Path) -> None:
    asked = options(True, 1, tmp_path, policies=("ours", "wb_pq", "wb_pq_0.0"))
    report = json.loads(json.dumps(measure.measure(asked, Progress(disable=True))))
    assert len(report["rows"]) == 2 * 3 + 3  # bursts on two clusters, steady on one
    assert all(row.keys() == ROW for row in report["rows"])
    others = [len(report[kind]) for kind in ("oracle_length", "tenants", "hopeless", "change")]
    assert others == [8, 6, 6, 2]
    shown = StringIO()
    figures.show(report, Console(width=200, file=shown))
    for title in ("wanted: nowhere behind", "Bursts", "Steady", "Two tenants", "Where calls ran"):
        assert title in shown.getvalue()
    assert "slo95 of `ours` against any other" in figures.section(report, Path("images/x.svg"))
    assert "`sjf`" in figures.left_out(report)
    assert "kinds" not in figures.left_out(report)
    assert "A100" in figures.readme(report)


@pytest.mark.slow
def test_the_picture_has_a_curve_of_each_policy(tmp_path: Path) -> None:
    report = json.loads((FOLDER / "report.json").read_text())
    figures.plot(report, tmp_path / "x.svg")
    drawn = (tmp_path / "x.svg").read_text()
    assert all(f">{row['policy']}<" in drawn for row in report["rows"])


def test_runs_that_a_file_has_are_not_made_again(
    few: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "runs.jsonl"
    asked = [*few, "--only", "burst", "--policies", "ours", "--resume", str(file)]
    command.main(asked)
    first = json.loads(capsys.readouterr().out)
    assert first.keys() == {"rows", "tuned", "stages", "settings"}
    assert len(first["rows"]) == 2
    made: list[Case] = []
    monkeypatch.setattr(measure, "keep", lambda file, case, report: made.append(case))
    command.main(asked)
    assert json.loads(capsys.readouterr().out)["rows"] == first["rows"]
    assert not made
    command.main([*asked, "--budget", "512"])
    assert len(made) == 2
    monkeypatch.setattr(kept, "code", lambda: "of other sources")
    assert kept.runs_of(file) == {}
    file.write_text('{"rows": []}\n')
    with pytest.raises(TeolaError, match="line 1: this is no run"):
        kept.runs_of(file)


def options(quick: bool, seeds: int, data: Path | None = None, **given: Any) -> Options:
    usual = {"objective": "own", "budget": 2048, "sample": "resampled"}
    asked = Namespace(**{**usual, "only": None, "policies": None, "resume": None, **given})
    return Options(quick, 0, 0, seeds, 1, data, asked)


def test_the_whole_experiment_has_all_runs() -> None:
    whole = cases.cases_of(options(False, 5))
    kinds = Counter(case.kind for case in whole)
    assert kinds["burst"] == 3 * 2 * 2 * 5 * len(POLICIES)
    steady = [case for case in whole if case.kind == "steady"]
    assert {case.rate for case in steady} == {0.10, 0.12, 0.14}
    left_out = {"edf", "sjf", "least_slack", "paced_fcfs", "work_edf"}
    assert {case.policy.name for case in steady} == POLICIES.keys() - left_out
    assert Counter(case.seed for case in steady).keys() == {0, 1}
    assert [case.times_over for case in whole if case.kind == "change"] == [5, 5, 5]
    quick = cases.cases_of(options(True, 2))
    assert {case.rate for case in quick if case.kind == "burst"} == {1.0}
    assert not {"wb_pq_0.1", "wb_pq_0.5"} & {case.policy.name for case in quick}
    assert [case.kind for case in cases.cases_of(options(True, 1, only=("change",)))] == [
        "change"
    ] * 3


def row(
    policy: str, slo95: float, *, rate: float = 1.0, cluster: str = "hetero1", **also: float
) -> Any:
    usual = {"slo99": 2 * slo95, "p95": 10 * slo95, "mean": 5 * slo95, "throughput": 0.1}
    where = {"trace": "trace1", "cluster": cluster, "rate": rate, "seed": 0, "policy": policy}
    return {**where, "slo95": slo95, **usual, "attained": 0.5, **also}


def judged(*rows: Any, **settings: Any) -> dict[str, list[str]]:
    about = {"objective": "own", "budget": 2048, **settings}
    return {line[0]: line[2:] for line in goals.lines({"rows": rows, "settings": about})}


@catches(
    "geometric",
    "a goal of each cell is judged by the mean",
    edited(goals.worst, "min(gains(rows", "geometric(gains(rows"),
)
def test_goals_are_judged_cell_by_cell() -> None:
    rows = [row("ours", 4.0), row("wb_pq", 8.0), row("ours", 4.4, cluster="hetero2")]
    found = judged(*rows, row("wb_pq", 4.0, cluster="hetero2"))
    assert found["`ours` against every other policy, slo95"] == ["at worst 0.909 (wb_pq)", "missed"]
    assert found["`ours` against the best fixed alpha, slo95"] == ["1.348 (wb_pq)", "met"]
    assert found["`wb_pq` against `rr_fcfs`, slo95"] == ["not run", ""]
    assert found["`ours` against `wb_pq`, attained"] == ["0.50 against 0.50", "missed"]
    steady = [row("ours", 2.0, rate=0.1), row("wb_pq", 3.0, rate=0.1, throughput=0.104)]
    found = judged(*steady, row("wb_pq_0.0", 2.5, rate=0.1), row("wb_pq_tuned", 2.6, rate=0.1))
    assert found["`ours` against the best fixed alpha, slo95, steady"] == [
        "1.250 (wb_pq_0.0)",
        "met",
    ]
    assert found["tuned alpha against alpha 0, slo95, steady"] == ["0.962 (wb_pq_0.0)", "missed"]
    assert found["tuned alpha against the best fixed one, slo95, steady"][1] == "met"
    same = judged(*rows[:2], objective="same")
    assert same["`ours` against every other policy, p95"] == ["at worst 2.000 (wb_pq)", "met"]
    assert judged(*rows[:2], budget=512) == {
        "`ours` against `wb_pq`, slo95": ["2.000 (wb_pq)", "met"]
    }


def test_the_tuned_alpha_is_told(
    recorded: list[RecordedQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "DRAWN", 8)
    tuned = Compared("t", "urgency", "workload_balanced", {}, {"alpha": 0.0}, tuned=True)
    found = play(recorded, Case("trace1", "hetero1", 0.05, 0, tuned, "steady"))
    assert found.changes
    assert all(0.0 <= change.alpha <= 1.0 for change in found.changes)
    assert len({change.at for change in found.changes}) == len(found.changes)
    assert all(change.replay_s > 0 for change in found.changes)


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(SystemExit):
        command.main(["--policies", "best"])


def test_the_pages_say_what_the_report_says() -> None:
    """What `--docs` writes is what stands there."""
    report = json.loads((FOLDER / "report.json").read_text())
    docs = Path("docs")
    assert (
        figures.section(report, Path("images/hexgen.svg")) in (docs / "benchmarks.md").read_text()
    )
    for page, text in figures.elsewhere(report).items():
        assert text in (docs / page).read_text()
