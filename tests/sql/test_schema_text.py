"""Tables and names as a prompt has them."""

from __future__ import annotations

import pytest

from teola.errors import InputError
from teola.sql.dialects.dialect import SqlDialect
from teola.sql.dialects.duckdb import DUCKDB
from teola.sql.dialects.postgres import POSTGRES
from teola.sql.dialects.sqlite import SQLITE
from teola.sql.schema_text import SHORT_SAMPLE, quoted_text, schema_text, table_text, tokens_about
from teola.sql.sql_schema import Schema, folded_tables
from teola.sql.sql_tables import LONGEST_SAMPLE, SqlColumn, SqlTable
from teola.sql.written_names import (
    LONGEST_SHOWN,
    column_name_text,
    name_text,
    table_name_text,
)


def test_a_text_of_the_database_is_cut_where_it_is_too_long() -> None:
    """With the mark of what was cut it is as long as one that just fits."""
    assert quoted_text("é" * LONGEST_SAMPLE) == f'"{"é" * LONGEST_SAMPLE}"'
    assert quoted_text("é" * (LONGEST_SAMPLE + 1)) == f'"{"é" * (LONGEST_SAMPLE - 1)}…"'
    assert quoted_text('a"\n', 3) == r'"a\"\n"'
    assert quoted_text("abcd", 3) == '"ab…"'


def test_a_column_is_a_line() -> None:
    columns = (
        SqlColumn("a", "INT", "told by  the\ndatabase", True),
        SqlColumn("b", f"ENUM('{'x' * 99}')", "", False, "t.a", ("s" * 61, 'q"')),
        SqlColumn("c", ""),
    )
    told = SqlTable("t", columns, 10, "of tides", view=True)
    assert table_text(told, {"t.a": "told by  people"}).splitlines() == [
        'view t (about 10 rows) "of tides"',
        '  a INT key "told by people"',
        f"""  b ENUM('{"x" * (SHORT_SAMPLE - 6)} -> t.a such as "{"s" * 59}…", "q\\"\"""",
        "  c",
    ]
    assert table_text(told, {"t": "hint"}).startswith('view t (about 10 rows) "hint"\n')
    assert '  a INT key "told by the database"' in table_text(told, {})


@pytest.mark.parametrize(
    ("rows", "text"),
    [(None, ""), (0, " (0 rows)"), (9, " (9 rows)"), (10, " (about 10 rows)"),
     (1_234, " (about 1,000 rows)")],
)  # fmt: skip
def test_rows_are_told_exactly_while_they_are_few(rows: int | None, text: str) -> None:
    assert schema_text([SqlTable("t", (), rows)]) == f"table t{text}"


def test_a_token_has_four_characters_about() -> None:
    assert [tokens_about("x" * count) for count in (0, 3, 4, 8)] == [1, 1, 2, 3]


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dialect", "text"),
    [
        ("boats", POSTGRES, "boats"),
        ("Boats", POSTGRES, '"Boats"'),
        ("Boats", SQLITE, "Boats"),
        ("ORDER", SQLITE, '"ORDER"'),
        ("order", DUCKDB, '"order"'),
        ("order", None, "order"),
        ("a b", None, '"a b"'),
        ('a"b', SQLITE, '"a""b"'),
        ("2nd", SQLITE, '"2nd"'),
        ("", SQLITE, '""'),
        ("größe", POSTGRES, "größe"),
        ("a \n b", SQLITE, '"a b"'),
        ("- " + "x" * LONGEST_SHOWN, SQLITE, f'"- {"x" * (LONGEST_SHOWN - 2)}"'),
    ],
)
def test_a_name_is_written_so_that_its_database_reads_it(
    name: str, dialect: SqlDialect | None, text: str
) -> None:
    assert name_text(name, dialect) == text


@pytest.mark.parametrize(
    ("dialect", "table", "column"),
    [
        (DUCKDB, 'yard."order"', 'yard."order".id'),
        (SQLITE, '"yard.order"', '"yard.order".id'),
        (None, '"yard.order"', '"yard.order".id'),
    ],
)
def test_a_table_has_its_schema_where_there_are_some(
    dialect: SqlDialect | None, table: str, column: str
) -> None:
    assert table_name_text("yard.order", dialect) == table
    assert column_name_text("yard.order.id", dialect) == column
    assert column_name_text("id", dialect) == "id"
    assert table_name_text("a.b.c", DUCKDB) == 'a."b.c"'


# --- schemas --------------------------------------------------------------------------------------


def test_a_private_column_is_one_of_a_table() -> None:
    Schema.of({"a": ["b"], "c": None, "s.t": ["u"]}, ["a.b", "c.anything", "s.t.u"])
    for wrong in ("a.c", "b", "d.b", "s.u", "t.u"):
        with pytest.raises(InputError, match=rf"'{wrong}' is none of the database's"):
            Schema.of({"a": ["b"], "c": None, "s.t": ["u"]}, [wrong])


def test_schemas_are_alike_where_the_same_may_run() -> None:
    schema = Schema.of({"a": ["b"]}, ["a.b"], ["kind"])
    assert schema.alike(Schema.of({"a": ("b",)}, ["a.b"], ["kind"]))
    for other in (
        Schema.of({"a": ["b", "c"]}, ["a.b"], ["kind"]),
        Schema.of({"a": ["b"]}, [], ["kind"]),
        Schema.of({"a": ["b"]}, ["a.b"]),
    ):
        assert not schema.alike(other)


def test_a_table_is_found_with_and_without_the_main_schema() -> None:
    """A table that has the name as it stands comes before one that is called so by its schema."""
    schema = Schema.of({"Boats": ["Id"], "main.berths": ["a"], "yard.boats": ["b"]}, ["Boats.Id"])
    found = folded_tables(schema, DUCKDB)
    assert {key: table.name for key, table in found.items()} == {
        "boats": "Boats",
        "main.boats": "Boats",
        "main.berths": "main.berths",
        "main.main.berths": "main.berths",
        "berths": "main.berths",
        "yard.boats": "yard.boats",
        "main.yard.boats": "yard.boats",
    }
    assert (found["boats"].columns, found["boats"].private) == (("id",), frozenset({"id"}))
    both = folded_tables(Schema.of({"main.a": ["x"], "a": ["y"]}), DUCKDB)
    assert (both["main.a"].columns, both["a"].columns) == (("x",), ("y",))
    assert folded_tables(schema, POSTGRES).keys() == {"Boats", "main.berths", "yard.boats"}
