"""DuckDB's own answer, with a plain Python function as the model, and the same by a plan."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import duckdb
from sqlglot import exp

from teola.runtime.rows import OnAnswers, Row, RowAnswer, RowsCall, RowsEnd, RowsHandle
from teola.tables.answer_table import AnswerTable
from teola.tables.duckdb_schema import written
from teola.tables.executor import Executor
from teola.tables.marks import ERROR, Calls, calls_in, fields_of, mark
from teola.tables.plan_builder import PASSES
from teola.tables.planner import plan_text
from teola.tables.query_text import read_query
from teola.tables.row_asking import CallAsker
from teola.tables.run_limits import RunLimits, Spent

WORDS = ("Yes", "No", "good", "bad", "3", "1", "x", "7")


def model(instruction: str, values: Sequence[str]) -> tuple[str | None, str | None]:
    """An answer and an error: a function of the instruction and the set of values."""
    said = repr((instruction, sorted(values)))
    number = int.from_bytes(hashlib.sha256(said.encode()).digest()[:4], "big")
    if number % 23 == 0:
        return None, "this one fails always"
    return WORDS[number % len(WORDS)], None


class FunctionAsker:
    """Asks a function: the interface of `Runtime.ask_rows`, in a thread.

    prompts: all that it was asked. batch: answers at a time.
    """

    def __init__(self, function: Any = model, batch: int = 7) -> None:
        self.function, self.batch = function, batch
        self.prompts: list[str] = []
        self.calls: list[RowsCall] = []
        self.opened = 0

    def __call__(
        self,
        call: RowsCall,
        rows: Iterator[Row],
        on_answers: OnAnswers,
        *,
        deadline_s: float | None,
        budget: Any = None,
        price: Any = None,
    ) -> RowsHandle:
        done: Future[RowsEnd] = Future()
        stop = threading.Event()
        self.calls.append(call)

        def work() -> None:
            failed = asked = 0
            held: list[RowAnswer] = []
            try:
                for row in rows:
                    if stop.is_set():
                        break
                    asked += 1
                    self.opened += row.opens
                    self.prompts.append(call.instruction + row.text)
                    text, error = self.function(call.instruction, values_of(row.text))
                    failed += error is not None
                    held.append(RowAnswer(row.id, text, error, 10, 4, 2))
                    if len(held) >= self.batch:
                        on_answers(held)
                        held = []
                if held:
                    on_answers(held)
                state = "cancelled" if stop.is_set() else "partial" if failed else "ok"
                done.set_result(RowsEnd(state, asked, failed, asked, 0, 0, 0, 0.0))
            except BaseException as error:  # noqa: BLE001 - a test's own
                done.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return RowsHandle(done, stop.set)


def values_of(text: str) -> list[str]:
    """The values of a prompt's lines."""
    return [line.partition(": ")[2] for line in text.split("\n")[1:]]


def oracle_rows(con: duckdb.DuckDBPyConnection, sql: str, tables: Sequence[str]) -> list[Any]:
    """What DuckDB gives where each call is a function of its own."""
    calls = Calls(sql)
    tree = mark(read_query(sql, tables), calls)
    for node in reversed(list(calls_in(tree))):
        call = calls.of(node)
        values = [f"coalesce(CAST(({written(one)}) AS VARCHAR), '')" for one in fields_of(node)]
        name = "oracle_error" if node.this == ERROR else "oracle"
        type = "VARCHAR" if node.this == ERROR else call.type
        text = call.instruction.replace("'", "''")
        node.replace(
            exp.maybe_parse(
                f"TRY_CAST({name}('{text}', [{', '.join(values)}]::VARCHAR[]) AS {type})",
                dialect="duckdb",
            )
        )
    return con.execute(written(tree)).fetchall()


def connected() -> duckdb.DuckDBPyConnection:
    """A connection with the functions of the oracle."""
    con = duckdb.connect(config={"threads": 1})
    options: Any = {"null_handling": "special", "side_effects": False}
    types = [duckdb.sqltype("VARCHAR"), duckdb.sqltype("VARCHAR[]")]
    text = duckdb.sqltype("VARCHAR")
    con.create_function("oracle", lambda i, v: model(i, v)[0], types, text, **options)
    con.create_function("oracle_error", lambda i, v: model(i, v)[1], types, text, **options)
    return con


def planned_rows(
    con: duckdb.DuckDBPyConnection,
    sql: str,
    tables: Sequence[str],
    asker: FunctionAsker | None = None,
    passes: frozenset[str] = frozenset(PASSES),
) -> list[Any]:
    """What the plan gives, with the same function as the model."""
    plan = plan_text(con, sql, tables, passes)
    limits = RunLimits(max_errors=10**9)
    answers = AnswerTable(con, None)
    made = CallAsker(
        con, answers, asker or FunctionAsker(), Spent(limits), passes, lambda call: "stub"
    )
    try:
        Executor(con, made).run(plan)
        return con.execute(plan.final).fetchall()
    finally:
        for (name,) in con.execute(
            "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'teola%'"
        ).fetchall():
            con.execute(f"DROP TABLE {name}")


def same(one: list[Any], other: list[Any]) -> bool:
    """Whether two results have the same rows, in any order."""
    return sorted(map(repr, one)) == sorted(map(repr, other))
