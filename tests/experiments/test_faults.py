"""30 kills over 150 queries, in child processes and on Ray: nothing lost, wrong or left over."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.faults import __main__ as faults
from experiments.faults.engines import CORPUS, Passages, numbers
from experiments.faults.measure import Log, _judged
from teola.errors import QueryFailed
from teola.query.result import Result

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
ROWS = ("process", "ray")


@pytest.fixture(scope="module")
def report(servers: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("faults")
    faults.main(["--kills", "30", "--queries", "150", "--seed", "7", "--out", str(folder)])
    assert (folder / "faults.svg").read_text().startswith("<?xml")
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_no_query_is_lost_and_none_is_answered_wrong(report: dict[str, Any]) -> None:
    assert [row["host"] for row in report["rows"]] == list(ROWS)
    assert (report["kills"], report["queries"]) == (30, 150)
    assert (report["lost"], report["wrong"]) == (0, 0), report["rows"]


@pytest.mark.nightly
@pytest.mark.parametrize("host", ROWS)
def test_it_was_hard_and_nothing_is_left(report: dict[str, Any], host: str) -> None:
    (row,) = [row for row in report["rows"] if row["host"] == host]
    assert row["kills"] == len(row["kills_s"]) == 15
    assert row["hit"] >= 5, "kills must meet work in flight"
    assert row["failed_tries"] >= 5
    assert row["states"] == {"ok": 75}
    assert row["held"] == []
    assert row["orphans"] == 0


@pytest.mark.nightly
def test_what_is_shown(report: dict[str, Any]) -> None:
    console = Console(width=200, file=StringIO())
    faults.EXPERIMENT.table(report, console)
    section = faults.EXPERIMENT.section(report, Path("images/faults.svg"))
    assert "150 queries and 30 kills 0 queries were lost and 0 answered wrong" in section
    assert section.count("| 75 | 75 | 0 | 0 |") == 2, "queries, ok, lost, wrong"


def result(state: str, answer: str) -> Result:
    return Result("faults", "q", state, {"answer": answer}, 1.0)


def test_what_counts_as_lost_or_wrong() -> None:
    right = {"a": "1", "b": "2", "c": "3", "d": "4"}
    log = Log(results={"a": result("ok", "1"), "b": result("ok", "9"), "c": QueryFailed("?")})
    found = _judged(log, right)
    assert (found["wrong"], found["lost"]) == (1, 2), "one wrong; one raised, one never ended"
    assert found["states"] == {"ok": 2, "QueryFailed": 1, "NoneType": 1}


def test_answers_depend_on_what_is_asked() -> None:
    near = Passages("vectorstore").near(numbers(CORPUS[7], 8))
    assert len({hit.id for hit in near}) == 4
    assert near != Passages("vectorstore").near(numbers("something else", 8))
