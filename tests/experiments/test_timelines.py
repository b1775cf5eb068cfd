"""Timelines of a real server explain where the time went, and list every call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.timelines import __main__ as timelines
from experiments.timelines.measure import CASES, unexplained_share

pytestmark = [pytest.mark.slow, pytest.mark.server]

FAR_TOO_MUCH = 0.3
"""Of a query's time, on however busy a machine; without the calls of parts, or what was being
written at the end, it is three quarters."""


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return timelines.measure()


def test_every_call_is_listed_and_little_is_unexplained(rows: list[dict[str, Any]]) -> None:
    assert [(row["query"], row["state"]) for row in rows] == [
        (one.name, one.until) for one in CASES
    ]
    for row in rows:
        assert row["calls_listed"] == row["calls_made"] > 0, row
        assert row["unexplained_share"] < FAR_TOO_MUCH, row
        assert row["spans"] > row["calls_made"], row
    (agent,) = (row for row in rows if row["query"] == "agent of ten calls")
    assert agent["calls_made"] == 11, "ten with a tool, and the answer"


def test_the_report_has_these_keys_and_no_others(
    rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timelines, "measure", lambda: rows)
    timelines.main(["--json"])
    keys = ["query", "state", "took_s", "unexplained_share", "spans", "calls_listed", "calls_made"]
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["rows"]
    assert [list(row) for row in told["rows"]] == [keys] * len(CASES)
    timelines.main([])
    table = capsys.readouterr().out
    assert all(one.name in table for one in CASES)


def test_what_is_in_no_stretch_is_unexplained() -> None:
    path = [
        {"kind": "ran", "op": "decoding", "start": 0.0, "end": 5.0},
        {"kind": "between", "op": "", "start": 5.0, "end": 6.0},
        {"kind": "ran", "op": "grow", "start": 6.0, "end": 8.0},
    ]
    assert unexplained_share({"critical_path": path, "end_s": 10.0}) == pytest.approx(0.5)
