"""The experiment on doors: every route is one, the report has its form, and the pages say what the
kept report says."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.doors import __main__ as main
from experiments.doors import beat, figures
from experiments.doors.contents import CONTENTS, KINDS, of_kinds, size
from experiments.doors.doors import DOORS, LEFT_OUT, ROUTES
from experiments.doors.measure import BOUND_S
from tests.serve.openapi.test_document import of, operations

ROOT = Path(main.__file__).parents[2]
KEPT = ROOT / "experiments" / "doors" / "report.json"
KEYS = ["door", "content", "bytes", "status", "gap_s", "control_s", "rss_mib"]
TYPES = [str, str, int, int, float, float, float]


def test_every_route_is_a_door_or_says_why_not() -> None:
    routes = {f"{method.upper()} {path}" for path, method, _ in operations(of(None))}
    doors = [door.name for door in ROUTES]
    assert sorted([*doors, *LEFT_OUT]) == sorted(routes)


def test_every_kind_of_content_has_a_door_and_every_door_contents() -> None:
    assert len({door.name for door in DOORS}) == len(DOORS)
    assert {kind for door in DOORS for kind in door.kinds} == set(KINDS)
    for door in DOORS:
        assert of_kinds(door.kinds, quick=True), door.name
    names = [(content.kind, content.name) for content in CONTENTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "name", ["3.9 MB of CJK", "900 levels", "100,000 levels", "10 MB of spaces"]
)
def test_contents_are_made_and_counted(name: str) -> None:
    content = next(one for one in CONTENTS if one.name == name)
    assert size(content.make()) > 1_000


def check_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert list(row) == KEYS
        assert [type(value) for value in row.values()] == TYPES
        assert row["gap_s"] >= 0 <= row["control_s"]
        assert row["status"] == 0 or 200 <= row["status"] < 600


def test_the_kept_report_has_every_door_within_the_bound() -> None:
    report = json.loads(KEPT.read_text())
    check_rows(report["rows"])
    quick = report["about"]["quick"]
    seen = [(row["door"], row["content"]) for row in report["rows"]]
    assert seen == [
        (door.name, content.name) for door in DOORS for content in of_kinds(door.kinds, quick)
    ]
    assert [row for row in report["rows"] if row["gap_s"] > BOUND_S] == []
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert figures.section(report, Path("images/doors.svg")) in page


async def test_a_heart_sees_what_holds_its_loop(tmp_path: Path) -> None:
    beats = beat.Beats(tmp_path / "beats")
    beat.start(asyncio.get_running_loop(), beats)
    while beats.count < 3:
        await asyncio.sleep(0.01)
    beats.reset()
    sum(range(3_000_000))  # holds the loop
    before = beats.count
    while beats.count == before:
        await asyncio.sleep(0.01)
    seen = beat.Beats(tmp_path / "beats")
    assert seen.gap_s == beats.gap_s > 0.01


@pytest.mark.server
@pytest.mark.timeout(400)
def test_one_door_of_a_real_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = ["--quick", "--door", "GET /v1/models", "--content", "an unknown id"]
    main.main([*one, "--json", "--out", str(tmp_path)])
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["rows"]
    check_rows(told["rows"])
    (row,) = told["rows"]
    assert (row["door"], row["status"], row["bytes"]) == ("GET /v1/models/{model}", 404, 32)
    assert (tmp_path / "doors.svg").read_text().startswith("<?xml")
    report = json.loads((tmp_path / "report.json").read_text())
    console = Console(width=160, file=StringIO())
    main.EXPERIMENT.table(report, console)
    assert "1 rows" in console.file.getvalue()  # type: ignore[attr-defined]
