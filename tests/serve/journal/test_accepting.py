"""Accepted once, ended once, found again after a restart, and kept from other tenants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from teola.query.desk import Desk
from teola.query.spec import program_of
from teola.serve.access.auth import KeyFile
from teola.serve.journal import keeper
from tests.planted import catches, edited
from tests.serve.conftest import soon
from tests.serve.journal.conftest import ECHO, Serve, ask, ended, rows
from tests.serve.test_queries import events

# --- accepted and ended ---------------------------------------------------------------------


def test_what_is_accepted_is_in_the_journal_and_how_it_ended_too(serve: Serve, dsn: str) -> None:
    with serve() as (served, client):
        waiting = ask(client, "wait").json()["query_id"]
        held = rows(dsn, "SELECT id, state, holder IS NULL, runs FROM teola_journal.queries")
        assert held == [(waiting, "running", False, 1)]
        client.delete(f"/v1/queries/{waiting}")
        for question, state in (("hello", "ok"), ("fail", "failed")):
            assert ended(client, ask(client, question).json()["query_id"])["state"] == state
        assert not served.board.running
    statement = "SELECT state, holder, request FROM teola_journal.queries ORDER BY created"
    assert rows(dsn, statement) == [(state, None, None) for state in ("cancelled", "ok", "failed")]


@pytest.mark.parametrize("mode", ["sync", "stream"])
def test_other_modes_leave_the_journal_alone(serve: Serve, dsn: str, mode: str) -> None:
    with serve() as (_, client):
        assert ask(client, "hello", mode=mode).status_code == 200
        ask(client, "hello")
    assert rows(dsn, "SELECT count(*) FROM teola_journal.queries") == [(1,)]


def test_what_has_ended_is_known_after_a_restart(serve: Serve) -> None:
    with serve() as (_, client):
        ids = [ask(client, question).json()["query_id"] for question in ("hello", "fail")]
        before = [ended(client, id) for id in ids]
    assert [one.pop("asked")["inputs"]["question"] for one in before] == ["hello", "fail"]
    with serve() as (_, client):  # what was asked is kept in memory only
        assert [client.get(f"/v1/queries/{id}").json() for id in ids] == before
        listed = client.get("/v1/queries").json()["queries"]
        assert [one["query_id"] for one in listed] == ids[::-1]
        for state, id in (("ok", ids[0]), ("failed", ids[1]), ("shed", None)):
            some = client.get("/v1/queries", params={"state": state}).json()["queries"]
            assert [one["query_id"] for one in some] == ([id] if id else [])
        assert client.get("/v1/queries", params={"app": "count"}).json()["queries"] == []
        (done,) = events(client.get(f"/v1/queries/{ids[0]}/events").text)
        assert done[1] == "done"
        assert done[2]["outputs"] == {"answer": "you said: hello"}
        (error,) = events(client.get(f"/v1/queries/{ids[1]}/events").text)
        assert error[1] == "error"
        assert "bad luck" in error[2]["error"]["message"]
        assert client.delete(f"/v1/queries/{ids[0]}").json()["state"] == "ok"
        assert client.get(f"/v1/queries/{uuid4().hex}").status_code == 404


def test_what_had_not_ended_goes_on_under_its_id(serve: Serve, dsn: str) -> None:
    with serve() as (_, client):
        id = ask(client, "please wait", deadline_s=300).json()["query_id"]
        with client.stream("GET", f"/v1/queries/{id}/events") as followed:
            first = next(followed.iter_text())
    left = rows(dsn, "SELECT state, holder, runs, deaths FROM teola_journal.queries")
    assert left == [("running", None, 1, 0)]
    seen = events(first)[-1][0]
    body = json.dumps({"inputs": {"question": "hello"}, "overrides": {}, "passes": None})
    rows(dsn, "UPDATE teola_journal.queries SET request = %s", body)
    with serve() as (served, client):
        assert ended(client, id)["state"] == "ok"
        told = events(
            client.get(f"/v1/queries/{id}/events", headers={"Last-Event-ID": str(seen)}).text
        )
        assert told[0][1:] == ("restarted", {"run": 2})
        assert told[-1][1] == "done"
        assert told[0][0] > seen, "numbers never come twice"
        rest = client.get(f"/v1/queries/{id}/events", headers={"Last-Event-ID": str(told[0][0])})
        assert events(rest.text) == told[1:]
        assert not served.board.running


@catches(
    "session-forgotten",
    "a query that goes on is not of its session any more",
    edited(Desk.resume, "session=body.session", "session=None"),
)
def test_what_goes_on_is_of_the_same_session(serve: Serve) -> None:
    with serve() as (served, client):
        id = ask(client, "wait", session="s").json()["query_id"]
        assert served.board.running[id].job.part_of == program_of("default", "s")
    with serve() as (served, client):
        soon(lambda: id in served.board.running)
        assert served.board.running[id].job.part_of == program_of("default", "s")
        client.delete(f"/v1/queries/{id}")


def test_followers_are_told_that_it_goes_on(serve: Serve) -> None:
    with serve() as (served, client):
        id = ask(client, "wait").json()["query_id"]
        with client.stream("GET", f"/v1/queries/{id}/events") as followed:
            lines = followed.iter_text()
            next(lines)
            served.runtime.start(served.board.drain(0)).result()
            last = events("".join(lines))[-1]
    assert last[1] == "error"
    assert last[2]["error"]["code"] == "postponed"
    assert last[2]["error"]["retryable"] is True


# --- ended before it was accepted -----------------------------------------------------------


@contextmanager
def slow_to_accept(dsn: str) -> Iterator[None]:
    """Meanwhile nothing is committed."""
    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE teola_journal.queries IN SHARE MODE")
        yield


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but news makes a server look around."""
    monkeypatch.setattr(keeper, "BEAT_S", 3600.0)
    monkeypatch.setattr(keeper, "FENCE_S", 3600.0)


def test_what_is_cancelled_while_it_is_accepted_never_runs(
    serve: Serve, dsn: str, no_looks: None
) -> None:
    with ThreadPoolExecutor(2) as pool, serve() as (served, client):
        ended(client, ask(client, "hello").json()["query_id"])
        with slow_to_accept(dsn):
            asked = pool.submit(ask, client, "please wait")
            soon(lambda: bool(served.board.running))
            ((id, entry),) = served.board.running.items()
            deleted = pool.submit(client.delete, f"/v1/queries/{id}")
            soon(lambda: entry.task is not None and bool(entry.task.cancelling()))
        assert asked.result().status_code == 202
        assert deleted.result().json()["state"] == "cancelled"
        rows(dsn, "NOTIFY teola_journal, 'look'")
        assert ended(client, ask(client, "hello").json()["query_id"])["state"] == "ok"
        assert not served.board.running
        assert client.get(f"/v1/queries/{id}").json()["state"] == "cancelled"
    found = rows(dsn, "SELECT state, runs FROM teola_journal.queries WHERE id = %s", id)
    assert found == [("cancelled", 1)]


def test_what_is_accepted_while_its_server_drains_is_the_next_ones(
    serve: Serve, dsn: str, no_looks: None
) -> None:
    with ThreadPoolExecutor(1) as pool, serve() as (served, client):
        ended(client, ask(client, "hello").json()["query_id"])
        with slow_to_accept(dsn):
            asked = pool.submit(ask, client, "please wait")
            soon(lambda: bool(served.board.running))
            (entry,) = served.board.running.values()
            drained = served.runtime.start(served.board.drain(0))
            soon(lambda: entry.task is not None and bool(entry.task.cancelling()))
        assert asked.result().status_code == 202
        assert asked.result().json()["state"] == "running"
        drained.result(30)
    found = rows(dsn, "SELECT holder FROM teola_journal.queries WHERE state = 'running'")
    assert found == [(None,)]


# --- the same key, the same query -----------------------------------------------------------


def test_the_same_key_is_the_same_query(serve: Serve, dsn: str) -> None:
    with serve() as (_, client):
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: ask(client, "wait", "a key"), range(6)))
        assert {answer.status_code for answer in answers} == {202}, answers[-1].text
        (id,) = {answer.json()["query_id"] for answer in answers}
        replayed = [answer.headers.get("idempotency-replayed") for answer in answers]
        assert sorted(map(str, replayed)) == ["None", *["true"] * 5]
        other = ask(client, "hello", "a key")
        assert other.status_code == 422
        assert "Idempotency-Key" in other.json()["error"]["message"]
        assert ask(client, "hello", "another key").json()["query_id"] != id
        listed = client.get("/v1/queries").json()["queries"]
        assert len(listed) == 2, "those that were the first one again have left no trace"
    with serve() as (_, client):
        assert ask(client, "wait", "a key").json()["query_id"] == id
    assert rows(dsn, "SELECT count(*) FROM teola_journal.queries") == [(2,)]


def test_a_refused_query_leaves_no_row(serve: Serve, dsn: str) -> None:
    with serve() as (served, client):
        assert client.post(ECHO, json={"mode": "background"}).status_code == 422
        served.board.most = 1
        id = ask(client, "wait", "first").json()["query_id"]
        assert ask(client, "hello", "second").status_code == 429
        assert rows(dsn, "SELECT id FROM teola_journal.queries") == [(id,)]


# --- tenants --------------------------------------------------------------------------------


def test_what_is_another_tenants_does_not_exist(serve: Serve, dsn: str, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    secrets = {name: keys.create(name, name) for name in ("alice", "bob")}
    headers = {name: {"Authorization": f"Bearer {key}"} for name, key in secrets.items()}
    with serve(keys=keys) as (_, client):
        client.headers.update(headers["alice"])
        ids = [ask(client, text, "a key").json()["query_id"] for text in ("canary",)]
        ids += [ask(client, "please wait").json()["query_id"]]
        ended(client, ids[0])
    with serve({}, keys=keys) as (_, client):
        client.headers.update(headers["bob"])
        for id in ids:
            for path in (f"/v1/queries/{id}", f"/v1/queries/{id}/events"):
                response = client.get(path)
                assert response.status_code == 404
                stranger = uuid4().hex
                unknown = client.get(path.replace(id, stranger)).text
                assert response.text.replace(id, stranger) == unknown
            assert client.delete(f"/v1/queries/{id}").status_code == 404
        assert client.get("/v1/queries").json()["queries"] == []
        client.headers.update(headers["alice"])
        assert client.get(f"/v1/queries/{ids[0]}").json()["state"] == "ok"
        assert client.get(f"/v1/queries/{ids[1]}").json()["state"] == "running"
    with serve(keys=keys) as (_, client):
        client.headers.update(headers["bob"])
        assert ask(client, "canary", "a key").json()["query_id"] not in ids
