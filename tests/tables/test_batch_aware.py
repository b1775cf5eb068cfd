"""Rows for an engine that finds in a batch only what batches before it computed."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from teola import tables
from teola.errors import InputError
from teola.tables.batch_dealing import dealt_rows
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker


def asked(rows: list[tuple[str, str]], **options: Any) -> tuple[list[str], Any]:
    """The first field's values in the order in which they are asked."""
    source = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    asker = FunctionAsker(lambda i, v: ("Yes", None))
    text = "SELECT a, b, LLM('q', a, b, fixed_order := true) AS k FROM t"
    done = tables.sql(text, {"t": source}, answers=False).run(ask_rows=asker, **options)
    assert sorted(row[:2] for row in done.rows) == sorted(rows)
    assert all(row[2] == "Yes" for row in done.rows)
    return [one.split("\n")[1].removeprefix("a: ") for one in asker.prompts], done


def test_rows_of_a_beginning_go_to_different_batches() -> None:
    """The example of the paper: nine rows of three beginnings in batches of three."""
    rows = [(str(k // 3), str(k)) for k in range(9)]
    assert asked(rows)[0] == [*"000111222"]
    found, done = asked(rows, batch_aware=3)
    assert found == [*"012012012"]
    assert done.report["stages"][0]["reason"] == "fixed_order; dealt to batches of 3"


@catches(
    "one-place",
    "beginnings that follow each other have one place",
    edited(dealt_rows, "heapreplace(free, (start + count, place))", "pass"),
)
def test_a_beginning_takes_the_place_of_one_that_has_no_more_rows() -> None:
    draw = random.Random(3)
    counts = {chr(97 + k): draw.randint(2, 30) for k in range(20)}
    rows = [(a, f"{k}") for a, count in counts.items() for k in range(count)]
    rows += [(f"only {k}", "x") for k in range(10)]
    draw.shuffle(rows)
    found = asked(rows, batch_aware=4, passes="sort")[0]
    batches = [found[at : at + 4] for at in range(0, len(rows), 4)]
    firsts: dict[str, int] = {}
    for at, batch in enumerate(batches):
        for one in batch:
            firsts.setdefault(one, at)
    computed = sum(batches[firsts[one]].count(one) for one in firsts)
    assert computed <= len(firsts) + 1  # the last beginnings alone may meet themselves
    commonest = max(counts, key=lambda one: (counts[one], -ord(one)))
    assert found[0] == commonest
    assert [one for one in found if one.startswith("only")] == found[-10:]


@pytest.mark.parametrize("places", [0, 1, 2.5, True, "4"])
def test_places_are_a_number_from_two(places: Any) -> None:
    with pytest.raises(InputError, match="batch_aware is the number of prompts"):
        asked([("a", "b")], batch_aware=places)
