"""LLM_AGG: a tree of prompts for each group, as a plain function makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from teola import tables
from teola.errors import InputError
from teola.tables.group_asking import GroupAsking, PartFilling
from teola.testing import ScriptedModel
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker, connected, oracle_rows, planned_rows, same

T = pa.table({"g": [1, 2, 1, 2, 3], "x": [5, 4, 3, 2, 1], "a": ["p", "q", "r", "s", None]})


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = connected()
    con.execute(
        "CREATE TABLE t AS SELECT i AS id, i % 3 AS g, CASE WHEN i % 7 > 0 THEN 'w' || (i % 19) END"
        " AS a, repeat('long ', i % 5) || i AS b, i % 4 AS n FROM range(90) r(i)"
    )
    con.execute("CREATE TABLE u AS SELECT i AS g, 'v' || i AS c FROM range(2) r(i)")
    return con


QUERIES = [
    "SELECT g, LLM_AGG('s', a ORDER BY id) AS k FROM t GROUP BY g",
    "SELECT g, LLM_AGG('s', b, a, part_tokens := 64 ORDER BY n DESC, id) AS k FROM t GROUP BY g",
    "SELECT LLM_AGG('s', b, part_tokens := 64) AS k, count(*) FROM t",
    "SELECT LLM_AGG('s', a) FROM t WHERE id > 1000",
    "SELECT g, n, LLM_AGG_ERROR('t', b, part_tokens := 64 ORDER BY id), LLM_AGG('t', b, "
    "part_tokens := 64 ORDER BY id) FROM t GROUP BY g, n",
    "SELECT g, LLM_AGG('s', a, type := 'INTEGER' ORDER BY id) FILTER (WHERE n > 1) + 1 AS k FROM t "
    "GROUP BY g HAVING LLM_AGG('h', b ORDER BY id) <> 'zz' AND count(*) > 3 ORDER BY k, g",
    "SELECT g, n, LLM_AGG('s', b ORDER BY id) AS k FROM t GROUP BY ROLLUP (g, n)",
    "SELECT LLM('top', LLM_AGG('s', LLM('each', a), b, part_tokens := 64 ORDER BY id)) AS k FROM t "
    "GROUP BY n % 2",
    "SELECT CASE WHEN count(*) > 22 THEN LLM_AGG('s', b) ELSE max(b) END FROM t GROUP BY n",
    "SELECT s.k, count(*) FROM (SELECT n, g, LLM_AGG('s', a ORDER BY b, id) AS k FROM t "
    "GROUP BY ALL) s GROUP BY 1",
    "SELECT u.c, LLM_AGG('s', t.a, u.c ORDER BY LLM('key', b), id) AS k FROM t JOIN u USING (g) "
    "WHERE LLM('p', n) <> 'zz' GROUP BY u.c ORDER BY LLM_AGG('s', t.a, u.c ORDER BY id) LIMIT 1",
    "SELECT n, (SELECT LLM_AGG('s', c ORDER BY g) FROM u) AS k FROM t WHERE n > 2",
]


@pytest.mark.slow
@catches(
    "mixed-groups",
    "a part goes on with the next group's rows",
    edited(PartFilling.parts, "group != before or ", ""),
)
@catches(
    "half-groups",
    "a group whose part failed has the answer of another part",
    edited(GroupAsking._settle, "CASE WHEN count({FAULT}) = 0 THEN", "CASE WHEN true THEN"),
)
@catches(
    "unordered",
    "parts are filled in the order of the table of texts",
    edited(GroupAsking.rows_sql, ", g.teola_at", ", t.teola_row"),
)
def test_groups_are_what_a_plain_function_makes_of_them(con: duckdb.DuckDBPyConnection) -> None:
    for sql in QUERIES:
        asker = FunctionAsker()
        wanted = oracle_rows(con, sql, ["t", "u"])
        assert same(wanted, planned_rows(con, sql, ["t", "u"], asker)), sql
        assert len(asker.prompts) == len(set(asker.prompts)), sql
    for sql in QUERIES[1:2]:
        one_by_one = planned_rows(con, sql, ["t", "u"], FunctionAsker(), frozenset())
        assert same(oracle_rows(con, sql, ["t", "u"]), one_by_one)


def test_one_group_by_a_plain_function(con: duckdb.DuckDBPyConnection) -> None:
    assert same(oracle_rows(con, QUERIES[2], ["t"]), planned_rows(con, QUERIES[2], ["t"]))


def names(instruction: str, values: list[str]) -> tuple[str, None]:
    return "+".join(values), None


def run(sql: str, table: pa.Table = T, **options: Any) -> tuple[FunctionAsker, Any]:
    asker = FunctionAsker(names)
    made = tables.sql(sql, {"t": table}, ask_rows=asker, **{"answers": False, **options})
    return asker, made.run()


def test_the_relation_api_makes_the_same() -> None:
    t = tables.table(T, name="t")
    made = t.group_by("g").agg(k=tables.llm_agg("s", t.a, order_by=t.x.desc()))
    asker = FunctionAsker(names)
    rows = made.order_by("g").run(ask_rows=asker, answers=False).rows
    assert rows == [(1, "p+r"), (2, "q+s"), (3, None)]
    assert sorted(asker.prompts) == ["s\na: p\na: r", "s\na: q\na: s"]
    _, same_as = run("SELECT g, LLM_AGG('s', a ORDER BY x DESC) k FROM t GROUP BY g ORDER BY g")
    assert same_as.rows == rows
    with pytest.raises(InputError, match="needs a column"):
        tables.llm_agg("s")


def test_rows_at_a_groups_end_leave_the_other_parts_as_they_were(tmp_path: Path) -> None:
    sql = "SELECT LLM_AGG('s', a, part_tokens := 64) AS k FROM t"
    values = [f"{at:03}" + "." * 60 for at in range(10)]  # 17 tokens a line, so 3 of them a part
    asker, done = run(sql, pa.table({"a": values}), answers=tmp_path / "a.duckdb")
    leaves, combining = done.report["stages"]
    assert leaves["asked"] == 4
    assert combining["asked"] == len(asker.prompts) - 4
    assert all(len(one) < 4 * 90 for one in asker.prompts[:4])
    again, done = run(sql, pa.table({"a": values}), answers=tmp_path / "a.duckdb")
    assert (again.prompts, done.report["answered_before"]) == ([], len(asker.prompts))
    more, _ = run(sql, pa.table({"a": [*values, "new"]}), answers=tmp_path / "a.duckdb")
    assert sum(one.startswith("s\na: ") for one in more.prompts) == 1


def test_explain_counts_parts_and_what_combines_them(tmp_path: Path) -> None:
    sql = "SELECT g, LLM_AGG('s', a, part_tokens := 64, max_tokens := 8) AS k FROM t GROUP BY g"
    values = [f"{at:03}{'.' * 60}" for at in range(60)]
    t = pa.table({"g": [at % 2 for at in range(60)], "a": values})
    short = FunctionAsker(lambda i, v: (v[0][:32], None))
    made = tables.sql(sql, {"t": t}, ask_rows=short, answers=tmp_path / "a.duckdb")
    before = made.explain()
    done = made.run()
    assert [one.to_ask for one in before.stages] == [one["asked"] for one in done.report["stages"]]
    assert [one.to_ask for one in made.explain().stages] == [0, 0]
    (rewrite,) = [one for one in before.plan.rewrites if one.rule == "parts"]
    assert "64 tokens" in rewrite.reason


def _windowed(model: ScriptedModel, window: int) -> Callable[..., Any]:
    def made(name: str = "llm") -> Any:
        engine = model(name)
        engine.spec = replace(engine.spec, window=window)
        return engine

    return made


def test_every_prompt_is_within_the_window() -> None:
    """Of 140 tokens of 4 characters 32 are the template's and 8 the answer's."""
    model = ScriptedModel(lambda call: "y" * 300)
    values = ["short", "a word " * 200, *(f"some words {at}" for at in range(60))]
    sql = "SELECT LLM_AGG('sum up', a, max_tokens := 8) AS k FROM t"
    t = {"t": pa.table({"a": values})}
    done = tables.sql(sql, t, llm=_windowed(model, 140), answers=False).run()
    assert done.state == "ok"
    assert max(len(call.prompt) for call in model.calls) <= 4 * 100
    assert done.report["truncated"] > 0
    asked = len(model.calls)
    with pytest.raises(InputError, match="over the window of the model"):
        tables.sql(sql, t, llm=_windowed(model, 80), answers=False).run()
    assert len(model.calls) == asked


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT LLM_AGG('s') FROM t", "needs a column.*line 1, column 8"),
        ("SELECT LLM_AGG(a) FROM t", "instruction"),
        ("SELECT LLM_AGG('s', DISTINCT a) FROM t", "SELECT DISTINCT in a subquery"),
        ("SELECT LLM_AGG('s', a) OVER (PARTITION BY g) FROM t", "window.*subquery and join"),
        ("SELECT LLM_AGG('s', a) WITHIN GROUP (ORDER BY x) FROM t", "ORDER BY key"),
        ("SELECT LLM_AGG('s', a ORDER BY ALL) FROM t", "name the keys"),
        ("SELECT LLM_AGG('s', a ORDER BY random()) FROM t", r"random\(\)"),
        ("SELECT LLM_AGG('s', a, fixed_order := true) FROM t", "no option 'fixed_order'"),
        ("SELECT LLM_AGG('s', a, part_tokens := 3) FROM t", "at least 64"),
        ("SELECT LLM('s', a, part_tokens := 99) FROM t", "LLM has no option 'part_tokens'"),
        ("SELECT g FROM t WHERE LLM_AGG('s', a) = 'x'", "WHERE"),
        ("SELECT LLM_AGG('s', LLM_AGG('s', a)) FROM t", "nested"),
        ("SELECT x, LLM_AGG('s', a) FROM t GROUP BY g", "GROUP BY"),
        ("SELECT (SELECT LLM_AGG('s', u.a) FROM t u WHERE u.g = t.g) FROM t", "correlated"),
        ("SELECT g, l.k FROM t, LATERAL (SELECT LLM_AGG('s', t.a) AS k) l", "LATERAL"),
    ],
)
def test_refused(sql: str, said: str) -> None:
    asker = FunctionAsker()
    with pytest.raises(InputError, match=f"(?s){said}"):
        tables.sql(sql, {"t": T}, ask_rows=asker, answers=False).run()
    assert asker.prompts == []
