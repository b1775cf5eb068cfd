"""RETRIEVE: what a collection has for a text, as a value and as a field of calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from teola import Runtime, collections, tables
from teola.errors import InputError
from teola.tables import context_order
from teola.tables.plan_builder import PASSES
from teola.tables.retrieval import Retriever, search_of
from teola.tables.retrieval_call import RetrievalCall
from tests.planted import catches, edited
from tests.tables.oracle import FunctionAsker, connected, oracle_rows, planned_rows, same

QUERIES = [
    "SELECT id, RETRIEVE(a, 'c', 3) AS k FROM t",
    "SELECT id, LLM('q', RETRIEVE(a, 'c', 2), a, n) AS k FROM t",
    "SELECT LLM('q', a, RETRIEVE(n, 'd', 1, keep_rank := true), RETRIEVE(a, 'c', 3)) AS k FROM t",
    "SELECT id FROM t WHERE LLM('q', RETRIEVE(a, 'c', 2)) <> 'Yes' AND RETRIEVE(a, 'c', 1)[1] <> ''"
    " AND n > 1",
    "SELECT id FROM t WHERE LLM('q', RETRIEVE(a, 'c', 2)) <> 'Yes' ORDER BY id DESC LIMIT 3",
    "SELECT CASE WHEN n = 1 THEN RETRIEVE(a, 'c', 2)[2] ELSE LLM('q', a) END AS k FROM t",
    "SELECT n, LLM('q', RETRIEVE(max(a), 'c', 2)) AS k, LLM_AGG('s', a ORDER BY id) FROM t "
    "GROUP BY n",
    "SELECT RETRIEVE(LLM('rewrite', a), 'c', 2) AS k, count(*) FROM t GROUP BY 1",
    "SELECT len(s.k), LLM('q', s.k[1]) FROM (SELECT RETRIEVE(a, 'c', 2) AS k FROM t) s "
    "WHERE len(k) > 1",
]


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = connected()
    con.execute(
        "CREATE TABLE t AS SELECT i AS id, CASE WHEN i % 7 > 0 THEN 'w' || (i % 9) END AS a, "
        "i % 4 AS n FROM range(30) r(i)"
    )
    return con


@catches(
    "lost-contexts",
    "contexts of a text go where another row has it",
    edited(Retriever.run, "k.{ROW} = b.{ROW}", "k.{ROW} = b.{ROW} + 1"),
)
def test_contexts_are_what_a_plain_function_finds(con: duckdb.DuckDBPyConnection) -> None:
    for sql in QUERIES:
        assert same(oracle_rows(con, sql, ["t"]), planned_rows(con, sql, ["t"])), sql
    without = frozenset(PASSES) - {"contexts", "guards"}
    assert same(
        oracle_rows(con, QUERIES[2], ["t"]), planned_rows(con, QUERIES[2], ["t"], passes=without)
    )


SHEET = {"q1": ["c3", "c1", "c2"], "q2": ["c5", "c1", "c4"], "q3": ["c1", "c2", "c6"]}


class Searches:
    """Finds what a table says, and counts."""

    def __init__(self, found: dict[str, list[str]] = SHEET) -> None:
        self.found, self.texts = found, list[str]()

    def __call__(self, call: RetrievalCall, texts: Sequence[str], seconds: float) -> Any:
        self.texts += texts
        return [self.found.get(one, [])[: call.k] for one in texts]


def run(sql: str, asked: Sequence[str | None], **options: Any) -> tuple[FunctionAsker, Any]:
    asker = FunctionAsker(lambda i, v: ("Yes", None))
    given: dict[str, Any] = {"ask_rows": asker, "search": Searches(), "answers": False, **options}
    made = tables.sql(sql, {"t": pa.table({"q": pa.array(asked, pa.string())})})
    return asker, made.run(**given)


@catches(
    "rare-first",
    "contexts that few rows share go first",
    edited(context_order._pick, "'n': n,", "'n': -n,"),
)
@catches(
    "frequent-elsewhere",
    "the second context is the one that most rows have, whatever they begin with",
    edited(context_order._pick, "hash(node, best.context)", "0::UBIGINT"),
)
def test_contexts_go_by_how_many_rows_share_them_and_rows_by_contexts() -> None:
    """The example of the sheet, 9.12."""
    sql = "SELECT q, LLM('answer', q, RETRIEVE(q, 'c', 3)) FROM t"
    asker, done = run(sql, ["q1", "q2", "q3", "q1"])
    assert [one.splitlines()[1:] for one in asker.prompts] == [
        ['contexts: ["c1","c2","c3"]', "q: q1"],
        ['contexts: ["c1","c2","c6"]', "q: q3"],
        ['contexts: ["c1","c4","c5"]', "q: q2"],
    ]
    # `f` is in as many lists as `b` and more, but of those that begin with `a` more have `b`.
    lists = {"q1": [*"abf"], "q2": [*"bac"], "q3": [*"aij"], "q4": ["a", "a"]}
    lists |= {"q5": [*"fxm"], "q6": [*"fxn"], "q7": [*"xop"], "q8": [*"xqr"]}
    search = Searches(lists)
    some, _ = run("SELECT LLM('answer', RETRIEVE(q, 'c', 3)) FROM t", [*lists], search=search)
    begins = [one.splitlines()[1].removeprefix("contexts: ") for one in some.prompts]
    assert begins == [
        *('["a","a"]', '["a","b","c"]', '["a","b","f"]', '["a","i","j"]'),
        *('["x","f","m"]', '["x","f","n"]', '["x","o","p"]', '["x","q","r"]'),
    ]
    first, second = done.report["stages"]
    assert (first["instruction"], first["distinct"]) == ("RETRIEVE(..., 'c', 3)", 3)
    assert (first["asked"], second["asked"], done.report["asked"]) == (0, 3, 3)
    keeps = "SELECT q, LLM('answer', RETRIEVE(q, 'c', 3, keep_rank := true)) FROM t"
    assert 'contexts: ["c3","c1","c2"]' in run(keeps, ["q1", "q2"])[0].prompts[0]
    assert run("SELECT RETRIEVE(q, 'c', 2) FROM t", ["q1", None])[1].rows == [
        (["c3", "c1"],),
        (None,),
    ]


def test_a_text_is_searched_for_once_and_an_answer_stays_as_rows_come(tmp_path: Path) -> None:
    sql = "SELECT LLM('answer', RETRIEVE(q, 'c', 3), q) FROM t WHERE RETRIEVE(q, 'c', 3)[1] <> ''"
    searches, path = Searches(), tmp_path / "a.duckdb"
    run(sql, ["q1", "q2", "q1"], search=searches, answers=path)
    assert searches.texts[1:] == ["q1", "q2"]
    # By now c1 and c2 are in more lists than before: an answer is found by the contexts.
    asker, done = run(sql, ["q2", "q1", "q3"], answers=path)
    assert [one.splitlines()[2] for one in asker.prompts] == ["q: q3"]
    assert done.report["answered_before"] == 2


def test_explain_counts_texts_and_contexts() -> None:
    sql = "SELECT LLM('answer', RETRIEVE(q, 'c', 3), q) FROM t"
    t = {"t": pa.table({"q": ["q1", "q2", "q1"]})}
    searching, asking = tables.sql(sql, t, answers=False).explain().to_json()["stages"]
    assert [searching[one] for one in ("rows", "distinct", "to_ask")] == [3, 2, 0]
    assert asking["to_ask"] == 2
    assert 2 * 3 * 254 <= asking["prompt_tokens"] <= 2 * (3 * 254 + 20)


def test_a_collection_by_the_engines_of_a_runtime(
    runtime: Runtime, request: pytest.FixtureRequest
) -> None:
    tenant = request.node.name
    texts = {"lamp": "The keeper trims the lamp.", "cat": "The cat sleeps all day."}
    given = [{"name": name, "text": text} for name, text in texts.items()]
    collections.index(given, collection="island", runtime=runtime, tenant=tenant)
    t = tables.table(pa.table({"q": ["Who trims the lamp?", "Does the cat sleep?", None]}))
    found = tables.retrieve(t.q, "island", 1)
    rows = t.select(k=found).run(runtime=runtime, tenant=tenant).rows
    assert rows == [([texts["lamp"]],), ([texts["cat"]],), (None,)]
    asker = FunctionAsker(lambda i, v: (v[0], None))
    options: dict[str, Any] = {"ask_rows": asker, "answers": False}
    options["search"] = search_of(runtime, tenant)
    made = t.select(a=tables.llm("answer", found, t.q))
    assert made.run(**options).rows[0] == (f'["{texts["lamp"]}"]',)
    before = len(asker.prompts)
    missing = t.select(a=tables.llm("p", t.q), k=tables.retrieve(t.q, "isle", 1))
    with pytest.raises(InputError, match=r"no collection 'isle' .*island.*index"):
        missing.run(**options)
    assert len(asker.prompts) == before


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "SELECT RETRIEVE(q) FROM t",
            "line 1, column 8: write RETRIEVE\\(column, 'collection', 3\\)",
        ),
        ("SELECT RETRIEVE(q, 'c') FROM t", "a text, a collection and a number"),
        ("SELECT RETRIEVE(q, q, 3) FROM t", "collection is no constant"),
        ("SELECT RETRIEVE(q, '', 3) FROM t", "name of a collection.*line 1, column 8"),
        ("SELECT RETRIEVE(q, 'c', 0) FROM t", "from 1 to 200.*line 1, column 8"),
        ("SELECT RETRIEVE(q, 'c', 3, keep_rang := true) FROM t", "did you mean 'keep_rank'"),
        ("SELECT RETRIEVE(q, 'c', 3, keep_rank := 1) FROM t", "true or false"),
        ("SELECT RETRIEVE(random(), 'c', 3) FROM t", r"random\(\)"),
        ("SELECT sum(RETRIEVE(q, 'c', 3)) FROM t", "sum"),
        ("SELECT (SELECT RETRIEVE(u.q, 'c', 1)[1] FROM t u WHERE u.q = t.q) FROM t", "correlated"),
    ],
)
def test_refused(sql: str, said: str) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        run(sql, ["q1"])
