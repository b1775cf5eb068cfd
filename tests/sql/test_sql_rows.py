"""Rows within their limits, against what json writes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from teola.errors import InputError
from teola.sql.sql_rows import LookupLimits, Rows


def read(rows: list[Any], limits: LookupLimits) -> tuple[Rows, int]:
    """What is kept, and how many rows were looked at."""
    kept = Rows(limits)
    for seen, row in enumerate(rows, 1):
        if not kept.add(row):
            return kept, seen
    return kept, len(rows)


@pytest.mark.parametrize("seed", range(20))
def test_as_many_rows_as_fit_are_kept_and_no_more(seed: int) -> None:
    """Also where the last one fits exactly, in bytes or in number."""
    chance = Random(seed)
    values = [None, True, 3, -2.5, "", "text", "ünï", '"q"', [1, "a"], {"k": "æ"}]
    rows = [[chance.choice(values) for _ in range(3)] for _ in range(12)]
    sizes = [
        2 + sum(2 + len(json.dumps(value, ensure_ascii=False).encode()) for value in row)
        for row in rows
    ]
    limits = LookupLimits(rows=100, total_bytes=10**6)
    for count in range(1, len(rows)):
        size = sum(sizes[:count])
        for most, fit in ((size, count), (size - 1, count - 1), (size + 1, count)):
            kept, seen = read(rows, replace(limits, total_bytes=most))
            assert (kept.rows, seen, kept.truncated) == (rows[:fit], fit + 1, True)
            assert kept.notes[0].startswith(f"only the first {fit} rows: more would be over")
        kept, seen = read(rows, replace(limits, rows=count))
        assert (kept.rows, seen, kept.truncated) == (rows[:count], count + 1, True)
        assert kept.result()["note"] == f"only the first {count} rows"
        assert len(json.dumps(kept.rows, ensure_ascii=False).encode()) <= kept.total_bytes + 2
    kept, _ = read(rows, replace(limits, rows=len(rows), total_bytes=sum(sizes)))
    assert (kept.rows, kept.truncated, kept.total_bytes) == (rows, False, sum(sizes))
    assert "note" not in kept.result()


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (b"abc", "(3 bytes)"),
        (memoryview(b""), "(0 bytes)"),
        ((1, b"a"), [1, "(1 bytes)"]),
        ({1: Decimal("2.5")}, {"1": 2.5}),
        (Decimal("NaN"), "NaN"),
        (float("inf"), "inf"),
        ("half \ud83d", "half ?"),
        (True, True),
        (10**30, 10**30),
    ],
)
def test_what_json_has_not_is_told_as_text(cell: Any, value: Any) -> None:
    kept, _ = read([[cell]], LookupLimits())
    assert kept.rows == [[value]]
    assert type(kept.rows[0][0]) is type(value)


def test_a_value_has_its_share_of_a_row() -> None:
    limits = LookupLimits(value_bytes=100, total_bytes=1000)
    shares = {0: 100, 1: 100, 10: 100, 11: 90, 1000: 1, 2000: 1}
    assert {columns: limits.value_bytes_among(columns) for columns in shares} == shares
    for name in ("rows", "seconds", "value_bytes", "total_bytes", "memory_bytes"):
        for wrong in (0, -1, float("nan")):
            with pytest.raises(InputError, match=f"{name} is {wrong}: it must be positive"):
                LookupLimits(**{name: wrong})
