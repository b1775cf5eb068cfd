"""How much a series, a padding, a repetition and a format may make, exactly."""

from __future__ import annotations

import re
from datetime import date, timedelta
from random import Random

import pytest

from teola.errors import ToolError
from teola.sql.constant_bounds import MOST_REPEATED, MOST_ROWS, WIDEST
from teola.sql.select_only import select_only
from tests.planted import catches, edited


def takes(sql: str, dialect: str = "duckdb") -> bool:
    """Whether the filter takes it; else it says that it would be too much, or is not known."""
    try:
        select_only(sql, dialect)
    except ToolError as error:
        return not re.search("constant|more than|asked for|too often|has to stand", str(error))
    return True


@pytest.mark.parametrize("seed", range(30))
def test_a_series_has_as_many_rows_as_its_bounds_say(seed: int) -> None:
    chance = Random(seed)
    step = chance.choice([1, 2, 7, -1, -3])
    first = chance.randint(-50, 50)
    for rows in (MOST_ROWS, MOST_ROWS + 1):
        last = first + (rows - 1) * step
        written = chance.choice([str(last), f"({last - 3}) + 3", f"{last + 5} - 5", f"{last} * 1"])
        sql = f"SELECT * FROM generate_series({first}, {written}, {step})"
        assert takes(sql) is takes(sql, "postgres") is (rows == MOST_ROWS), sql
    rows = MOST_ROWS + chance.randint(0, 1)
    assert takes(f"SELECT * FROM generate_series({first}, {first + rows - 1})") is (
        rows == MOST_ROWS
    )


@pytest.mark.parametrize(
    ("step", "days"),
    [("1 day", 1), ("2 days", 2), ("1 week", 7), ("-1 day", 1), ("1 week 1 day", 8), ("48 h", 2)],
)
def test_a_series_of_days(step: str, days: int) -> None:
    start = date(1500, 1, 1)
    for rows in (40_000, MOST_ROWS + 1):
        end = min(start + timedelta(days=days * (rows - 1)), date.max)
        fits = (end - start).days / days + 1 <= MOST_ROWS
        sql = f"SELECT * FROM generate_series(DATE '{start}', DATE '{end}', INTERVAL '{step}')"
        assert takes(sql) is fits, sql
    assert not takes(f"SELECT * FROM generate_series(DATE '{start}', DATE '{end}', INTERVAL '0 s')")


@pytest.mark.parametrize(
    ("series", "taken"),
    [
        ("(99999)", True),
        ("(100000)", False),
        ("(-99999)", True),
        ("(1, 5, 0)", False),
        ("(1, id)", False),
        ("(id, 1)", False),
        ("(1, 2, id)", False),
        ("(current_date - INTERVAL '99 days', current_date, INTERVAL '1 day')", True),
        ("(now() - INTERVAL '2 days', now(), INTERVAL '1 s')", False),
        ("(DATE '2026-01-01', DATE 'soon', INTERVAL '1 day')", False),
        ("(date_trunc('month', DATE '2026-01-01'), DATE '2026-03-01', INTERVAL '1 day')", True),
        ("(1, 1e9)", False),
        ("(1, 1e9, 1e5)", True),
    ],
)
def test_bounds_of_a_series_are_constants(series: str, taken: bool) -> None:
    assert takes(f"SELECT * FROM generate_series{series}") is taken


@pytest.mark.parametrize(
    ("width", "most"),
    [
        ("{}", WIDEST),
        ("({} + 1)", WIDEST - 1),
        ("-({})", WIDEST),
        ("CAST({} AS INT)", WIDEST),
        ("least(id, {})", WIDEST),
        ("least(id, 20000, {})", WIDEST),
        ("least({}, least(id, 3))", 10**9),
    ],
)
def test_a_width_is_bounded_by_a_constant(width: str, most: int) -> None:
    for n in (1, most, most + 1) if most < 10**9 else (1, most):
        for call in ("lpad(name, {}, ' ')", "repeat(name, {})"):
            sql = f"SELECT {call.format(width.format(n))} FROM t"
            assert takes(sql) is (n <= most), sql
    for unbounded in ("id", "least(id)", "least(id, id)", "greatest(id, 5)", "id + 1"):
        assert not takes(f"SELECT rpad(name, {unbounded}) FROM t")


@catches(
    "paddings-unrepeated",
    "a padding that is repeated counts for nothing",
    edited(
        "teola.sql.statement_checks:_Checks._call", "self.repeated * self.widest", "self.repeated"
    ),
)
def test_texts_that_repeat_one_another_are_bounded_together() -> None:
    """Wherever they stand: the longest text that nested calls make is computed beside."""
    for seed in range(60):
        chance = Random(seed)
        text, length, repeated = "'x'", 1, 1
        for _ in range(4):
            width = chance.choice([1, 3, 100, 1000, WIDEST])
            if chance.random() < 0.4:
                text, length = f"lpad({text}, {width}, ' ')", width
            else:
                text, length = f"repeat({text}, {width})", length * width
                repeated *= width
            taken = takes(f"SELECT {text}")
            assert not (taken and length > MOST_REPEATED), text
            if repeated == 1 or repeated * WIDEST <= MOST_REPEATED:
                assert taken, text
    assert takes(f"SELECT repeat(repeat('x', {WIDEST}), {WIDEST})")


def test_paddings_side_by_side_are_taken() -> None:
    wide = ", ".join([f"lpad(name, {WIDEST}, ' ')"] * 5)
    assert takes(f"SELECT {wide}, repeat('*', 20) FROM t")
    assert takes(f"SELECT repeat('*', 20), {wide} FROM t")


@pytest.mark.parametrize("dialect", ["duckdb", "sqlite"])
def test_widths_of_a_format_are_added_up(dialect: str) -> None:
    for rest in (0, 1):
        for form in ("%{}d%{}s", "%-{}d %08.{}f", "%1$+{}d%2${}s"):
            sql = (
                f"SELECT printf('{form.format(WIDEST - 4000, 4000 - 8 * ('.' in form) + rest)}', 1)"
            )
            assert takes(sql, dialect) is (rest == 0), sql
    for unknown in ("'%*d', 3, 4", "name", "'%.*f', 3, 4", "'a' || name", ""):
        assert not takes(f"SELECT printf({unknown}) FROM t", dialect)
    assert takes("SELECT printf('%d items: %s %%', 3, 'x')", dialect)


def test_fields_in_braces_have_widths_too() -> None:
    for rest in (0, 1):
        sql = f"SELECT format('{{:{WIDEST - 10}d}} {{:5.{5 + rest}f}} {{}}', 1, 2, 3)"
        assert takes(sql) is (rest == 0)
    assert not takes("SELECT format('{:{}d}', 1, 20000)")
