"""Language models over tables: SQL and relations, at the price of the distinct prompts.

    from teola import tables

    t = tables.read("reviews.parquet")
    kids = tables.llm("Suitable for kids?", t.movie_info, t.review, choices=["Yes", "No"])
    done = t.filter(t.kind == "Fresh", kids == "Yes").run(llm="http://localhost:8000/v1")

DuckDB does everything relational, in stages; calls are asked for distinct inputs in sorted order,
and their answers are kept. See docs/tables.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from teola.extras import needs

with needs("tables", "teola.tables"):
    import duckdb
    import pyarrow
    import sqlglot

from sqlglot import exp

from teola.errors import InputError
from teola.tables.done import Done
from teola.tables.expressions import Expression, count, llm, llm_agg, retrieve
from teola.tables.relation import Relation
from teola.tables.sources import source_of
from teola.tables.table_query import TableQuery

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Done",
    "Expression",
    "Relation",
    "TableQuery",
    "count",
    "llm",
    "llm_agg",
    "read",
    "retrieve",
    "sql",
    "table",
]

_made = 0


def read(path: str | Path, table: str | None = None, *, name: str | None = None) -> Relation:
    """A file as a relation: .parquet, .csv, .tsv, .jsonl, a table of a .duckdb or SQLite file, or
    of a PostgreSQL server by its address. table: of a database. Raises InputError."""
    return _relation(source_of(path, table), name)


def table(value: Any, *, name: str | None = None) -> Relation:
    """Anything with `__arrow_c_stream__` as a relation: Arrow, Polars, pandas.

    Raises InputError.
    """
    if not hasattr(value, "__arrow_c_stream__"):
        raise InputError(
            f"a table must have __arrow_c_stream__ (pyarrow, Polars, pandas 2.2 and newer), not "
            f"{type(value).__name__}; files are for tables.read"
        )
    return _relation(source_of(value), name)


def sql(query: str, tables: Any = None, **options: Any) -> TableQuery:
    """A query over tables by name: paths, data frames, relations' sources. options: of `run`.

    Raises InputError for a table that cannot be one; the query is read when it is planned.
    """
    from teola.tables.workspace import checked_tables

    if not isinstance(query, str):
        raise InputError(f"the query must be a text, not {type(query).__name__}")
    return TableQuery(query, checked_tables(dict(tables or {})), **options)


def _relation(source: Any, name: str | None) -> Relation:
    global _made
    _made += 1
    called = name or f"t{_made}"
    tree = exp.select("*").from_(exp.to_table(called))
    return Relation(tree, {called: source}, frozenset())


_ = (duckdb, pyarrow, sqlglot)
