"""The rows of one call: which open a group, and what is counted of their answers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from teola import tables
from teola.runtime.rows import OnAnswers, Row, RowsCall, RowsHandle
from teola.tables import question_run
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker

ASKS = "SELECT a, b, LLM('q', a, b, fixed_order := true) AS k FROM t"


class Notes(FunctionAsker):
    """Notes the rows that it is asked."""

    def __call__(
        self, call: RowsCall, rows: Iterator[Row], on_answers: OnAnswers, **more: Any
    ) -> RowsHandle:
        self.rows = list[Row]()

        def noted() -> Iterator[Row]:
            for row in rows:
                self.rows.append(row)
                yield row

        return super().__call__(call, noted(), on_answers, **more)


@catches(
    "each-row-opens",
    "every row seems to begin otherwise than the one before",
    edited("teola.tables.question_run:QuestionRun._rows", "before = first", "pass"),
)
@pytest.mark.parametrize("seed", range(3))
def test_a_row_opens_where_the_first_field_changes(seed: int) -> None:
    chance = Random(seed)
    rows = [(f"a{chance.randrange(12)}", f"b{k}") for k in range(150)]
    source = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    asker = Notes(lambda i, v: ("Yes", None))
    tables.sql(ASKS, {"t": source}, answers=False).run(ask_rows=asker)
    firsts = [row.text.split("\n")[1] for row in asker.rows]
    assert sorted(firsts) == firsts
    opens = [k for k, row in enumerate(asker.rows) if row.opens]
    assert opens == [k for k in range(150) if k == 0 or firsts[k] != firsts[k - 1]]
    assert len({row.id for row in asker.rows}) == 150


@pytest.mark.parametrize("batch", [1, 7, 60, 8192])
def test_each_answer_is_counted_once_however_many_come_together(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_run, "BATCH", batch)
    source = pa.table({"a": ["x"] * 60, "b": [f"{k}" for k in range(60)]})
    asker = FunctionAsker(lambda i, v: (None, "it broke") if v[1] in ("5", "8") else ("Yes", None))
    told: list[tuple[int, int, int]] = []

    def progress(stage: Any, todo: int, over: int, failed: int) -> None:
        told.append((todo, over, failed))

    done = tables.sql(ASKS, {"t": source}, answers=False).run(ask_rows=asker, progress=progress)
    assert [row[2] for row in done.rows].count("Yes") == 58
    assert told == sorted(told)
    assert told[-1] == (60, 60, 2)
    assert all(later[1] - before[1] <= batch for before, later in pairwise(told))
    counts = ("asked", "failed", "prompt_tokens", "cached_tokens", "completion_tokens")
    assert [done.report[name] for name in counts] == [60, 2, 600, 240, 120]
