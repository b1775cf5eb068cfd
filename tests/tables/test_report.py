"""What is told of a query: its report, its summary, and notes on its calls."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any

import duckdb
import pytest
from sqlglot import exp, parse_one

from teola.tables.call_stage import CallStage
from teola.tables.duckdb_schema import said
from teola.tables.places import place, refused
from teola.tables.plan_steps import Column
from teola.tables.report import plain, report_of, summary_of, with_rows

NUMBERS = ("asked", "answered_before", "failed", "unmatched", "truncated")
TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")


def stage(digest: str, first: int) -> CallStage:
    """Each of its numbers is another one."""
    counts: dict[str, Any] = dict(zip((*NUMBERS, *TOKENS), range(first, 99), strict=False))
    return CallStage(digest, f"say {digest}", rows=90, distinct=80, **counts)


def test_numbers_of_a_report_are_those_of_all_its_calls() -> None:
    one, other = stage("a", 1), stage("b", 20)
    one.add_error("it broke", 2, "a: x")
    one.add_error("no answer", 1, "a: y")
    one.add_error("it broke", 3, "a: z")
    other.add_error("it broke", 1, "b: x")
    other.order, other.reason = ["x", "y"], "as written"
    report = report_of(
        [Column("k", "VARCHAR")], [one, other], row_count=7, state="partial", seconds=1.23456789
    )
    assert [report[name] for name in (*NUMBERS, *TOKENS)] == [21 + 2 * n for n in range(8)]
    assert (report["row_count"], report["state"], report["seconds"]) == (7, "partial", 1.234568)
    assert report["columns"] == [{"name": "k", "type": "VARCHAR"}]
    assert [tuple(error.values()) for error in report["errors"]] == [
        ("a", "it broke", 5, "a: x"),
        ("a", "no answer", 1, "a: y"),
        ("b", "it broke", 1, "b: x"),
    ]
    assert report["stages"][1] == {
        "operator": "b",
        "instruction": "say b",
        "rows": 90,
        "distinct": 80,
        "asked": 20,
        "order": ["x", "y"],
        "reason": "as written",
    }
    assert report_of([], [], row_count=0, state="ok", seconds=0.0)["asked"] == 0


def test_rows_stand_behind_the_columns_and_leave_the_report_as_it_is() -> None:
    report = report_of([Column("k", "DATE")], [], row_count=1, state="ok", seconds=0.0)
    shown = with_rows(report, [(date(2026, 1, 2), None)])
    assert list(shown)[:3] == ["columns", "rows", "row_count"]
    assert shown["rows"] == [["2026-01-02", None]]
    assert "rows" not in report
    assert report["columns"] == shown["columns"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (1.5, 1.5),
        (nan, "nan"),
        (inf, "inf"),
        (-inf, "-inf"),
        (Decimal("1.50"), "1.50"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00+00:00"),
        (timedelta(days=1), "1 day, 0:00:00"),
        ((1, {"a": date(2026, 1, 2), 7: [nan]}), [1, {"a": "2026-01-02", "7": ["nan"]}]),
    ],
)
def test_a_value_is_one_that_json_has(value: Any, shown: Any) -> None:
    assert plain(value) == shown
    json.dumps(plain(value), allow_nan=False)


def test_a_summary_tells_what_is_not_nothing() -> None:
    report = report_of([], [stage("a", 1)], row_count=1_234, state="ok", seconds=12.34)
    assert summary_of(report, " in o.csv", 0.5) == (
        "1,234 rows in o.csv, ok: 1 asked, 2 answered before, 3 failed, 4 unmatched, 5 truncated; "
        "6 prompt tokens (7 cached), 8 of answers, cost 0.500, 12.3 s"
    )
    nothing = report_of([], [], row_count=1, state="failed", seconds=0.04)
    assert summary_of(nothing) == "1 row, failed: 0 asked; 0.0 s"
    free = report_of([], [], row_count=0, state="ok", seconds=0.0)
    assert summary_of(free, cost=0.0) == "0 rows, ok: 0 asked; cost 0, 0.0 s"


def test_a_note_tells_of_answers_without_a_value() -> None:
    one = CallStage("a", "q", wanted="choice of Yes, No", stray="perhaps")
    assert one.note() == ""
    one.unmatched = 1
    assert one.note() == (
        "1 answer has no choice of Yes, No, so their value is NULL, such as 'perhaps'"
    )
    one.unmatched, one.stray = 1_000, ""
    assert one.note() == "1,000 answers have no choice of Yes, No, so their value is NULL"


def test_what_is_read_again_is_counted_anew() -> None:
    one = stage("a", 1)
    one.add_error("it broke", 2, "a: x")
    one.recount()
    assert (one.failed, one.unmatched, one.errors) == (0, 0, {})
    assert (one.asked, one.rows, one.prompt_tokens) == (1, 90, 6)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ("SELECT f(a)", " at line 1, column 8"),
        ("SELECT a,\n  f(b)", " at line 2, column 3"),
        ("SELECT\nf(b)", " at line 2, column 1"),
        ("SELECT\n\n 'é', f(b)", " at line 3, column 7"),
    ],
)
def test_a_place_is_counted_from_the_first_line_and_column(sql: str, where: str) -> None:
    node = next(n for n in parse_one(sql).walk() if n.name == "f")
    assert place(node, sql) == where
    assert (
        str(refused("f is wrong", node, sql, "leave it out")) == f"f is wrong{where}: leave it out"
    )
    assert place(node, "") == ""
    assert place(exp.Literal.number(1), sql) == ""


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT a FROM b", "Table with name b does not exist! Did you mean"),
        ("SELECT 'x'::INT", "Conversion Error: Could not convert string 'x' to INT32"),
        ("SELEC", 'syntax error at or near "SELEC"'),
    ],
)
def test_what_duckdb_says_is_one_line(sql: str, told: str) -> None:
    with duckdb.connect() as con, pytest.raises(duckdb.Error) as raised:
        con.execute(sql).fetchall()
    assert said(raised.value).startswith(told)
    assert "\n" not in said(raised.value)
    assert "LINE 1" not in said(raised.value)
    assert said(RuntimeError("")) == "RuntimeError"
