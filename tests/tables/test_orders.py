"""Orders of the fields: what they save is counted rightly, and groups change no row."""

from __future__ import annotations

from itertools import permutations
from random import Random

import duckdb
import pyarrow as pa
import pytest

from experiments.tables_orders.measure import measure
from teola.tables.orders import ColumnOrder, Orders, by_score, rows_sql
from teola.tables.plan_builder import PASSES
from teola.tables.shared_beginnings import POSITIONS, Beginnings
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker, connected, oracle_rows, planned_rows, same

NAMES = ["a", "b", "c", "d", "e"]


def table(seed: int, rows: int = 90) -> duckdb.DuckDBPyConnection:
    """Rows of which halves have other columns that repeat."""
    chance = Random(seed)
    con, made = duckdb.connect(), []
    for at in range(rows):
        free = [f"{name}{chance.randrange(10**9)} of its own" for name in "xyz"]
        often = [f"{name}{chance.randrange(4)} in many rows" for name in "xyz"]
        half = at % 2
        values = [(often if (column % 2 == half) else free)[column] for column in range(3)]
        made.append([str(at), *values, str(chance.randrange(3)), str(half)])
    columns = [list(one) for one in zip(*made, strict=True)]
    con.register("made", pa.table(columns, names=["key", *(f"f{at}" for at in range(5))]))
    con.execute("CREATE TABLE t AS FROM made")
    con.unregister("made")
    return con


def shared(texts: list[str]) -> int:
    """Characters of the lines that begin the prompt before, too."""
    total, before = 0, [""]
    for text in texts:
        lines = text.split("\n")[1:]
        for one, other in zip(before, lines, strict=False):
            if one != other:
                break
            total += len(one) + 1
        before = lines
    return total


def texts(con: duckdb.DuckDBPyConnection, order: ColumnOrder) -> list[str]:
    return [row[1] for row in con.execute(rows_sql("t", "", NAMES, order).sorted_sql).fetchall()]


@pytest.mark.parametrize("seed", range(2))
@catches(
    "rows-that-do-not-repeat-go-on-alone",
    "rows that share no value of a node's column are taken to share nothing",
    edited(Beginnings._part, "hash(v.node, field) ELSE", "hash(v.node, v.id) ELSE"),
)
@catches(
    "the-first-row-is-saved-too",
    "the first row of a beginning counts as saved",
    edited(Beginnings._best, "sum((n - 1) * (length", "sum(n * (length"),
)
def test_what_orders_save_is_counted_over_all_rows(seed: int) -> None:
    con = table(seed)
    orders = Orders(con, "t", "", NAMES, 0, 600.0)
    scored = by_score(orders.statistics, orders.rows)
    after, saved = orders.beginnings.after(scored)
    for positions in (scored, after, (4, 3, 2, 1, 0)):
        counted = orders.beginnings.saved(positions)
        assert counted == shared(texts(con, ColumnOrder(positions, 0.0, "")))
    assert saved == orders.beginnings.saved(after)
    grouped = orders.beginnings.groups(after)
    prompts = texts(con, ColumnOrder(after, 0.0, "", groups=True))
    assert grouped == shared(prompts) > max(saved, orders.beginnings.saved(scored))
    # Each row is there once, with all of its fields.
    rows = con.execute("SELECT f0, f1, f2, f3, f4 FROM t").fetchall()
    wanted = [sorted(f"{n}: {v}" for n, v in zip(NAMES, row, strict=True)) for row in rows]
    assert sorted(sorted(one.split("\n")[1:]) for one in prompts) == sorted(wanted)


@catches(
    "exchange-forgets-what-follows",
    "neighbours change places by what the first of them saves alone",
    edited(Beginnings._behind, " + self.saves([*fields, last], last)", ""),
)
def test_a_field_that_another_decides_comes_before_it() -> None:
    """As the best of all 120 orders has it: a beer is of one style, a style has several beers."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i::VARCHAR AS key, 'taster ' || (i * 7 % 45) AS f0, "
        "'a beer with a long name, number ' || (i % 30) AS f1, 'style ' || (i % 6) AS f2, "
        "(hash(i) % 5)::VARCHAR AS f3, 'glass ' || (hash(-i) % 4) AS f4 FROM range(180) r(i)"
    )
    orders = Orders(con, "t", "", NAMES, 0, 600.0)
    after, behind = orders.beginnings.after(by_score(orders.statistics, orders.rows))
    found, saved = orders.beginnings.exchanged(after, behind)
    rows = con.execute("SELECT f0, f1, f2, f3, f4 FROM t").fetchall()

    def lines(order: tuple[int, ...]) -> list[str]:
        inputs = sorted([row[at] for at in order] for row in rows)
        names = [NAMES[at] for at in order]
        return ["".join(map("\n{}: {}".format, names, one)) for one in inputs]

    most = max(shared(lines(order)) for order in permutations(range(5)))
    assert saved == shared(lines(found)) == most > behind
    assert found.index(2) < found.index(1) < found.index(0)
    assert orders.best(groups=False).positions == found


def test_groups_are_taken_where_they_gain_and_leave_nothing() -> None:
    con = table(3)
    best = Orders(con, "t", "", NAMES, 0, 600.0).best()
    assert best.groups
    assert best.reason.startswith("by groups, ")
    assert not Orders(con, "t", "", NAMES, 0, 600.0).best(groups=False).groups
    assert not Orders(con, "t", "WHERE key < '3'", NAMES, 0, 600.0).best().groups  # few rows
    tables = [row[0] for row in con.execute("SHOW TABLES").fetchall()]
    assert set(tables) <= {"t", POSITIONS}


def test_planning_ends_in_time() -> None:
    """Without time for a second step an order is as whole as any."""
    con = table(4)
    best = Orders(con, "t", "", NAMES, 0, 0.0).best()
    assert sorted(best.positions) == list(range(5))
    assert not best.groups


@pytest.mark.parametrize("passes", [frozenset(PASSES), frozenset(PASSES) - {"dedup", "warm"}])
def test_rows_in_groups_get_their_own_answers(passes: frozenset[str]) -> None:
    con = connected()
    con.execute(
        "CREATE TABLE t AS SELECT i AS id, 'k' || (i % 2) AS kind, CASE i % 2 WHEN 0 THEN "
        "'long text ' || (i % 6) || repeat('x', 40) ELSE 'own ' || i || repeat('y', 40) END AS a, "
        "CASE i % 2 WHEN 1 THEN 'long text ' || (i % 6) || repeat('z', 40) WHEN 0 THEN NULLIF("
        "'own ' || i || repeat('w', 40), 'own 4') END AS b, CAST(i % 5 AS INTEGER) AS n "
        "FROM range(140) r(i)"
    )
    sql = "SELECT id, LLM('do x', kind, a, b, n, id) AS k FROM t WHERE n <> 3"
    asker = FunctionAsker()
    assert same(planned_rows(con, sql, ["t"], asker, passes), oracle_rows(con, sql, ["t"]))
    orders = {
        tuple(line.partition(":")[0] for line in one.split("\n")[1:]) for one in asker.prompts
    }
    assert len(orders) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kinds", "donors", "tickets"])
def test_a_cache_finds_more_with_the_chosen_order(name: str) -> None:
    found = measure(name, 1500)
    assert found["of_score"] >= 1.05
    assert found["of_best"] >= 0.99
    assert found["of_best_32_at_once"] >= 0.95
