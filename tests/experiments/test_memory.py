"""What a query holds: streamed pieces are counted, and what waits for people is small."""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from experiments.memory import held
from teola import EngineConfig, Runtime
from teola.query.underway import Underway
from teola.serve.board import Board
from tests.planted import catches, edited

REPORT = Path(held.__file__).with_name("report.json")
WARM = 2
WAITING = 64
"""Queries among which what grows by steps, such as a dict, is shared out."""


def traced(what: str, pieces: int, queries: int) -> tuple[float, float]:
    """Bytes that a query adds to what Python has allocated, and those that the board counts."""
    with Runtime({"llm": EngineConfig(held.Words)}) as runtime:
        begin = held.BEGINS[what](runtime, pieces)
        begin(0)  # untraced: it imports what checks answers
        tracemalloc.start()
        try:
            for n in range(1, WARM):
                begin(n)
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            counted = [begin(WARM + n) for n in range(queries)]
            gc.collect()
            total = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
    return total / queries, sum(filter(None, counted)) / queries


@catches(
    "pieces-uncounted",
    "what clients were told is held and not counted",
    edited(Board._ended, "entry.bytes += entry.events.nbytes", "pass"),
)
def test_a_server_counts_what_the_pieces_of_an_answer_hold() -> None:
    total, counted = traced("streamed_server", 1_500, 6)
    assert counted / 1.5 <= total <= 1.5 * counted


@pytest.mark.parametrize(("what", "kib"), [("waiting_sdk", 14.7), ("waiting_server", 16.4)])
@catches(
    "parking-held",
    "what wrote down that a query waits is held as long as it does",
    edited(Underway._end_parking, "self._parking is parking", "False"),
)
def test_a_query_that_waits_for_people_holds_little(what: str, kib: float) -> None:
    total, _ = traced(what, 0, WAITING)
    assert total <= kib * 1024, total / 1024


def test_in_the_kept_report_all_that_is_held_is_counted() -> None:
    rows: list[dict[str, Any]] = json.loads(REPORT.read_text())["rows"]
    assert [row["what"] for row in rows] == [*held.BEGINS]
    assert [(row["queries"], row["pieces"]) for row in rows] == [(1000, 0), (1000, 0), (32, 20_000)]
    assert all(row["ratio"] <= 1.5 for row in rows)
