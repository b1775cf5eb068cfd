"""Columns of Arrow that are made from bytes, and that a query needs no pandas."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from teola.tables.arrow_columns import int_column, text_column

ANSWERS = """
import sys, duckdb
from datetime import datetime
from teola.tables.answer_table import AnswerTable, StoredAnswer
with duckdb.connect() as con:
    answers = AnswerTable(con)
    answers.add("o", [StoredAnswer("k", "Yes", None, 7, None, 1), StoredAnswer("l", *[None] * 5)])
    print(con.execute(f"SELECT * EXCLUDE (asked_at) FROM {answers.answers}").fetchall())
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["one", "two"],
        [None, "", "ä€😀", None, "with\0zero", *["x"] * 20, None],
        [None] * 9,
    ],
)
def test_texts(values):
    found = text_column(values)
    assert found.validate(full=True) is None
    assert found.to_pylist() == values


@pytest.mark.parametrize("values", [[], range(3), [None, -(2**63), None, 2**63 - 1], [None] * 9])
def test_whole_numbers(values):
    found = int_column(values)
    assert found.equals(pa.array(list(values), pa.int64()))


def test_what_does_not_fit_is_refused():
    with pytest.raises(OverflowError):
        int_column([2**63])
    with pytest.raises(UnicodeEncodeError):
        text_column(["half a pair: \ud83d"])


@pytest.mark.slow
def test_answers_are_written_without_pandas():
    found = subprocess.run(
        [sys.executable, "-c", ANSWERS], capture_output=True, text=True, check=True
    )
    rows, pandas = found.stdout.splitlines()
    assert rows == "[('o', 'k', 'Yes', None, 7, None, 1), ('o', 'l', None, None, None, None, None)]"
    assert pandas == "False"
