"""DuckDB's own answer, with a plain Python function as the model, and the same by a plan."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from math import ceil
from typing import Any

import duckdb
from sqlglot import exp

from teola.runtime.rows import OnAnswers, Row, RowAnswer, RowsCall, RowsEnd, RowsHandle
from teola.tables.answer_table import AnswerTable
from teola.tables.duckdb_schema import written
from teola.tables.executor import Executor
from teola.tables.group_asking import ALL
from teola.tables.llm_call import LlmCall
from teola.tables.marks import (
    ERROR,
    GROUP_ERROR,
    GROUPED,
    Calls,
    calls_in,
    fields_of,
    is_retrieval,
    mark,
    order_of,
    retrieval_at,
)
from teola.tables.plan_builder import PASSES
from teola.tables.planner import plan_text
from teola.tables.query_text import read_query
from teola.tables.retrieval import Retriever
from teola.tables.retrieval_call import RetrievalCall
from teola.tables.row_asking import CallAsker
from teola.tables.run_limits import RunLimits, Spent

WORDS = ("Yes", "No", "good", "bad", "3", "1", "x", "7")


def model(instruction: str, values: Sequence[str]) -> tuple[str | None, str | None]:
    """An answer and an error: a function of the instruction and the set of values."""
    plain = [repr(sorted(json.loads(v))) if v.startswith('["') else v for v in values]
    said = repr((instruction, sorted(plain)))
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


def contexts_of(collection: str, k: int, text: str | None) -> list[str] | None:
    """What a search finds: a function of the text."""
    if text is None:
        return None
    number = int.from_bytes(hashlib.sha256(f"{collection} {text}".encode()).digest()[:2], "big")
    return [f'context {(number * (at + 3)) % 11}, "{collection}"' for at in range(k)]


def search(call: RetrievalCall, texts: Sequence[str], seconds: float) -> list[list[str]]:
    """The same as a run has it."""
    return [contexts_of(call.collection, call.k, one) or [] for one in texts]


def group_model(
    instruction: str, lines: Sequence[str | None] | None, part_tokens: int
) -> tuple[str | None, str | None]:
    """What a tree of prompts makes of the lines of a group, without any of Teola."""
    said, least = instruction, 1
    left = [one for one in lines or () if one is not None]
    while left:
        parts: list[list[str]] = [[]]
        for line in left:
            size = sum(ceil(len(one) / 4) for one in [*parts[-1], line])
            if len(parts[-1]) >= least and size > part_tokens:
                parts.append([])
            parts[-1].append(line)
        answers = [model(said, values_of("".join(one))) for one in parts]
        for _, error in answers:
            if error is not None:
                return None, error
        values = [value for value, _ in answers if value is not None]
        if len(values) < 2:
            return (values or [None])[0], None
        left = [f"\npart: {one}" for one in values]
        said, least = f"{instruction}\n{ALL}", 2
    return None, None


def _text(node: exp.Expr) -> str:
    sql = written(node)
    listed = isinstance(node, exp.Anonymous) and node.this == "oracle_contexts"
    return f"CAST(to_json({sql}) AS VARCHAR)" if listed else f"CAST(({sql}) AS VARCHAR)"


def _grouped(call: LlmCall, node: exp.Expr) -> exp.Expr:
    """An LLM_AGG as a function of a list."""
    lines, nulls = [], []
    for name, one in zip(call.names or _names(node), fields_of(node), strict=True):
        lines += [f"'\n{name}: '", f"coalesce(CAST(({written(one)}) AS VARCHAR), '')"]
        nulls.append(f"({written(one)}) IS NULL")
    keys = ", ".join(written(key) for order in order_of(node) for key in order.expressions)
    line = f"CASE WHEN NOT ({' AND '.join(nulls)}) THEN concat({', '.join(lines)}) END"
    listed = f"list({line}{f' ORDER BY {keys}' if keys else ''})"
    if isinstance(node.parent, exp.Filter):
        listed += f" FILTER (WHERE {written(node.parent.expression.this)})"
    name = "oracle_agg_error" if node.this == GROUP_ERROR else "oracle_agg"
    assert call.group is not None
    text = f"{name}('{call.instruction}', {listed}, {call.group.part_tokens})"
    return exp.maybe_parse(f"CAST({text} AS {call.type})", dialect="duckdb")


def _names(node: exp.Expr) -> list[str]:
    fields = enumerate(fields_of(node), 1)
    return [one.name if isinstance(one, exp.Column) else f"field{at}" for at, one in fields]


def oracle_rows(con: duckdb.DuckDBPyConnection, sql: str, tables: Sequence[str]) -> list[Any]:
    """What DuckDB gives where each call is a function of its own."""
    calls = Calls(sql)
    tree = mark(read_query(sql, tables), calls)
    for node in reversed(list(calls_in(tree))):
        if is_retrieval(node):
            one = retrieval_at(node)
            text = f"CAST(({written(fields_of(node)[0])}) AS VARCHAR)"
            node.replace(
                exp.maybe_parse(
                    f"oracle_contexts('{one.collection}', {one.k}, {text})", dialect="duckdb"
                )
            )
            continue
        call = calls.of(node)
        if node.this in GROUPED:
            whole = node.parent if isinstance(node.parent, exp.Filter) else node
            whole.replace(_grouped(call, node))
            continue
        values = [f"coalesce({_text(one)}, '')" for one in fields_of(node)]
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
    listed = [*types, duckdb.sqltype("BIGINT")]
    con.create_function(
        "oracle_agg", lambda i, v, n: group_model(i, v, n)[0], listed, text, **options
    )
    con.create_function(
        "oracle_agg_error", lambda i, v, n: group_model(i, v, n)[1], listed, text, **options
    )
    found = [text, duckdb.sqltype("BIGINT"), text]
    lists = duckdb.sqltype("VARCHAR[]")
    con.create_function("oracle_contexts", contexts_of, found, lists, **options)
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
    answers = AnswerTable(con)
    made = CallAsker(
        con, answers, asker or FunctionAsker(), Spent(limits), passes, lambda call: "stub"
    )
    made.retriever = Retriever(con, search, made.spent)
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
