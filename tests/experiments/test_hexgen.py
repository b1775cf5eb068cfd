"""Objectives on unequal instances, in small: what is replayed, and what its report says."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.hexgen import __main__ as command
from experiments.hexgen import figures, measure
from experiments.hexgen.clusters import base_s, profile_of
from experiments.hexgen.graph import Recording
from experiments.hexgen.measure import Case, nearest, play, row_of
from experiments.hexgen.policies import OURS, POLICIES, Compared
from experiments.hexgen.recorded import NAMES, RecordedQuery, read
from teola.errors import TeolaError
from teola.runtime.tuning import recent
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


def test_the_report_has_the_keys_that_are_promised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "TRACES", ("trace1",))
    for trace in measure.TRACES:
        written(tmp_path, steps(1), steps(2, 4), name=f"hexgen_{trace}.json")
    asked = ["--quick", "--workers", "1", "--seeds", "1", "--data", str(tmp_path), "--json"]
    command.main(
        [*asked, "--policies", "ours,wb_pq,rr_fcfs,wb_fcfs", "--out", str(tmp_path / "out")]
    )
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"rows", "tuned", "stages", "settings"}
    assert len(found["rows"]) == 2 * 4
    assert all(row.keys() == ROW for row in found["rows"])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    shown = StringIO()
    figures.show(report, Console(width=200, file=shown))
    assert "Bursts" in shown.getvalue()
    assert "slo95 of `ours` against any other" in figures.section(report, Path("images/x.svg"))


def test_the_tuned_alpha_is_told(
    recorded: list[RecordedQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "DRAWN", 8)
    tuned = Compared("t", "urgency", "workload_balanced", {}, {"alpha": 0.0}, tuned=True)
    found = play(recorded, Case("trace1", "hetero1", 0.05, 0, tuned, "steady"))
    assert found.changes
    assert all(0.0 <= alpha <= 1.0 for _, alpha in found.changes)
    assert len({at for at, _ in found.changes}) == len(found.changes)


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(SystemExit):
        command.main(["--policies", "best"])


def test_the_prose_says_what_the_report_says() -> None:
    """Each figure of the table of means stands in the README as in the report."""
    report = json.loads((FOLDER / "report.json").read_text())
    prose = (FOLDER / "README.md").read_text()
    for row in figures.lines(figures.of_bursts(report["rows"])):
        assert f"| {' | '.join(row)} |" in prose
    bursts = figures.of_bursts(report["rows"])
    for line in figures.told(bursts):
        assert line in prose
    for few in ({"ours"}, {"ours", "wb_pq"}, {"rr_fcfs"}):  # as --policies may say
        lines = figures.told([row for row in bursts if row["policy"] in few])
        assert bool(lines) is (len(few) > 1)
    settings = report["settings"]
    assert re.search(rf"{settings['runs']:,} runs", prose)
    page = (Path("docs") / "scheduling.md").read_text()
    for row in figures.lines(figures.of_bursts(report["rows"])):
        assert f"| {' | '.join(row)} |" in page
