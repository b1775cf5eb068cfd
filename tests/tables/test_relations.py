"""The API makes the same plans as SQL."""

from __future__ import annotations

from itertools import product
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import teola.tables.frames  # noqa: F401
from teola import tables
from teola.errors import InputError, UnknownName
from teola.tables import Relation
from teola.tables.workspace import Workspace
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker

T = pa.table({"id": [1, 2, 3, 4], "a": ["x", "y", None, "x"], "n": [1, 2, 2, 1]})
U = pa.table({"id": [1, 2, 5], "b": ["p", "q", "r"]})


def yes(instruction: str, values: list[str]) -> tuple[str, None]:
    return ("Yes" if "x" in values else "No"), None


def run(made: Any) -> list[Any]:
    return list(made.run(ask_rows=FunctionAsker(yes), answers=False).rows)


def test_the_plan_is_that_of_sql() -> None:
    t = tables.table(T, name="t")
    ok = tables.llm("ok?", t.a, choices=["Yes", "No"]) == "Yes"
    made = t.filter(t.n > 1, ok).select("id", k=tables.llm("why?", t.a, t.n))
    sql = tables.sql(
        'SELECT "id" AS "id", LLM(\'why?\', a, n) AS k FROM t '
        "WHERE n > 1 AND LLM('ok?', a, choices := ['Yes', 'No']) = 'Yes'",
        {"t": T},
    )
    plans = []
    for one in (made, sql):
        with Workspace({"t": T}) as workspace:
            plans.append(one.plan(workspace))
    assert [type(step) for step in plans[0].steps] == [type(step) for step in plans[1].steps]
    assert plans[0].asks() == plans[1].asks()
    assert plans[0].columns == plans[1].columns


def test_a_condition_over_a_call_goes_below_it_where_it_is_not_about_the_call() -> None:
    t = tables.table(T)
    ok = tables.llm("ok?", t.a)
    asker = FunctionAsker(yes)
    made = t.with_columns(k=ok).filter(t.n == 1)
    assert made.run(ask_rows=asker, answers=False).rows == [(1, "x", 1, "Yes"), (4, "x", 1, "Yes")]
    assert asker.prompts == ["ok?\na: x"]
    for sql, asked in (
        ("SELECT id FROM (SELECT *, LLM('q', a) AS k FROM t) WHERE n = 1 AND k <> 'z'", 1),
        ("SELECT id FROM (SELECT *, LLM('q', a) AS k FROM t) WHERE ((n = 1 AND k <> 'z'))", 1),
        ("SELECT id FROM (SELECT *, LLM('q', a) AS k FROM t) WHERE (((n = 1) AND ((k <> ''))))", 1),
        ("SELECT s.id FROM (SELECT *, LLM('q', a) AS k FROM t) s JOIN u USING (id) WHERE s.n=1", 1),
        ("SELECT id FROM (SELECT id, LLM('q', a) AS k FROM t) WHERE k = 'Yes'", 3),
        ("SELECT id FROM (SELECT id, LLM('q', a) AS n FROM t LIMIT 3) WHERE id = 3", 3),
        (
            "SELECT id FROM (SELECT id, n, LLM('q', a) AS k FROM t) s LEFT JOIN u USING (id) "
            "WHERE s.n = 1",
            3,
        ),
    ):
        asker = FunctionAsker(yes)
        query = tables.sql(sql, {"t": T, "u": U}, answers=False, ask_rows=asker)
        rows = query.run().rows
        assert len(asker.prompts) == asked, sql
        assert sorted(rows) == sorted(query.run(passes="none").rows)


def test_operations() -> None:
    t, u = tables.table(T), tables.table(U)
    ok = tables.llm("ok?", t.a)
    assert run(t.filter(ok == "Yes").select("id", twice=t.id * 2)) == [(1, 2), (4, 8)]
    assert run(t.filter(t.id == 2).select(half=1 / t.id, twice=2 * t.id)) == [(0.5, 4)]
    grouped = t.group_by("n").agg(rows=tables.count(), most=ok.max())
    assert run(grouped.order_by("n")) == [(1, 2, "Yes"), (2, 2, "No")]
    assert run(t.join(u, "id").select("id", "b").order_by("id")) == [(1, "p"), (2, "q")]
    left = t.join(u, t.id == u.id, how="left").order_by("id")
    assert run(left.select("id", "id_right"))[2] == (3, None)
    assert run(t.order_by(t.id.desc()).limit(2, offset=1).select("id")) == [(3,), (2,)]
    assert run(t.select("n").distinct().order_by("n")) == [(1,), (2,)]
    assert run(t.filter(t.a.is_null() | t.n.is_in([7])).select("id")) == [(3,)]
    assert run(t.with_columns(k=ok).filter(t.n == 1).select("k")) == [("Yes",), ("Yes",)]
    assert run(t.filter(~(t.n == 1)).select("id").limit(1)) == [(2,)]


@pytest.mark.parametrize("before", list(product([False, True], repeat=3)))
def test_rows_are_made_distinct_of_what_was_said_before(before: tuple[bool, ...]) -> None:
    """Against the rows themselves, clause by clause."""
    ordered, few, later = before
    rows = [("y", 2), ("y", 2), ("x", 1), ("y", 2), ("x", 1), ("w", 3)]
    names, numbers = zip(*rows, strict=True)
    made = tables.table(pa.table({"a": names, "n": numbers}))
    if ordered:
        made, rows = made.order_by("a"), sorted(rows)
    if few or later:
        made = made.limit(2 if few else 9, offset=1 if later else 0)
        rows = rows[int(later) :][: 2 if few else 9]
    assert sorted(run(made.distinct())) == sorted(set(rows))


@catches(
    "limit-around",
    "a limit stands in a SELECT around the one that lists the columns, which asks for all rows",
    edited(Relation.limit, '"offset"), listed=True', '"offset")'),
)
@catches(
    "order-around",
    "an order stands in a SELECT around the one that lists the columns, and takes the limit along",
    edited(Relation.order_by, "len(inside) == len(ordered)", "False"),
)
def test_a_limit_behind_a_select_stops_as_that_of_sql() -> None:
    rows = pa.table({"id": list(range(99)), "a": [f"text {k}" for k in range(99)]})
    for order, sql in (None, ""), ("turned", "ORDER BY turned"):
        t = tables.table(rows)
        found = t.filter(tables.llm("ok?", t.a) == "Yes").select("id", turned=0 - t.id)
        written = f"SELECT id, 0 - id AS turned FROM t WHERE LLM('ok?', a) = 'Yes' {sql} LIMIT 1"
        asked = []
        for query in (
            (found if order is None else found.order_by(order)).limit(1),
            tables.sql(written, {"t": rows}),
        ):
            asker = FunctionAsker(lambda instruction, values: ("Yes", None))
            done = query.run(ask_rows=asker, answers=False)
            asked.append((done.rows, len(asker.prompts)))
        assert asked[0] == asked[1]
        assert asked[0][1] < 99


def test_a_new_column_takes_the_place_of_one_of_its_name() -> None:
    """Whatever its case, since names in SQL have none."""
    t = tables.table(T).select("id", "n")
    made = t.with_columns(m="n", N=t.n * 10, k=t.n)
    assert [column.name for column in made.columns] == ["id", "N", "m", "k"]
    assert run(made)[1] == (2, 20, "n", 2)
    assert run(made.filter(made.N == 20).select("N", "m")) == [(20, "n"), (20, "n")]
    assert run(t.with_columns()) == run(t)


def test_columns_of_a_join_have_names_of_their_own() -> None:
    """A column of the right side gets `_right` until no other one is called so."""
    left = tables.table(pa.table({"id": [1], "a": ["left"], "a_right": ["own"]}))
    right = tables.table(pa.table({"id": [1], "A": ["right"], "b": ["right"]}))
    joined = left.join(right, "id")
    assert [column.name for column in joined.columns] == [
        "id", "a", "a_right", "A_right_right", "b",
    ]  # fmt: skip
    assert run(joined.select("a", "a_right", "A_right_right")) == [("left", "own", "right")]
    again = left.select("id", "a").join(right, "id").join(right.select("id", "A"), "id")
    assert [column.name for column in again.columns][-2:] == ["b", "A_right_right"]


def test_numbers_without_an_end_and_no_numbers_are_values() -> None:
    t = tables.table(pa.table({"n": [1.0, float("inf"), -float("inf"), float("nan"), None]}))
    assert run(t.filter(t.n == float("inf"))) == [(float("inf"),)]
    assert run(t.filter(t.n < -1e300)) == run(t.filter(t.n.is_in([-float("inf")])))
    assert len(run(t.filter(t.n == float("nan")))) == 1
    assert repr(run(t.limit(1).select(x=float("nan"), y=-float("inf")))) == "[(nan, -inf)]"


def test_relations_never_change() -> None:
    t = tables.table(T)
    before = repr(t._tree)
    t.filter(t.n == 1).select("id").order_by("id").limit(1)
    assert repr(t._tree) == before


def test_mistakes() -> None:
    t, u = tables.table(T), tables.table(U)
    with pytest.raises(UnknownName, match="valid: a, id, n"):
        t["b"]
    with pytest.raises(AttributeError, match="unknown column"):
        _ = t.b
    with pytest.raises(InputError, match="another table"):
        t.filter(u.id == 1)
    with pytest.raises(InputError, match="no truth value"):
        t.filter(t.n == 1 and t.id == 1)
    with pytest.raises(InputError, match="is_null"):
        _ = t.a == None  # noqa: E711
    with pytest.raises(InputError, match="choices"):
        tables.llm("q", t.a, choices="Yes")
    with pytest.raises(InputError, match="no option"):
        tables.llm("q", t.a, chioces=["Yes"])
    with pytest.raises(UnknownName, match="left"):
        t.join(u, "id", how="outer")


def test_frames() -> None:
    asker = FunctionAsker(yes)
    frame = pd.DataFrame({"a": ["x", "y", "x"]}, index=[7, 8, 9])
    frame["k"] = frame.teola.llm("ok?", "a", ask_rows=asker, answers=False)
    assert list(frame["k"]) == ["Yes", "No", "Yes"]
    assert len(asker.prompts) == 2
    polars = pl.DataFrame({"a": ["x", "y"]})
    found = polars.teola.llm("ok?", ask_rows=FunctionAsker(yes), answers=False)
    assert list(found) == ["Yes", "No"]


def test_what_a_notebook_shows_is_escaped() -> None:
    t = tables.table(pa.table({"<b>": ["<script>"]}))
    shown = t.run()._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "1 row, ok" in shown


def test_results_are_tables_again() -> None:
    t = tables.table(T)
    done = t.select("id", k=tables.llm("ok?", t.a)).run(ask_rows=FunctionAsker(yes), answers=False)
    assert done.arrow().column_names == ["id", "k"]
    assert [batch.num_rows for batch in done.reader(3)][:1] == [3]
    again = tables.table(done)
    assert run(again.filter(again.k == "Yes").select("id")) == [(1,), (4,)]
