"""The fifteen properties of the paper's sheet (its section 9)."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from teola import tables
from teola.tables.extract import extractor, first_match
from teola.tables.llm_call import llm_call_of
from teola.tables.orders import ColumnStatistics, Orders, by_score, rank, row_cost, score
from tests.tables.oracle import FunctionAsker

MOVIES = [
    ColumnStatistics(407.27, 68),
    ColumnStatistics(5.3, 2),
    ColumnStatistics(131.50, 14977),
]
PRODUCTS = [
    ColumnStatistics(282.56, 144),
    ColumnStatistics(8.93, 16),
    ColumnStatistics(381.54, 12932),
]


def asked(sql: str, passes: str = "all", **columns: list[Any]) -> tuple[FunctionAsker, list[Any]]:
    asker = FunctionAsker()
    made = tables.sql(sql, {"t": pa.table(columns)}, answers=False, ask_rows=asker, passes=passes)
    return asker, made.run(max_errors=10**6).rows


def test_1_scores() -> None:
    found = [score(one, 15018) for one in MOVIES]
    assert found == pytest.approx([89946.78, 39797.70, 131.86], abs=0.01)
    found = [score(one, 15014) for one in PRODUCTS]
    assert found == pytest.approx([29460.80, 8379.69, 442.97], abs=0.01)
    assert by_score(MOVIES, 15018) == by_score(PRODUCTS, 15014) == (0, 1, 2)


def ordered(con: duckdb.DuckDBPyConnection, rows: list[tuple[str, ...]]) -> Orders:
    count = len(rows[0])
    con.register("listed", pa.table({f"f{at}": [r[at] for r in rows] for at in range(count)}))
    con.execute("CREATE TABLE given AS FROM listed")
    return Orders(con, "given", "", [f"c{at}" for at in range(count)], 20)


def test_2_a_tie_goes_to_fewer_values() -> None:
    rows = [(f"u{at + 1}", "PQ"[at % 2], ("aa bb cc dd", "ee ff gg hh")[at % 2]) for at in range(4)]
    made = ordered(duckdb.connect(), rows)
    assert [score(one, 4) for one in made.statistics] == [2, 2, 22]
    assert by_score(made.statistics, 4) == (2, 1, 0)


def hits(prompts: list[str]) -> int:
    """Words that begin the prompt before as well."""
    total, before = 0, []
    for prompt in prompts:
        words = prompt.split()
        for one, other in zip(before, words, strict=False):
            if one != other:
                break
            total += 1
        before = words
    return total


def test_3_columns_and_rows_together() -> None:
    columns = {
        "review": ["u1", "u2", "u3", "u4"],
        "type": ["P", "Q", "P", "Q"],
        "info": ["aa bb cc dd", "ee ff gg hh"] * 2,
    }
    sql = "SELECT LLM('one two three', review, type, info) FROM t"
    asker, _ = asked(sql, "columns,sort", **columns)
    assert hits(asker.prompts) == 26
    assert [one[-2:] for one in asker.prompts] == ["u1", "u3", "u2", "u4"]


def lru_misses(groups: list[str], size: int) -> int:
    kept: list[str] = []
    misses = 0
    for one in groups:
        if one not in kept:
            misses += 1
            kept = [*kept, one][-size:]
    return misses


def test_4_sorted_rows_miss_once_a_prefix() -> None:
    for times, unsorted in ((2, 12), (3, 18)):
        rows = [f"p{at}" for at in range(6)] * times
        assert lru_misses(rows, 3) == unsorted
        assert lru_misses(sorted(rows), 3) == 6


def test_5_without_sharing_in_a_batch_sorting_is_worse() -> None:
    def computed(batches: list[list[int]]) -> int:
        kept: set[int] = set()
        total = 0
        for batch in batches:
            total += sum(one not in kept for one in batch)
            kept |= set(batch)
        return total

    assert computed([[1, 1, 1], [2, 2, 2], [3, 3, 3]]) == 9
    assert computed([[1, 2, 3]] * 3) == 3


def test_6_dedup_by_the_columns_that_are_read() -> None:
    asker, rows = asked("SELECT LLM('q', a) FROM t", a=list("ABAAC"), unused=list("vwxyz"))
    assert len(asker.prompts) == 3
    assert rows[0] == rows[2] == rows[3]


@pytest.mark.parametrize("seed", range(3))
def test_7_the_optimised_run_gives_the_same_rows(seed: int) -> None:
    chance = Random(seed)
    columns = {name: [chance.choice(["aa", "b", None, "ccc"]) for _ in range(15)] for name in "abc"}
    sql = "SELECT LLM('q', a, b, c) FROM t"
    assert asked(sql, **columns)[1] == asked(sql, "none", **columns)[1]


def test_8_predicates_by_rank() -> None:
    predicates = {
        "llm1": (0.5, 2.0),
        "llm2": (0.9, 0.5),
        "cheap": (0.7, 1e-6),
        "cheap2": (0.1, 5e-6),
    }

    def total(order: tuple[str, ...]) -> float:
        rows, spent = 1000.0, 0.0
        for name in order:
            selectivity, cost = predicates[name]
            spent += rows * cost
            rows *= selectivity
        return spent

    best = tuple(sorted(predicates, key=lambda name: rank(*predicates[name])))
    assert best == ("cheap", "cheap2", "llm1", "llm2")
    written = ("llm1", "llm2", "cheap", "cheap2")
    assert total(written) == pytest.approx(2250.002, abs=0.001)
    assert total(best) == pytest.approx(157.5045, abs=0.0001)
    assert total(best) == min(total(order) for order in permutations(predicates))
    assert [rank(*predicates[n]) for n in ("llm1", "llm2")] == pytest.approx([-0.25, -0.2])


def test_9_cost_of_a_row() -> None:
    assert row_cost(710, 60, prefill_s=0.001, decode_s=0.03) == pytest.approx(2.51)


def test_10_patterns() -> None:
    read = extractor(llm_call_of("q", {"choices": ["Positive", "Negative", "Neutral"]}))
    assert read("Sure! The sentiment is negative, not Positive.") == "Negative"
    yes_no = extractor(llm_call_of("q", {"choices": ["Yes", "No"]}))
    assert yes_no("I cannot tell") is None
    assert first_match("I cannot tell", ["Yes", "No"]) == (1, "no")
    assert extractor(llm_call_of("q", {"pattern": r"\b[0-5]\b"}))("Score: 4 out of 5") == "4"


def test_11_cheap_filters_first() -> None:
    keep = [at % 3 != 0 for at in range(150)]
    asker, _ = asked(
        "SELECT id FROM t WHERE LLM('q', id) = 'Yes' AND keep", id=list(range(150)), keep=keep
    )
    assert len(asker.prompts) == sum(keep)


def test_12_contexts_in_order_of_frequency() -> None:
    questions = {
        "q1": ["c3", "c1", "c2"],
        "q2": ["c5", "c1", "c4"],
        "q3": ["c1", "c2", "c6"],
    }
    con = duckdb.connect()
    con.register(
        "r",
        pa.table(
            {
                "q": [q for q, found in questions.items() for _ in found],
                "c": [one for found in questions.values() for one in found],
            }
        ),
    )
    rows = con.execute(
        "WITH f AS (SELECT c, count(*) AS n FROM r GROUP BY c) "
        "SELECT q, list(r.c ORDER BY -n, r.c), list((-n, r.c) ORDER BY -n, r.c) AS k "
        "FROM r JOIN f USING (c) GROUP BY q ORDER BY k"
    ).fetchall()
    assert [(q, tuple(found)) for q, found, _ in rows] == [
        ("q1", ("c1", "c2", "c3")),
        ("q3", ("c1", "c2", "c6")),
        ("q2", ("c1", "c4", "c5")),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_13_one_sort_is_the_loop(seed: int) -> None:
    chance = Random(seed)
    known = [ColumnStatistics(chance.random() * 99, chance.randint(1, 99)) for _ in range(7)]
    left, loop = list(range(7)), []
    while left:
        best = max(left, key=lambda at: (score(known[at], 99), -known[at].distinct, -at))
        loop.append(best)
        left.remove(best)
    assert by_score(known, 99) == tuple(loop)


def test_14_edges() -> None:
    asker, rows = asked("SELECT LLM('q', a) FROM t WHERE a = 'none'", a=["x"])
    assert (asker.prompts, rows) == ([], [])
    asker, rows = asked("SELECT LLM('q', a) FROM t", a=["x"] * 30)
    assert len(asker.prompts) == 1
    assert len(rows) == 30
    made = ordered(duckdb.connect(), [(str(at), "long text " * 9) for at in range(20)])
    assert made.best().positions[0] == 1


@pytest.mark.parametrize("seed", range(3))
def test_15_no_order_of_rows_beats_the_sorted_one(seed: int) -> None:
    chance = Random(seed)
    columns = {name: [chance.choice("xyz") for _ in range(6)] for name in "abc"}
    sql = "SELECT LLM('q', a, b, c, fixed_order := true) FROM t"
    asker, _ = asked(sql, **columns)
    best = hits(asker.prompts)
    assert all(hits(list(other)) <= best for other in permutations(asker.prompts))


def test_the_order_of_columns_is_the_better_one_by_estimate() -> None:
    chance = Random(1)
    rows = [
        (str(chance.random()), chance.choice(["long value " * 8, "another value " * 7]), "k" * 30)
        for _ in range(200)
    ]
    made = ordered(duckdb.connect(), rows)
    written = made.share((0, 1, 2))
    best = made.best()
    assert best.positions[-1] == 0
    assert best.share > written + 0.5
