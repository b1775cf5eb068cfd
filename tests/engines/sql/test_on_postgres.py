"""The engine on a server: what a role sees, its policies, and plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from time import monotonic
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from teola.engine import QueryContext, Request
from teola.errors import EngineUnavailable, QueryCancelled
from teola.graph.ops import Op, SqlParams, SqlWork
from teola.sql.lookup import SqlAddress, look_up
from teola.sql.postgres_catalogue import describe_postgres
from teola.sql.sql_rows import LookupLimits
from teola_engines.sql import SqlDatabase
from teola_engines.vectorstore import EmbeddedPostgres
from tests.engines.vectorstore.conftest import temporary_folder
from tests.planted import catches, edited

STATEMENTS = (
    "CREATE TABLE boats (id int PRIMARY KEY, name text)",
    "COMMENT ON TABLE boats IS 'all that were ever here'",
    "INSERT INTO boats VALUES (0, 'Kittiwake'), (1, 'Petrel')",
    "CREATE TABLE orders (tenant text, boat_id int REFERENCES boats (id), amount int)",
    "INSERT INTO orders VALUES ('a', 0, 1), ('a', 1, 2), ('b', 1, 4)",
    "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY own ON orders USING (tenant = current_setting('app.tenant', true))",
    "CREATE TABLE salaries (pay int)",
    "CREATE SCHEMA yard",
    "CREATE TABLE yard.tools (name text)",
    "CREATE VIEW a_slow AS SELECT pg_sleep(30)::text AS m",
    "CREATE ROLE visitor LOGIN",
    "GRANT USAGE ON SCHEMA yard TO visitor",
    "GRANT SELECT ON boats, orders, yard.tools, a_slow TO visitor",
)


@pytest.fixture(scope="module")
def address(servers: None) -> Iterator[str]:
    """Of a server, as a role that may read three of four tables."""
    with temporary_folder() as folder, closing(EmbeddedPostgres(folder)) as embedded:
        dsn = embedded.start()[0]
        with psycopg.connect(dsn, autocommit=True) as connection:
            for statement in STATEMENTS:
                connection.execute(statement.encode())
        about = conninfo_to_dict(dsn)
        host = quote(str(about["host"]), safe="")
        yield f"postgresql://visitor@/{about['dbname']}?host={host}&port={about['port']}"


def test_a_server_is_a_database_too(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOUR", address)
    database = SqlDatabase(secret="HARBOUR", set_local={"app.tenant": "{tenant}"})
    database.start()

    def ask(work: SqlWork = SqlWork.QUERY, tenant: str = "a", **inputs: str) -> dict[str, object]:
        params = SqlParams(100, work, tell_errors=True)
        request = Request(Op.SQL, params, inputs, QueryContext("q", tenant), "k")
        (answer,) = database.execute([request])
        assert not isinstance(answer, Exception)
        return answer["result"]  # type: ignore[no-any-return]

    tables = {table["name"]: table for table in ask(SqlWork.SCHEMA)["tables"]}  # type: ignore[attr-defined]
    assert tables.keys() == {"a_slow", "boats", "orders", "yard.tools"}
    assert tables["boats"]["comment"] == "all that were ever here"
    assert tables["boats"]["columns"][0]["key"]
    assert tables["orders"]["columns"][1]["references"] == "boats.id"
    assert tables["boats"]["columns"][1]["samples"] == [], "they would be one tenant's for all"
    assert ask(SqlWork.VALUES, text="Petrel") == {"values": []}
    total = "SELECT sum(amount) FROM public.orders"
    assert [ask(tenant=t, sql=total)["rows"] for t in ("a", "b", "c")] == [[[3]], [[4]], [[None]]]
    plan = ask(SqlWork.EXPLAIN, sql="SELECT * FROM boats")
    assert plan["scans"] == ["boats"]
    assert "no table 'salaries'" in str(ask(sql="SELECT * FROM salaries")["error"])
    assert "did you mean 'yard.tools'" in str(ask(sql="SELECT * FROM yard.tool")["error"])
    database.close()
    owner = address.replace("visitor@", "postgres@")
    monkeypatch.setenv("HARBOUR", owner)
    with pytest.raises(EngineUnavailable, match="is a superuser") as refused:
        SqlDatabase(secret="HARBOUR").start()
    assert owner not in str(refused.value)


def test_a_role_that_may_fill_the_disk_is_told(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    limit = "ALTER ROLE visitor {} temp_file_limit"
    with psycopg.connect(address.replace("visitor@", "postgres@"), autocommit=True) as owner:
        for bounded in (False, True, False):
            owner.execute(limit.format("SET") + " = '1GB'" if bounded else limit.format("RESET"))
            caplog.clear()
            database = SqlDatabase(path=address)
            database.start()
            database.close()
            told = [record.getMessage() for record in caplog.records]
            assert [text for text in told if "temp_file_limit" in text] == told
            assert len(told) == (not bounded)


@catches(
    "slow-view-of-a-server",
    "a view that is slow makes the whole server unreadable",
    edited("teola.sql.postgres_catalogue:_sampled", "round(1000 * seconds)", "5000"),
)
def test_a_slow_view_lacks_samples_and_others_have_theirs(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teola.sql.sql_tables.LOOKS_S", 0.1)
    limits = LookupLimits(seconds=4.0)
    tables = {table.name: table for table in describe_postgres(address, limits, ())}
    assert [column.samples for column in tables["a_slow"].columns] == [()]
    assert not tables["a_slow"].note
    assert tables["boats"].columns[1].samples == ("Kittiwake", "Petrel")


@catches(
    "runs-for-nobody",
    "a statement runs on after its query has ended",
    edited("teola.sql.postgres_reader:_watched.__wrapped__", "not wanted()", "False"),
)
def test_what_nobody_waits_for_is_cancelled_on_the_server(address: str) -> None:
    slow = "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b"
    began = monotonic()
    with pytest.raises(QueryCancelled):
        look_up(
            SqlAddress.of(address),
            slow,
            LookupLimits(seconds=4.0),
            wanted=lambda: monotonic() < began + 0.3,
        )
    assert monotonic() - began < 3.5
    with psycopg.connect(address) as connection:
        counted = "SELECT count(*) FROM pg_stat_activity WHERE strpos(query, '100000) AS b') > 0"
        running = connection.execute(f"{counted} AND pid <> pg_backend_pid()").fetchone()
    assert running == (0,)
