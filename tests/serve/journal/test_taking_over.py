"""Each query is run by one server, and ended by one whatever has become of the first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from teola.query.journal import journal as journals
from teola.serve.access.auth import KeyFile
from teola.serve.journal import keeper
from teola_engines.vectorstore import EmbeddedPostgres
from tests.planted import catches, edited
from tests.serve.conftest import soon
from tests.serve.journal.conftest import ECHO, Serve, ask, ended, put, rows, shut
from tests.serve.test_queries import events

# --- one server for each query --------------------------------------------------------------


def test_two_servers_run_each_query_once(serve: Serve, dsn: str) -> None:
    with serve() as (_, one), serve() as (_, two):
        ids = [ask(client, "please wait").json()["query_id"] for client in (one, two) * 3]
        rows(dsn, "NOTIFY teola_journal, 'look'")
        for id in ids:
            for client in (one, two):
                assert client.get(f"/v1/queries/{id}").json()["state"] == "running"
        assert rows(dsn, "SELECT max(runs) FROM teola_journal.queries") == [(1,)]
        for id, client in zip(ids, (two, one) * 3, strict=True):
            assert client.delete(f"/v1/queries/{id}").json()["state"] == "cancelled"
            assert client.get(f"/v1/queries/{id}").json()["state"] == "cancelled"


def test_what_a_dead_server_has_left_is_taken_by_one(serve: Serve, made: str) -> None:
    ids = {put(made) for _ in range(20)}
    with serve() as (first, one), serve() as (second, _):
        assert {ended(one, id)["state"] for id in ids} == {"ok"}
        assert ids == first.board.past.keys() | second.board.past.keys()
        assert not first.board.past.keys() & second.board.past.keys()
    found = rows(made, "SELECT DISTINCT runs, deaths FROM teola_journal.queries")
    assert found == [(2, 1)]


@catches(
    "unpaid-after-a-restart",
    "a query that is gone on with forgets the key that pays for it",
    edited("teola.query.desk:Desk.resume", "if body.key is not None", "if False"),
)
def test_the_key_that_asked_pays_also_for_what_a_later_server_does(
    serve: Serve, dsn: str, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    secrets = [keys.create("carol", "default", tokens_a_day=100), keys.create("dan", "default")]
    body, ids = {"inputs": {"question": "please wait"}, "mode": "background"}, []
    with serve(keys=keys) as (_, client):
        for secret in secrets:
            headers = {"authorization": f"Bearer {secret}"}
            ids.append(client.post(ECHO, json=body, headers=headers).json()["query_id"])
    with serve(keys=keys) as (served, _):
        soon(lambda: set(ids) <= served.board.running.keys())
        paid, free = (served.board.running[id].job.budget for id in ids)
        assert paid is not None
        assert [account.name for account in paid.accounts] == ["key 'carol' today"]
        assert free is None


def test_a_living_servers_queries_are_left_alone(serve: Serve, made: str) -> None:
    with psycopg.connect(made, autocommit=True) as alive:
        alive.execute("SELECT pg_advisory_lock(4711)")
        id = put(made)
        with serve() as (served, client):
            assert ended(client, ask(client, "hello").json()["query_id"])["state"] == "ok"
            assert client.get(f"/v1/queries/{id}").json()["state"] == "running"
            assert id not in served.board.past
            alive.close()
            assert ended(client, id)["state"] == "ok"


def test_after_a_restart_of_postgresql_the_others_get_time_to_come_back(
    serve: Serve, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "LEASE_S", 3600.0)
    id, waiting = put(made), put(made, holder=None)
    with serve() as (_, client):
        assert ended(client, waiting)["state"] == "ok"
        assert client.get(f"/v1/queries/{id}").json()["state"] == "running"


def test_who_lost_the_journal_stops_and_goes_on_later(
    serve: Serve, dsn: str, postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it nobody can know whether another server has taken the query."""
    monkeypatch.setattr(keeper, "FENCE_S", 5.0)
    with serve() as (served, client):
        id = ask(client, "please wait").json()["query_id"]
        first = served.board.running[id]
        shut(postgres, dsn, True)
        try:
            soon(lambda: id not in served.board.running)
            assert ask(client, "hello").status_code == 503
        finally:
            shut(postgres, dsn, False)
        soon(lambda: id in served.board.running)
        assert served.board.running[id] is not first
        assert client.delete(f"/v1/queries/{id}").json()["state"] == "cancelled"


# --- what cannot go on ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "state", "told"),
    [
        ({"request": "{"}, "failed", "not JSON"),
        ({"request": None}, "failed", "not JSON"),
        ({"request": '{"inputs": 3}'}, "failed", "inputs"),
        ({"request": '{"inputs": {"quesion": "x"}}'}, "failed", "did you mean 'question'"),
        ({"app": "gone", "deadline": "2020-01-01"}, "failed", "'gone' is not served any more"),
        ({"deadline": "2020-01-01"}, "deadline", "while no server ran"),
        ({"deaths": 2}, "failed", "begun 3 times"),
        ({"cancel": True}, "cancelled", "was cancelled"),
    ],
)
def test_what_cannot_go_on_ends_with_the_reason(
    serve: Serve, made: str, columns: dict[str, Any], state: str, told: str
) -> None:
    id = put(made, **columns)
    with serve() as (_, client):
        (last,) = events(client.get(f"/v1/queries/{id}/events").text)
        assert last[1] == "error"
        assert told in last[2]["error"]["message"]
        assert client.get(f"/v1/queries/{id}").json()["state"] == state
        assert ended(client, ask(client, "hello").json()["query_id"])["state"] == "ok"


def test_an_application_that_another_server_may_have_is_left_to_it(serve: Serve, made: str) -> None:
    id = put(made, app="elsewhere")
    with serve() as (_, client):
        assert ended(client, ask(client, "hello").json()["query_id"])["state"] == "ok"
        assert client.get(f"/v1/queries/{id}").json()["state"] == "running"
        assert client.delete(f"/v1/queries/{id}").json()["state"] == "cancelled"


def test_no_more_are_taken_than_may_run(serve: Serve, made: str) -> None:
    wait = json.dumps({"inputs": {"question": "wait"}})
    ids = {put(made, request=wait) for _ in range(3)}
    with serve(most=2) as (served, client):
        soon(lambda: len(served.board.running) == 2)
        (last,) = ids - served.board.running.keys()
        assert client.get(f"/v1/queries/{last}").json()["state"] == "running"
        client.delete(f"/v1/queries/{next(iter(served.board.running))}")
        soon(lambda: last in served.board.running)


def test_what_ended_long_ago_is_forgotten(serve: Serve, made: str) -> None:
    for days in (6, 8):
        ended_at = f"now() - interval '{days} days'"
        id = put(made, app=f"days-{days}")
        rows(
            made,
            f"UPDATE teola_journal.queries SET state = 'ok', holder = NULL, ended = {ended_at}"
            " WHERE id = %s",
            id,
        )
    with serve() as (_, client):
        assert ended(client, ask(client, "hello").json()["query_id"])["state"] == "ok"
        apps = {one["app"] for one in client.get("/v1/queries").json()["queries"]}
    assert apps == {"days-6", "echo"}
