"""The filter: what it refuses, what it takes, and what it says.

Long because one door has them all: a statement is taken or refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from teola.errors import ToolError, UnknownName
from teola.sql.select_only import _filtered, select_only
from teola.sql.sql_schema import Schema
from tests.planted import catches, edited
from tests.sql.sql_statements import (
    ALLOWED,
    ASKED,
    ASKED_OF_POSTGRES,
    ASKED_OF_SQLITE,
    BOTH,
    POSTGRES,
    SQLITE,
)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """A statement that a planted bug has let through is not remembered."""
    _filtered.cache_clear()
    yield
    _filtered.cache_clear()


CHECKS = "teola.sql.statement_checks:_Checks"
scopes_forgotten = catches(
    "scopes-forgotten",
    "a name that any WITH of the statement has is no table's wherever it stands",
    edited(f"{CHECKS}._table", "visible_parts(table)", "table.root().find_all(exp.CTE)"),
)
own_body = catches(
    "own-body",
    "a part of WITH that is not recursive reads itself",
    edited("teola.sql.with_scopes:visible_parts", "bool(parent.recursive)", "1"),
)
in_a_table = catches(
    "in-a-table",
    "IN takes the name of a table",
    edited(f"{CHECKS}.check", 'isinstance(node, exp.In) and node.args.get("field")', "False"),
)
a_field_is_a_function = catches(
    "a-field-is-a-function",
    "(text).function calls it",
    edited(f"{CHECKS}._dot", "isinstance(dot.expression, exp.Star)", "True"),
)


ATTACKS = (
    "SELECT 1; DROP TABLE berths",
    "DELETE FROM berths",
    "INSERT INTO berths VALUES (1)",
    "UPDATE berths SET boat = 'x'",
    "WITH gone AS (DELETE FROM berths RETURNING *) SELECT * FROM gone",
    "SELECT * INTO copy FROM berths",
    "SELECT * FROM berths FOR UPDATE",
    "CREATE TABLE x (y int)",
    "ALTER TABLE berths ADD COLUMN z int",
    "COPY berths TO '/tmp/x'",
    "SET ROLE admin",
    "DO $$ BEGIN END $$",
    "CALL f()",
    "EXPLAIN ANALYZE DELETE FROM berths",
    "TABLE pg_shadow",
    "SELECT * FROM pg_catalog.pg_shadow",
    "SELECT * FROM information_schema.tables",
    "SELECT pg_sleep(100)",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT current_setting('x')",
    "SELECT set_config('statement_timeout', '0', false)",
    "SELECT lo_import('/etc/passwd')",
    "SELECT dblink('x', 'y')",
    "SELECT repeat('x', 1000000000)",
    "SELECT * FROM generate_series(1, 1000000000)",
    "SELECT pg_advisory_lock(1)",
    "LISTEN x",
    "VACUUM",
    "SHOW ALL",
    "not sql at all",
    "",
)


@catches(
    "any-function",
    "a function that reads files may be called",
    edited(f"{CHECKS}._call", "name not in self.dialect.callable", "False"),
)
def test_nothing_but_a_select_is_run() -> None:
    for sql in ATTACKS:
        with pytest.raises(ToolError):
            select_only(sql, "postgres")


@pytest.mark.parametrize(
    "sql",
    [
        "PRAGMA writable_schema=ON",
        "ATTACH DATABASE '/tmp/x' AS y",
        "SELECT load_extension('x')",
        "SELECT * FROM sqlite_master",
        "SELECT printf('%.*c', 900000000, 'x')",
        "SELECT format('%.*c', 900000000, 'x')",
        "SELECT zeroblob(1000000000)",
        "SELECT readfile('/etc/passwd')",
    ],
)
def test_nor_what_only_sqlite_has(sql: str) -> None:
    with pytest.raises(ToolError):
        select_only(sql, "sqlite")


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_what_people_ask_is_taken(dialect: str) -> None:
    for sql in (
        "SELECT boat, count(*) AS n FROM berths WHERE depth > 3 GROUP BY boat ORDER BY n LIMIT 3",
        "WITH deep AS (SELECT * FROM berths WHERE depth > 4) SELECT max(depth) FROM deep",
        "SELECT a.boat FROM berths a JOIN berths b ON a.id = b.id WHERE a.boat LIKE 'K%'",
        "SELECT boat FROM berths UNION SELECT upper(boat) FROM berths",
        "SELECT CASE WHEN depth > 3 THEN 'deep' ELSE 'flat' END FROM berths",
        "SELECT id, rank() OVER (ORDER BY depth) FROM berths",
        "SELECT boat FROM berths WHERE EXISTS (SELECT 1 FROM berths WHERE depth IS NOT NULL)",
        "SELECT avg(depth), round(sum(depth), 1), coalesce(min(boat), '') FROM berths",
    ):
        assert select_only(sql, dialect, ["berths"]).startswith(("SELECT", "WITH"))


def test_only_the_tables_that_are_named() -> None:
    with pytest.raises(ToolError, match="no table 'crew' to read; there are berths"):
        select_only("SELECT * FROM berths JOIN crew ON true", "postgres", ["berths"])
    with pytest.raises(ToolError, match=r"no table 'other\.berths'"):
        select_only("SELECT * FROM other.berths", "postgres", ["berths"])


SCHEMA = Schema.of({"berths": ["id", "boat", "depth"], "paid_berths": ["boat", "paid"]})


def taken(dialect: str, statements: tuple[str, ...]) -> list[str]:
    """The statements that were not refused, with names of tables alone or with columns."""
    through = []
    for sql in statements:
        for tables in (ALLOWED, SCHEMA):
            try:
                select_only(sql, dialect, tables)
            except ToolError:
                continue
            through.append(sql)
    return through


@scopes_forgotten
@in_a_table
def test_no_select_leaves_the_tables_of_an_sqlite_file() -> None:
    assert set(taken("sqlite", SQLITE)) <= {"SELECT id FROM berths WHERE 424242 IN (secrets)"}


@scopes_forgotten
@own_body
@a_field_is_a_function
def test_no_select_leaves_the_tables_of_a_server() -> None:
    assert set(taken("postgres", POSTGRES)) <= {"SELECT salaries FROM berths"}
    assert taken("duckdb", BOTH) == []


def test_what_people_ask_of_their_tables_is_taken() -> None:
    asked = {"sqlite": ASKED_OF_SQLITE, "postgres": ASKED_OF_POSTGRES, "duckdb": ASKED}
    for dialect, statements in asked.items():
        for sql in statements:
            for tables in (ALLOWED, SCHEMA, None):
                assert select_only(sql, dialect, tables)


def test_wrong_names_are_told_with_the_nearest() -> None:
    for sql, told in {
        "SELECT dept FROM berths": "no column 'dept' in berths; did you mean 'depth'",
        "SELECT b.bot FROM berths b": "no column 'bot' in 'b'; did you mean 'boat'",
        "SELECT c.boat FROM berths b": "no table 'c' in this FROM; there are b",
        "SELECT boat FROM berth": "no table 'berth' to read; did you mean 'berths'",
        "WITH a AS (SELECT id AS n FROM berths) SELECT m FROM a": "no column 'm' in a",
        "SELECT lenght(boat) FROM berths": "function lenght is not taken here; did you mean length",
    }.items():
        for dialect in ("sqlite", "postgres", "duckdb"):
            with pytest.raises(ToolError, match=told):
                select_only(sql, dialect, SCHEMA)
    with pytest.raises(UnknownName, match="mysql"):
        select_only("SELECT 1", "mysql")


PRIVATE = Schema.of(
    {"patients": ["id", "name", "email"], "visits": ["id", "at"]}, ["patients.email"]
)
TELLING_EMAILS = (
    "SELECT email FROM patients",
    "SELECT p.EMAIL FROM patients p",
    "SELECT * FROM patients",
    "SELECT p.* FROM patients p JOIN visits v ON v.id = p.id",
    "SELECT id FROM patients WHERE email LIKE 'a%'",
    "SELECT id FROM patients ORDER BY email",
    "SELECT count(DISTINCT email) FROM patients",
    "SELECT (SELECT max(email) FROM patients) FROM visits",
    "SELECT id FROM visits WHERE EXISTS (SELECT 1 FROM patients p WHERE p.email > 'm')",
    "SELECT email FROM visits v JOIN patients p ON p.id = v.id",
    "SELECT v.at FROM visits v, patients p WHERE email > 'm'",
    "SELECT a.e FROM (SELECT email AS e FROM patients) a",
    "WITH x AS (SELECT * FROM patients) SELECT email FROM x",
    "SELECT id FROM patients NATURAL JOIN patients q",
    "SELECT p.id FROM patients p JOIN patients q USING (email)",
    "SELECT p FROM patients p",
    "SELECT patients FROM patients",
    "SELECT concat(*) FROM patients",
    # by a name that an inner SELECT may have, and has not
    "SELECT (SELECT email AS email) FROM patients",
    "SELECT (SELECT email FROM visits v, (SELECT 1 + 1) q LIMIT 1) FROM patients",
    "SELECT (SELECT p.email FROM (SELECT 1 + 1) p) FROM patients p",
    "SELECT x.* FROM patients p, LATERAL (SELECT p.*) x",
    # by brackets around tables
    "SELECT * FROM ((patients JOIN visits ON true))",
    "SELECT email FROM ((patients JOIN visits ON true)), (SELECT 1 + 1) q",
    "SELECT * FROM ((SELECT 1 AS a) x JOIN patients ON true)",
    "SELECT x.* FROM (patients JOIN visits ON true) AS x",
    "SELECT x FROM (patients JOIN visits ON true) AS x, (SELECT 1 + 1) q",
    "SELECT c FROM (patients JOIN visits ON true) AS x (a, b, c, d, e), (SELECT 1 + 1) q",
)
OF_POSTGRES = (
    "SELECT (SELECT email FROM unnest(ARRAY[1]) AS u) FROM patients",
    "SELECT row_to_json(x) FROM (patients JOIN visits ON true) AS x, unnest(ARRAY[1]) u",
)
OF_SQLITE = (
    "SELECT (SELECT email FROM json_each('[1]')) FROM patients",
    "SELECT json_each.email FROM json_each('[1]'), patients AS json_each",
    "SELECT json_each.* FROM json_each('[1]'), patients AS json_each",
    "SELECT (SELECT json_each.email FROM json_each('[1]')) FROM patients AS json_each",
    "SELECT rowid FROM patients",
    "SELECT p.oid FROM patients p",
)
OF_DUCKDB = (
    "SELECT COLUMNS(*) FROM patients",
    "SELECT min(COLUMNS('e.*')) FROM patients",
    "FROM patients",
    "SELECT * EXCLUDE (id) FROM patients",
    "PIVOT patients ON name USING max(email)",
    "UNPIVOT patients ON email INTO NAME k VALUE v",
    "SELECT struct_pack(e := email) FROM patients",
    "SELECT [email for email in [email]] FROM patients",
    "SELECT list_transform([1], email -> p.email) FROM patients p",
    "SELECT lower(email -> '$.a') FROM patients",
    "SELECT main.patients FROM patients, unnest([1]) u",
    "SELECT email.lower() FROM patients",
    "SELECT (p.email || 'x').length() FROM patients p",
    "SELECT (SELECT max(email) FROM patients).lower()",
)


@catches(
    "private-in-one-of-two",
    "of two tables under one name only the one that hides more is asked",
    edited("teola.sql.column_names:ColumnNames._is_in", "name in source.private, ", "False, "),
)
def test_of_two_tables_under_one_name_each_hides_its_own() -> None:
    schema = Schema.of(
        {"patients": ["id", "email"], "doctors": ["id", "email", "pay", "age"]},
        private=["patients.email", "doctors.pay", "doctors.age"],
    )
    for hidden in ("email", "pay", "age"):
        for of in ("patients AS x, doctors AS x", "doctors AS x, patients AS x"):
            with pytest.raises(ToolError):
                select_only(f"SELECT x.{hidden} FROM {of}", "sqlite", schema)


@catches(
    "private-namesake",
    "a function hides a table with private columns that is called like it",
    edited("teola.sql.column_names:ColumnNames._is_in", "max(named, key=", "min(named, key="),
)
@catches(
    "private-star",
    "* reads private columns",
    edited("teola.sql.column_names:ColumnNames._star", "if source.private:", "if False:"),
)
@catches(
    "private-name",
    "a private column may be named",
    edited("teola.sql.column_names:ColumnNames._refuse_private", "raise ToolError", "str"),
)
def test_private_columns_are_read_by_nothing() -> None:
    for dialect in ("sqlite", "postgres", "duckdb"):
        own = {"sqlite": OF_SQLITE, "postgres": OF_POSTGRES, "duckdb": OF_DUCKDB}[dialect]
        for sql in (*TELLING_EMAILS, *own):
            with pytest.raises(ToolError):
                select_only(sql, dialect, PRIVATE)
        for sql in (
            "SELECT id, name FROM patients",
            "SELECT count(*) FROM patients",
            "SELECT * FROM visits",
            "SELECT v.* FROM visits v JOIN patients p ON p.id = v.id",
            "SELECT v.id FROM visits v WHERE EXISTS (SELECT 1 FROM patients p WHERE p.id = v.id)",
            "WITH x AS (SELECT p.* FROM visits p) SELECT x.id FROM x JOIN patients p ON true",
            "SELECT v.id FROM (visits v JOIN patients p ON p.id = v.id)",
        ):
            assert select_only(sql, dialect, PRIVATE)
    assert select_only("SELECT name.lower() FROM patients", "duckdb", PRIVATE)


@catches(
    "a-function-by-alias",
    "alias.function calls it, where the alias is a function's",
    edited("teola.sql.column_names:ColumnNames._item", "self.dialect.fields_call", "False"),
)
def test_no_function_of_a_server_is_called_by_the_alias_of_another() -> None:
    for sql in (
        "SELECT f.ts_stat FROM unnest(ARRAY['SELECT to_tsvector(pay::text) FROM salaries']) AS f",
        "SELECT f.pg_sleep FROM generate_series(1, 1) AS f",
        "SELECT g.pg_sleep FROM berths, LATERAL unnest(ARRAY[berths.id]) AS g",
        "SELECT pg_ls_dir.pg_ls_dir FROM jsonb_array_elements_text('[\"/\"]') AS pg_ls_dir",
    ):
        for tables in (ALLOWED, SCHEMA, None):
            with pytest.raises(ToolError, match=r"no column 'pg_|no column 'ts_stat'"):
                select_only(sql, "postgres", tables)
    for sql in (
        "SELECT f.f, g.value ->> 'a', h.key, i.x, j.j, j.ordinality FROM unnest(ARRAY[1]) AS f, "
        "jsonb_array_elements('[1]') AS g, jsonb_each('{}') AS h, unnest(ARRAY[1]) AS i (x), "
        "unnest(ARRAY[1]) WITH ORDINALITY AS j",
        "SELECT g ->> 'a', b.boat FROM berths b, jsonb_array_elements('[1]') AS g",
    ):
        for tables in (ALLOWED, SCHEMA, None):
            assert select_only(sql, "postgres", tables)


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("postgres", "SELECT * FROM generate_series(1, 100001)"),
        ("postgres", "SELECT * FROM generate_series(1, (SELECT max(id) FROM berths))"),
        ("postgres", "SELECT generate_series(1, 1000000000)"),
        ("postgres", "SELECT * FROM generate_series(1, 1e999)"),
        ("postgres", "SELECT * FROM generate_series(date '2000-01-01', '2026-01-01', '1 minute')"),
        ("postgres", "SELECT * FROM generate_series(1, 5, 0)"),
        ("postgres", "SELECT lpad(boat, id) FROM berths"),
        ("postgres", "SELECT repeat('x', 10001)"),
        ("postgres", "SELECT repeat(repeat(repeat('x', 9999), 9999), 9999)"),
        ("postgres", "SELECT format('%*s', 1000000000, 'x')"),
        ("postgres", "SELECT format('%1000000000s', 'x')"),
        ("sqlite", "SELECT printf('%.*c', 900000000, 'x')"),
        ("sqlite", "SELECT printf(boat) FROM berths"),
        ("sqlite", "SELECT zeroblob(1000000000)"),
        ("duckdb", "SELECT ('x').repeat(2000000000)"),
        ("duckdb", "SELECT list_resize([1], 1000000000)"),
        ("duckdb", "SELECT format('{:>1000000000}', 'x')"),
        ("duckdb", "SELECT format('{:>{}}', 'x', 1000000000)"),
        ("duckdb", "SELECT range(1000000000)"),
    ],
)
def test_what_makes_much_of_little_has_constant_bounds(dialect: str, sql: str) -> None:
    with pytest.raises(ToolError):
        select_only(sql, dialect, ["berths"])


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("postgres", "SELECT ctid, tableoid::regclass FROM berths"),
        ("postgres", "SELECT 'berths'::regclass"),
        ("duckdb", "SELECT * FROM 'berths.csv'"),
        ("duckdb", "SELECT * FROM read_csv('/etc/passwd')"),
        ("duckdb", "FROM query('SELECT 1')"),
        ("duckdb", "FROM duckdb_settings()"),
        ("duckdb", "SELECT getenv('HOME')"),
        ("duckdb", "INSTALL httpfs"),
        ("duckdb", "SUMMARIZE berths"),
    ],
)
def test_nothing_outside_of_the_tables_is_reached(dialect: str, sql: str) -> None:
    for tables in (["berths"], None):
        with pytest.raises(ToolError):
            select_only(sql, dialect, tables)


@catches(
    "any-type",
    "a statement may cast to the rows of any table",
    edited(
        "teola.sql.statement_checks:_Checks._type",
        "if not name or self.schema",
        "if name and 0 and self.schema",
    ),
)
def test_a_type_is_the_databases_own_or_a_columns() -> None:
    """In PostgreSQL each table is a type, which tells its columns, and _regclass looks up names."""
    schema = Schema.of({"berths": ["id", "kind"]}, types=["kind", "My Type", "integer"])
    for honest in ("kind", "KIND[]", '"My Type"', "citext", "integer", "tsquery"):
        assert select_only(f"SELECT 'x'::{honest} FROM berths", "postgres", schema)
    assert select_only("SELECT 'x'::kind FROM berths", "postgres")
    assert select_only("SELECT CAST('x' AS salaries) FROM berths", "sqlite", schema)
    for hostile in ("_regclass", "pg_authid", "_kind"):
        for known in (schema, None):
            with pytest.raises(ToolError, match=r"the type .* is no column's"):
                select_only(f"SELECT '{{x}}'::{hostile}", "postgres", known)
    for sql in (
        "SELECT (NULL::salaries).*",
        "SELECT CAST(ROW('a', 1) AS salaries)",
        "SELECT * FROM json_to_recordset('[]') AS x(a salaries)",
        "SELECT 'x'::\"Kind\"",
    ):
        with pytest.raises(ToolError):
            select_only(sql, "postgres", schema)


def test_what_runs_is_what_was_written() -> None:
    """Functions keep their names and arguments, and comments go."""
    written = select_only(
        "select to_char(depth, 'FM990.0') /* x */, count(*) from berths -- y", "postgres", ALLOWED
    )
    assert written == "SELECT to_char(depth, 'FM990.0'), count(*) FROM berths"
    assert select_only("SELECT strftime('%Y', 'now')", "sqlite") == "SELECT strftime('%Y', 'now')"
    with pytest.raises(ToolError, match="FOR UPDATE"):
        select_only("SELECT * FROM berths FOR UPDATE", "sqlite")


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("postgres", "SELECT STRING_AGG(DISTINCT kind, ', ' ORDER BY kind) FROM berths"),
        ("duckdb", "SELECT STRING_AGG(DISTINCT kind, ', ') FROM berths"),
        ("postgres", "SELECT JSONB_ARRAY_LENGTH(kind -> 'crew') FROM berths"),
        ("sqlite", "SELECT JSON_ARRAY_LENGTH(kind -> '$.crew') FROM berths"),
        ("duckdb", "SELECT JSON_ARRAY_LENGTH(kind -> 'crew') FROM berths"),
        ("duckdb", "SELECT LIST_TRANSFORM([1], LAMBDA x : x + 1)"),
        ("duckdb", "SELECT QUANTILE_CONT(0.5) WITHIN GROUP (ORDER BY depth) FROM berths"),
        ("duckdb", "SELECT LAG(depth, 1 IGNORE NULLS) OVER (ORDER BY depth) FROM berths"),
        ("duckdb", "WITH p AS (PIVOT berths ON kind USING COUNT(*)) SELECT * FROM p"),
        ("duckdb", "SELECT CAST({'a': 1} AS STRUCT(a BIGINT))"),
    ],
)
def test_no_argument_is_translated(dialect: str, sql: str) -> None:
    """sqlglot would make one argument of two, a lambda of a step into JSON, and lose a clause."""
    assert select_only(sql, dialect, ALLOWED) == sql


def test_a_pivot_in_with_reads_what_others_may() -> None:
    for sql in (
        "WITH p AS (PIVOT salaries ON name USING count(*)) SELECT * FROM p",
        "WITH p AS (PIVOT berths ON kind USING max((SELECT pay FROM salaries))) SELECT * FROM p",
        "SELECT ROW(1)::STRUCT(a INTEGER DEFAULT 1)",
    ):
        with pytest.raises(ToolError):
            select_only(sql, "duckdb", ALLOWED)
    private = Schema.of({"berths": ["id", "email"]}, private=["berths.email"])
    for dialect, sql in (
        ("duckdb", "WITH p AS (PIVOT berths ON email USING count(*)) SELECT * FROM p"),
        ("duckdb", "SELECT json_array_length(email -> 'a') FROM berths"),
        ("postgres", "SELECT jsonb_array_length(email -> 'a') FROM berths"),
    ):
        with pytest.raises(ToolError):
            select_only(sql, dialect, private)


def test_types_of_the_server_itself_are_refused() -> None:
    for kind in ("xml", "xid", "tid", "aclitem", "refcursor"):
        with pytest.raises(ToolError, match="type"):
            select_only(f"SELECT '1'::{kind}", "postgres")


def test_hostile_texts_are_refused_and_not_fallen_over() -> None:
    for sql in ("SELECT " + "(" * 5_000 + "1" + ")" * 5_000, "SELECT '\0'", "SHOW ALL", "(" * 300):
        for dialect in ("sqlite", "postgres", "duckdb"):
            with pytest.raises(ToolError):
                select_only(sql, dialect)
    with pytest.raises(ToolError, match="10,000 are taken"):
        select_only("SELECT " + "1," * 9_000 + "1", "sqlite")


def test_a_part_of_with_needs_a_name_of_its_own() -> None:
    """Both readings are told apart for the model, and a table in quotes is another one."""
    itself = "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    for dialect in ("sqlite", "postgres"):
        with pytest.raises(ToolError, match="'berths', which names a table: give it another name"):
            select_only("WITH berths AS (SELECT 1) SELECT 1", dialect, ["berths"])
        with pytest.raises(ToolError, match="needs WITH RECURSIVE"):
            select_only(itself, dialect, ["berths"])
        shadow = "WITH crew AS (SELECT * FROM berths) SELECT * FROM crew"
        assert select_only(shadow, dialect, ["berths"])
    assert select_only('SELECT * FROM "BERTHS"', "sqlite", ["Berths"])
    assert select_only('SELECT * FROM "Berths"', "postgres", ["Berths"])
    with pytest.raises(ToolError, match="no table 'berths'"):
        select_only("SELECT * FROM Berths", "postgres", ["Berths"])
