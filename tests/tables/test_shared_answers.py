"""Answers in a database that several runs share, on a real PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest
from psycopg.conninfo import conninfo_to_dict

from teola import tables
from teola.errors import DeadlineExceeded, InputError, QueryCancelled, QueryFailed, UnknownName
from teola.tables import answers_database
from teola.tables.answers_database import AnswersDatabase
from teola.tables.kept import delete_answers, kept_answers, kept_operators
from teola.tables.shared_answers import SharedAnswers
from teola_engines.vectorstore import EmbeddedPostgres
from tests.engines.vectorstore.conftest import temporary_folder
from tests.planted import catches, edited
from tests.serve.databases import rows
from tests.tables.oracle import FunctionAsker, model
from tests.tables.sharing import url_of

SQL = "SELECT a, LLM('q', a) AS k FROM t"


@pytest.fixture(scope="module")
def server(servers: None) -> Iterator[str]:
    """URL of a database, as a superuser."""
    with temporary_folder() as folder, closing(EmbeddedPostgres(folder)) as embedded:
        yield url_of(embedded.start()[0])


@pytest.fixture
def dsn(server: str) -> str:
    """URL of a database without answers."""
    rows(server, "DROP SCHEMA IF EXISTS teola_answers CASCADE")
    return server


class Gate:
    """A model that answers once it may. asked: is set when it was asked first."""

    def __init__(self, error: str | None = None) -> None:
        self.asked, self.open, self.error = threading.Event(), threading.Event(), error

    def __call__(self, _: str, values: Sequence[str]) -> tuple[str | None, str | None]:
        self.asked.set()
        assert self.open.wait(20)
        return (None, self.error) if self.error else (f"v{values[0]}", None)


def at_once(_: str, values: Sequence[str]) -> tuple[str | None, str | None]:
    return f"v{values[0]}", None


def query(dsn: Any, values: Sequence[Any], function: Any = at_once, **options: Any) -> Any:
    sql = options.pop("sql", SQL)
    asker = FunctionAsker(function, 3)
    table = {"t": pa.table({"a": list(values)})}
    return asker, tables.sql(sql, table, ask_rows=asker, answers=dsn, **options)


@contextmanager
def beside(dsn: str, values: Sequence[Any], gate: Gate, **options: Any) -> Iterator[Any]:
    """Another run, which has claimed its keys and waits for the gate."""
    asker, made = query(dsn, values, gate, **options)
    running = made.run(wait=False, check=False)
    try:
        assert gate.asked.wait(20)
        yield asker, running
    finally:
        gate.open.set()
        running.wait()


@contextmanager
def process(dsn: str, told: Path, rows: int, slow_s: float, lease_s: float) -> Iterator[Any]:
    words = [sys.executable, "-m", "tests.tables.sharing", dsn, str(told)]
    words += [str(rows), str(slow_s), str(lease_s)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


@pytest.mark.slow
def test_two_processes_over_one_table_ask_each_key_once(dsn: str, tmp_path: Path) -> None:
    told, count = tmp_path / "told.txt", 9000
    with process(dsn, told, count, 2e-4, 60) as one, process(dsn, told, count, 2e-4, 60) as other:
        for child in (one, other):
            child.stdin.write("go\n")
            child.stdin.flush()
        ended = [child.communicate(timeout=120)[0] for child in (one, other)]
    reports = [json.loads(text.splitlines()[-1]) for text in ended]
    asked = told.read_text().split()
    assert len(asked) == len(set(asked)) == count
    assert sum(one["asked"] for one in reports) == count
    for report in reports:
        assert report["asked"] > 0, "it waited for the other one"
        assert report["asked"] + report["answered_before"] == report["stages"][0]["distinct"]


@pytest.mark.slow
def test_keys_of_a_killed_run_come_free_and_its_answers_stay(dsn: str, tmp_path: Path) -> None:
    told = tmp_path / "told.txt"
    with process(dsn, told, 300, 0.002, 0.6) as child:
        child.stdin.write("go\n")
        child.stdin.flush()
        until(lambda: _stored(dsn) > 0)
        child.kill()
        child.wait()
    stored = _stored(dsn)
    asker, made = query(dsn, range(300))
    began = time.monotonic()
    done = made.run(deadline_s=60)
    assert done.rows == [(at, f"v{at}") for at in range(300)]
    assert 0 < stored < 300
    assert (len(asker.prompts), done.report["answered_before"]) == (300 - stored, stored)
    assert time.monotonic() - began < 20


def until(done: Callable[[], bool]) -> None:
    """Wait for something that other threads do."""
    limit = time.monotonic() + 60
    while not done():
        assert time.monotonic() < limit
        time.sleep(0.02)


def _stored(dsn: str) -> int:
    made = rows(dsn, "SELECT to_regclass('teola_answers.answers') IS NOT NULL")
    if made != [(True,)]:
        return 0
    ((count,),) = rows(dsn, "SELECT count(*) FROM teola_answers.answers WHERE asked_at IS NOT NULL")
    return int(count)


@catches(
    "claimed-twice",
    "what others have claimed is asked as well",
    edited(
        AnswersDatabase.claim,
        "return {key for (key,) in self.execute(_CLAIM, parameters)}",
        "return set(keys)",
    ),
)
@catches(
    "not-renewed",
    "a lease is not renewed",
    edited(SharedAnswers._renewals, "own.renew(self.run, self.lease_s)", "pass"),
)
def test_a_run_waits_for_the_answers_of_another_that_renews_its_lease(dsn: str) -> None:
    gate = Gate()
    with beside(dsn, range(6), gate, answers_lease_s=0.15):
        asker, made = query(dsn, range(4, 9))
        running = made.run(wait=False)
        time.sleep(0.6)  # four leases
        assert running.running
        gate.open.set()
        done = running.wait()
        assert sorted(asker.prompts) == ["q\na: 6", "q\na: 7", "q\na: 8"]
    assert done.rows == [(at, f"v{at}") for at in range(4, 9)]
    assert (done.report["asked"], done.report["answered_before"]) == (3, 2)


def test_a_key_is_held_by_its_claim_or_by_the_lease_of_the_run_that_claimed_it(dsn: str) -> None:
    one, other = uuid4(), uuid4()
    with closing(AnswersDatabase(dsn, writes=True)) as answers:
        assert answers.claim(one, "op", ["long"], 60.0) == {"long"}
        assert answers.claim(one, "op", ["over"], -1.0) == {"over"}
        assert answers.held(other, ["long", "over", "new"]) == {"long"}, "there is no lease yet"
        answers.renew(one, 60.0)
        assert answers.held(other, ["long", "over", "new"]) == {"long", "over"}
        assert answers.claim(other, "op", ["long", "over", "new"], 60.0) == {"new"}
        assert answers.held(one, ["long", "over", "new"]) == {"new"}, "its own are free to it"


def test_who_waits_can_be_cancelled_and_keeps_to_its_deadline(dsn: str) -> None:
    with beside(dsn, range(3), Gate()):
        waiting = query(dsn, range(5))[1].run(wait=False)
        until(lambda: _stored(dsn) == 2)
        waiting.cancel()
        with pytest.raises(QueryCancelled) as cancelled:
            waiting.wait()
        with pytest.raises(DeadlineExceeded, match=r"0\.3 s"):
            query(dsn, range(5))[1].run(deadline_s=0.3)
    assert [row[0] for row in cancelled.value.result.rows] == [3, 4], "what it asked is kept"


def test_keys_that_a_run_lets_go_of_are_asked_at_once(dsn: str) -> None:
    gate = Gate()
    with beside(dsn, range(4), gate, most_calls=1) as (first, _):
        asker, made = query(dsn, range(4))
        running = made.run(wait=False)
        gate.open.set()
        done = running.wait()
    assert (len(first.prompts), len(asker.prompts)) == (1, 3)
    assert done.rows == [(at, f"v{at}") for at in range(4)]
    assert rows(dsn, "SELECT count(*) FROM teola_answers.leases") == [(0,)]


def test_an_error_of_another_run_counts_as_one_of_this(dsn: str) -> None:
    gate = Gate("it fails always")
    with beside(dsn, [0], gate):
        strict, lenient = query(dsn, [0, 1]), query(dsn, [0, 1])
        waiting = [
            made.run(wait=False, **how)
            for (_, made), how in ((strict, {"on_error": "fail"}), (lenient, {}))
        ]
        until(lambda: rows(dsn, "SELECT count(*) FROM teola_answers.leases") == [(3,)])
        gate.open.set()
        with pytest.raises(QueryFailed, match="it fails always"):
            waiting[0].wait()
        assert waiting[1].wait().rows == [(0, None), (1, "v1")]
    asked = [*strict[0].prompts, *lenient[0].prompts]
    assert asked == ["q\na: 1"]
    again, made = query(dsn, [0, 1])
    assert made.run(retry_failed=False).rows == [(0, None), (1, "v1")]
    assert made.run().rows == [(0, "v0"), (1, "v1")]
    assert again.prompts == ["q\na: 0"]


def test_the_result_is_that_without_a_database(dsn: str) -> None:
    for sql in (
        "SELECT a, LLM('q', a) AS k, LLM_ERROR('q', a) AS e FROM t WHERE LLM('p', a) = 'Yes'",
        "SELECT a FROM t WHERE LLM('r', a) = 'x' ORDER BY a DESC LIMIT 3",
        "SELECT LLM('s', a, temperature := 0.5) AS k, count(*) FROM t GROUP BY 1 ORDER BY 1, 2",
    ):
        alone = query(False, range(90), model, sql=sql, max_errors=99)[1].run()
        asker, made = query(dsn, range(90), model, sql=sql, max_errors=99)
        assert made.run().rows == alone.rows
        if "temperature" not in sql:
            before = len(asker.prompts)
            assert made.run(retry_failed=False).rows == alone.rows
            assert len(asker.prompts) == before


def test_answers_are_kept_as_they_are_and_by_tenant(dsn: str) -> None:
    odd = "nul \0 and ü and ' and \\x00"
    asker, made = query(dsn, ["x"], lambda i, v: (odd, None))
    for tenant in ("a", "b", "a", ""):
        assert made.run(tenant=tenant).rows == [("x", odd)]
    assert len(asker.prompts) == 3


def test_a_server_that_ends_connections_ends_no_run(dsn: str) -> None:
    gate = Gate()
    with beside(dsn, range(5), gate, answers_lease_s=0.2) as (asker, running):
        for _ in range(3):
            rows(
                dsn,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'teola-answers'",
            )
            time.sleep(0.05)
        gate.open.set()
        assert running.wait().rows == [(at, f"v{at}") for at in range(5)]
    assert len(asker.prompts) == _stored(dsn) == 5


def test_a_server_that_stays_away_ends_it(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_database, "AWAY_S", 0.1)
    monkeypatch.setattr(answers_database, "AGAIN_S", 0.05)
    name, other = conninfo_to_dict(dsn)["dbname"], url_of(dsn, dbname="template1")
    gate = Gate()
    with beside(dsn, range(5), gate) as (_, running):
        rows(other, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            rows(
                other,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                name,
            )
            gate.open.set()
            done = running.wait()
        finally:
            rows(other, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert done.state == "failed"
    assert "are away" in done.reason
    assert "goes on from there" in done.reason


def test_a_database_that_refuses_ends_it(dsn: str) -> None:
    gate = Gate()
    with beside(dsn, range(5), gate) as (_, running):
        rows(dsn, "DROP SCHEMA teola_answers CASCADE")
        gate.open.set()
        done = running.wait()
    assert (done.state, "teola_answers.answers" in done.reason) == ("failed", True)


def test_looking_after_them(dsn: str) -> None:
    assert kept_operators(dsn) == []
    assert rows(dsn, "SELECT to_regnamespace('teola_answers')") == [(None,)]
    made = query(dsn, range(4))[1]
    assert (made.explain().to_json()["total"]["calls"], kept_operators(dsn)) == (4, [])
    made.run()
    query(dsn, [1, 2], lambda i, v: (None, "busy"), sql="SELECT LLM('p', a) AS k FROM t")[1].run()
    found = {one["instruction"]: one for one in kept_operators(dsn)}
    assert [(found[one]["answers"], found[one]["errors"]) for one in "qp"] == [(4, 0), (0, 2)]
    assert found["q"]["first"] <= found["q"]["last"] < "2999"
    assert made.explain().to_json()["total"]["calls"] == 0
    (one,) = kept_answers(dsn, found["q"]["operator"][:8], 1)
    assert (one["value"][0], one["error"], one["prompt_tokens"]) == ("v", None, 10)
    with pytest.raises(UnknownName):
        kept_answers(dsn, "f00", 1)
    with beside(dsn, [7], Gate()):
        assert delete_answers(dsn, found["q"]["operator"], None) == 4
    assert delete_answers(dsn, None, "2999-01-01") == 3  # what was under way was answered
    assert kept_operators(dsn) == []


def test_what_is_wrong_is_said(dsn: str) -> None:
    def said(place: str, **options: Any) -> str:
        with pytest.raises(InputError) as raised:
            query(place, [1])[1].run(**options)
        assert "hidden" not in str(raised.value)
        return str(raised.value)

    assert "cannot be reached" in said("postgresql://u:hidden@localhost:1/db")
    assert "start the server" in said("postgresql://u:hidden@localhost:1/db?connect_timeout=2")
    assert "write postgresql://user@host:5432/database" in said("postgresql://u:hidden@[h/db")
    assert "above 0" in said(dsn, answers_lease_s=0)
    name = conninfo_to_dict(dsn)["dbname"]
    role = f"reader_{name}"
    rows(dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'hidden'")
    other = url_of(dsn, user=role, password="hidden")
    assert f"GRANT CREATE ON DATABASE {name} TO {role}" in said(other)
    query(dsn, [1])[1].run()
    assert f"GRANT USAGE ON SCHEMA teola_answers TO {role}" in said(other)
    rows(dsn, f"GRANT USAGE ON SCHEMA teola_answers TO {role}")
    rows(dsn, f"GRANT SELECT ON ALL TABLES IN SCHEMA teola_answers TO {role}")
    assert "SELECT, INSERT, UPDATE, DELETE" in said(other)
    assert [one["answers"] for one in kept_operators(other)] == [1]
    rows(dsn, f"DROP OWNED BY {role}")
    rows(dsn, f"DROP ROLE {role}")
    rows(dsn, "UPDATE teola_answers.about SET version = 7")
    assert "version 7" in said(dsn)
    rows(dsn, "DROP TABLE teola_answers.about")
    assert "holds other tables" in said(dsn)


def test_what_was_taken_since_then_counts_also_where_another_run_took_it(dsn: str) -> None:
    query(dsn, [1, 2])[1].run()
    ((operator, first),) = rows(
        dsn, "SELECT operator, max(asked_at) FROM teola_answers.answers GROUP BY 1"
    )
    query(dsn, [1, 2, 3])[1].run()
    since = first.astimezone(UTC).replace(tzinfo=None)
    with duckdb.connect() as con, closing(SharedAnswers(con, dsn)) as answers:
        counted = [answers.took([operator], since + timedelta(seconds=s)) for s in (-60, 1e-5, 60)]
        assert [count for count, *_ in counted] == [3, 1, 0]
        assert answers.took([], since) == answers.took(["another"], since) == (0, 0, 0)
        took, prompt, generated = counted[0]
        assert prompt == took * counted[1][1] > 0 < generated
