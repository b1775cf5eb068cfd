"""A journal that is refused, slow, full, or ahead of the engines: what runs ends all the same."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest

from teola import App, Each, EngineConfig, Generate, Runtime
from teola.query.journal import journal as journals
from teola.query.journal.journal import Given, Journal
from teola.query.result import Result
from teola.serve import server
from teola.serve.board import Board, Entry
from teola.serve.journal import keeper
from teola.workflow.components import Function, Indexing
from teola_engines.vectorstore import PgVector
from tests.serve.conftest import Served, applications, begun, lent, serving, soon
from tests.serve.journal.conftest import Serve, ask, ended, put, rows
from tests.serve.restartable import Embedder, Lines
from tests.soak.engines import Flood

MINE = "SELECT state FROM teola_journal.queries WHERE id = %s"


def up(client: httpx.Client) -> bool:
    return "\nteola_journal_up 1.0\n" in client.get("/metrics").text


# --- what ends all the same -------------------------------------------------------------------


def test_a_database_that_refuses_to_write_keeps_no_query_from_ending(
    serve: Serve, dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a failover to a server that only reads."""
    caplog.set_level(logging.INFO, "teola.serve")
    monkeypatch.setattr(keeper, "BEAT_S", 3600.0)  # the query is the first to notice
    monkeypatch.setattr(keeper, "FENCE_S", 3600.0)
    rights = "INSERT, UPDATE ON teola_journal.queries"
    with serve() as (served, client):
        id = ask(client, "please wait").json()["query_id"]
        assert up(client)
        rows(dsn, f"REVOKE {rights} FROM teola_journal")
        refused = ask(client, "hello")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "journal_unavailable"
        assert client.delete(f"/v1/queries/{id}").json()["state"] == "cancelled"
        assert not served.board.running
        assert not served.board.of_tenant
        rows(dsn, "NOTIFY teola_journal, 'look'")
        soon(lambda: not up(client))
        rows(dsn, f"GRANT {rights} TO teola_journal")
        soon(lambda: up(client))
        assert rows(dsn, MINE, id) == [("cancelled",)]
    told = [getattr(record, "event", "") for record in caplog.records]
    assert [one for one in told if one.startswith("journal_")] == [
        "journal_lost",
        "journal_recovered",
    ]
    assert told.count("query_accepted") == 1, "not the one that was refused"


def test_what_could_not_be_written_is_written_at_the_end(
    serve: Serve, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never given back, for its client was told how it ended."""
    monkeypatch.setattr(keeper, "BEAT_S", 3600.0)  # nobody else writes it before
    monkeypatch.setattr(keeper, "FENCE_S", 3600.0)
    right = "UPDATE ON teola_journal.queries"
    with serve() as (_, client):
        id = ask(client, "please wait").json()["query_id"]
        rows(dsn, f"REVOKE {right} FROM teola_journal")
        assert client.delete(f"/v1/queries/{id}").json()["state"] == "cancelled"
        rows(dsn, f"GRANT {right} TO teola_journal")
        assert rows(dsn, MINE, id) == [("running",)]
    assert rows(dsn, MINE, id) == [("cancelled",)]


def test_a_query_ends_whatever_its_record_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(entry: Entry, result: Result) -> Result:
        raise ValueError("a bug")

    monkeypatch.setattr(Entry, "end", broken)
    apps = applications()
    with Runtime() as runtime, serving(runtime, apps) as served:

        async def asked() -> Result:
            return await begun(served.board, apps["echo"], "hello").ended()

        result = runtime.start(asked()).result()
        assert result.state == "failed"
        assert "ValueError: a bug" in str(result.error)
        assert not served.board.running
        assert not served.board.of_tenant


def test_what_is_stopped_as_soon_as_it_begins_leaves_the_board() -> None:
    apps, journal, board = applications(), Journal(Given("host=nowhere"), 1e6), Board(10)
    kept = keeper.Keeper(journal, board, apps)

    async def stopped() -> Entry:
        entry = begun(board, apps["echo"], "please wait", keeps="accept")
        entry.accept()
        await asyncio.wait(kept._suspend(), timeout=20)
        return entry

    with Runtime() as runtime, lent(apps, runtime):
        entry = runtime.start(stopped()).result(60)
    assert entry.given_back
    assert not board.running


# --- what ended long ago ----------------------------------------------------------------------


def put_old(dsn: str, count: int) -> None:
    for _ in range(count):
        put(dsn, holder=None, state="ok", ended="2020-01-01")


def test_all_that_is_old_is_forgotten_a_few_at_a_time(
    serve: Serve, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "FORGET_AT_ONCE", 2)
    put_old(made, 5)
    with serve():
        soon(lambda: rows(made, "SELECT count(*) FROM teola_journal.queries") == [(0,)])


SLOW = """
CREATE FUNCTION teola_journal.slow() RETURNS trigger LANGUAGE plpgsql
    AS 'BEGIN PERFORM pg_sleep(600); RETURN OLD; END';
CREATE TRIGGER slow BEFORE DELETE ON teola_journal.queries
    FOR EACH ROW EXECUTE FUNCTION teola_journal.slow();
"""


def test_slow_forgetting_does_not_keep_queries_away(
    serve: Serve, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "ANSWER_S", 1.0)
    put_old(made, 1)
    rows(made, SLOW)
    with serve() as (_, client):
        soon(lambda: ask(client, "hello").status_code == 202)


# --- documents that take their time -----------------------------------------------------------


@contextmanager
def reading(dsn: str) -> Iterator[tuple[Served, httpx.Client]]:
    """A server whose application `reading` takes documents."""
    configs = {
        "documents": EngineConfig(Lines),
        "embedding": EngineConfig(Embedder),
        "vectorstore": EngineConfig(PgVector, {"dsn": dsn}),
    }
    inputs, outputs = {"documents": "documents"}, {"stored": "stored"}
    apps = {"reading": App("reading", Indexing(), inputs=inputs, outputs=outputs)}
    with (
        Runtime(configs) as runtime,
        serving(runtime, applications() | apps, journal=Journal(Given(dsn), 1e6)) as served,
        httpx.Client(base_url=served.url, timeout=30) as client,
    ):
        yield served, client


def put_document(dsn: str) -> str:
    """A query of another server's, with a document of three pieces."""
    kept = {"name": "a.txt", "metadata": {}, "file": 0, "suffix": ".txt"}
    body = {"inputs": {"documents": [kept]}, "overrides": {}, "passes": None}
    id = put(dsn, app="reading", request=json.dumps(body))
    statement = "INSERT INTO teola_journal.files VALUES ('default', %s, 0, %s, %s)"
    for piece in range(3):
        rows(dsn, statement, id, piece, f"line {piece}\n".encode())
    return id


@contextmanager
def other_server(dsn: str) -> Iterator[psycopg.Connection]:
    """The session of one that lives, for now."""
    with psycopg.connect(dsn) as session:
        session.execute("SELECT pg_advisory_lock(4711)")
        yield session


def die_and_lock_documents(session: psycopg.Connection) -> None:
    """Whoever takes over can take the queries, and waits for their documents."""
    session.execute("LOCK TABLE teola_journal.files IN ACCESS EXCLUSIVE MODE")
    session.execute("SELECT pg_advisory_unlock(4711)")


def folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("teola-uploads-*/*"))


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.usefixtures("own_folder", "serve")
def test_while_documents_are_fetched_cancels_are_heard(made: str) -> None:
    """By the task that also moves the fence."""
    id = put_document(made)
    with other_server(made) as other, reading(made) as (served, client):
        waiting = ask(client, "please wait").json()["query_id"]
        entry = served.board.running[waiting]
        die_and_lock_documents(other)
        soon(lambda: bool(folders()))
        rows(made, "UPDATE teola_journal.queries SET cancel = true WHERE id = %s", waiting)
        soon(lambda: entry.unwanted)
        assert id not in served.board.running
        other.rollback()
        found = ended(client, id)
        assert (found["state"], len(found["result"]["outputs"]["stored"])) == ("ok", 3)
        assert ended(client, waiting)["state"] == "cancelled"
    assert rows(made, "SELECT runs FROM teola_journal.queries WHERE id = %s", id) == [(2,)]
    assert not folders()


@pytest.mark.usefixtures("own_folder", "serve")
def test_a_server_that_ends_while_it_fetches_documents_keeps_none(made: str) -> None:
    id = put_document(made)
    with other_server(made) as other:
        with reading(made):
            die_and_lock_documents(other)
            soon(lambda: bool(folders()))
        assert not folders()
    assert rows(made, MINE, id) == [("running",)]


# --- who follows and does not read ------------------------------------------------------------


@pytest.mark.usefixtures("serve")
def test_a_follower_that_never_reads_is_cut_off(made: str) -> None:
    """Of a query with many long events: each names a component."""

    async def say(topic: str) -> str:
        await asyncio.sleep(0.01)
        return topic

    body = Function(say, outputs="said", name="s" * 60_000, pure=True)
    each = Each(body, over="topics", item="topic", gives={"all": "said"}, at_once=4)
    inputs, outputs = {"topics": "texts"}, {"all": "all"}
    apps = {"flood": App("flood", each, inputs=inputs, outputs=outputs)}
    id = put(made, app="flood", request=json.dumps({"inputs": {"topics": ["x"] * 200}}))
    with (
        other_server(made) as other,
        Runtime() as runtime,
        serving(runtime, apps, journal=Journal(Given(made), 1e6)) as served,
        socket.socket() as client,
    ):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        url = httpx.URL(served.url)
        client.connect((url.host, url.port))
        client.sendall(f"GET /v1/queries/{id}/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 200"
        other.close()
        soon(lambda: id in served.board.past, 60)
        assert served.board.past[id].state == "ok"
        assert b"event: done" not in b"".join(_rest(client))


def _rest(client: socket.socket) -> Iterator[bytes]:
    with suppress(ConnectionResetError):
        while piece := client.recv(2**16):
            yield piece


# --- before the engines run -------------------------------------------------------------------


@pytest.mark.usefixtures("serve")
def test_the_journal_is_there_before_the_engines_are(made: str) -> None:
    """What is to be taken waits for them."""
    go, id = threading.Event(), put(made)

    class Late(Flood):
        async def start(self) -> None:
            await asyncio.to_thread(go.wait)

    inputs, outputs = {"question": "text"}, {"answer": "answer"}
    late = App("late", Generate(engine="late"), inputs=inputs, outputs=outputs)
    apps = applications() | {"late": late}
    journal, board = Journal(Given(made), 1e6), Board(10)
    with Runtime({"late": EngineConfig(Late)}) as runtime:
        for app in apps.values():
            app.runtime = runtime
        kept = keeper.Keeper(journal, board, apps)
        readiness = server.Readiness()
        listens = asyncio.Event()
        listens.set()
        starting = runtime.start(server._start(runtime, apps, readiness, kept, listens))
        try:
            runtime.start(kept.ready()).result(60)
            found = runtime.start(journal.find("default", id)).result(60)
            assert found is not None
            assert not found.ended
            assert not readiness.ready
            assert not board.running
            go.set()
            starting.result(60)
            soon(lambda: rows(made, MINE, id) == [("ok",)])
        finally:
            go.set()
            runtime.start(kept.close()).result(60)
