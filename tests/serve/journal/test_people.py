"""Queries that wait for people: on one server, over a restart, on two, and answered once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from teola import App, Ask, component
from tests.serve.conftest import soon
from tests.serve.journal.conftest import Serve, put, rows
from tests.serve.journal.test_trouble import up
from tests.serve.test_queries import events

LOG: list[str] = []


@component(outputs="draft")
async def draft(question: str) -> str:
    LOG.append(f"draft {question}")
    return f"About {question}."


@component(outputs="answer")
async def send(draft: str, verdict: str) -> str:
    LOG.append(f"send {verdict}")
    return f"{verdict}: {draft}"


@component(outputs="answer")
async def stuck(question: str) -> str:
    LOG.append("stuck")
    if LOG.count("stuck") == 1:
        await asyncio.sleep(60)
    return "done"


ASK = Ask("Send?\n{draft}", schema={"enum": ["yes", "no"]}, gives="verdict")
TEXT, ANSWER = {"question": "text"}, {"answer": "answer"}


def apps(version: str = "", on_unknown: Any = "ask") -> dict[str, App]:
    found = [
        App("mail", draft >> ASK >> send, inputs=TEXT, outputs=ANSWER, version=version),
        App("stuck", stuck, inputs=TEXT, outputs=ANSWER, on_unknown=on_unknown),
    ]
    return {app.name: app for app in found}


@pytest.fixture(autouse=True)
def log() -> None:
    LOG.clear()


def ask(client: httpx.Client, app: str = "mail", mode: str = "background", **more: Any) -> Any:
    body = {"inputs": {"question": "tides"}, "mode": mode, **more}
    return client.post(f"/v1/apps/{app}/queries", json=body)


def waiting(client: httpx.Client, id: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def waits() -> bool:
        found.update(client.get(f"/v1/queries/{id}").json())
        return bool(found["state"] == "waiting")

    soon(waits)
    return found


def answer(client: httpx.Client, id: str, answer: Any, ask: str | None = None) -> httpx.Response:
    return client.post(f"/v1/queries/{id}/answers", json={"answer": answer, "ask": ask})


def done(client: httpx.Client, id: str) -> dict[str, Any]:
    soon(lambda: client.get(f"/v1/queries/{id}").json()["state"] not in ("running", "waiting"))
    found: dict[str, Any] = client.get(f"/v1/queries/{id}").json()
    return found


def test_it_waits_and_goes_on(serve: Serve, dsn: str) -> None:
    with serve(apps()) as (_, client):
        id = ask(client).json()["query_id"]
        (asked,) = waiting(client, id)["asks"]
        assert asked["question"] == "Send?\nAbout tides."
        assert rows(dsn, "SELECT state, left_s > 100 FROM teola_journal.queries") == [
            ("waiting", True)
        ]
        assert answer(client, id, "perhaps").status_code == 422
        assert answer(client, id, "yes", "other").status_code == 422
        assert answer(client, id, "yes").status_code == 200
        assert done(client, id)["result"]["outputs"]["answer"] == "yes: About tides."
        late = answer(client, id, "no")
        assert (late.status_code, late.json()["error"]["code"]) == (409, "answered")
        assert answer(client, "0" * 32, "no").status_code == 404
    assert rows(dsn, "SELECT count(*) FROM teola_journal.steps") == [(0,)]
    assert rows(dsn, "SELECT count(*) FROM teola_journal.asks") == [(0,)]


def test_it_waits_on_over_a_restart_and_nothing_is_done_twice(serve: Serve, dsn: str) -> None:
    with serve(apps()) as (_, client):
        id = ask(client).json()["query_id"]
        before = waiting(client, id)["asks"]
    with serve(apps()) as (served, client):
        assert client.get(f"/v1/queries/{id}").json()["asks"] == before
        (listed,) = client.get("/v1/queries?state=waiting").json()["queries"]
        assert (listed["query_id"], listed["asks"]) == (id, before)
        assert not served.board.running, "it takes no room while it waits"
        assert answer(client, id, "yes", before[0]["ask"]).status_code == 200
        assert done(client, id)["result"]["outputs"]["answer"] == "yes: About tides."
    assert LOG == ["draft tides", "send yes"]


def test_who_waits_leaves_room_for_what_a_dead_server_left(serve: Serve, dsn: str) -> None:
    with serve(apps(), most=1) as (_, client):
        waiting(client, ask(client).json()["query_id"])
        for _ in range(2):
            waiting(client, put(dsn, app="mail"))
    assert LOG == ["draft tides", "draft left over", "draft left over"]


def test_one_of_many_answers_counts(serve: Serve) -> None:
    with serve(apps()) as (_, one), serve(apps()) as (_, other), ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            id = ask(one).json()["query_id"]
            waiting(one, id)
            given = [(c, v) for c in (one, other) for v in ("yes", "no", "yes", "no")]
            codes = [r.status_code for r in pool.map(lambda g, i=id: answer(g[0], i, g[1]), given)]
            assert sorted(codes) == [200] + [409] * 7
            assert done(one, id)["state"] == "ok"
    assert sum(line.startswith("send") for line in LOG) == 5


def test_another_version_does_not_take_it(serve: Serve, dsn: str) -> None:
    with serve(apps()) as (_, client):
        id = ask(client).json()["query_id"]
        waiting(client, id)
    with serve(apps(version="2")) as (_, client):
        assert answer(client, id, "yes").status_code == 200
        soon(lambda: rows(dsn, "SELECT state FROM teola_journal.queries") == [("running",)])
        rows(dsn, "UPDATE teola_journal.queries SET deadline = now()")
        found = done(client, id)
        assert found["state"] == "failed"
        assert "is not what it was when the query was begun" in found["result"]["error"]
    assert LOG == ["draft tides"]


def test_a_sync_query_that_waits_says_so_and_goes_on(serve: Serve) -> None:
    with serve(apps()) as (_, client):
        response = ask(client, mode="sync")
        assert (response.status_code, response.json()["state"]) == (202, "waiting")
        id = response.json()["query_id"]
        assert answer(client, id, "yes").status_code == 200
        assert done(client, id)["result"]["outputs"]["answer"] == "yes: About tides."
        assert answer(client, id, "yes").status_code == 409


@pytest.mark.parametrize("mode", ["sync", "stream"])
def test_a_query_in_any_mode_outlives_its_server_once_it_waits(
    serve: Serve, dsn: str, mode: str
) -> None:
    found = "SELECT state, position('session' IN request) > 0 FROM teola_journal.queries"
    with serve(apps()) as (_, client):
        soon(lambda: up(client))
        body = {"inputs": {"question": "tides"}, "mode": mode, "session": "s"}
        with client.stream("POST", "/v1/apps/mail/queries", json=body) as stream:
            id, heard = stream.headers.get("x-query-id"), ""
            for piece in stream.iter_text():
                heard += piece
                if "waiting" in heard:
                    break
        assert rows(dsn, found) == [("waiting", True)]
    with serve(apps()) as (_, client):
        assert waiting(client, id)["asks"][0]["question"] == "Send?\nAbout tides."
        assert answer(client, id, "yes").status_code == 200
        assert done(client, id)["result"]["outputs"]["answer"] == "yes: About tides."
    assert LOG == ["draft tides", "send yes"]


def test_a_stream_says_what_it_waits_for(serve: Serve) -> None:
    with serve(apps()) as (_, client):
        body = {"inputs": {"question": "tides"}, "mode": "stream"}
        with client.stream("POST", "/v1/apps/mail/queries", json=body) as stream:
            id, heard = stream.headers["x-query-id"], ""
            for piece in stream.iter_text():
                heard += piece
                if "event: waiting" in piece:
                    assert answer(client, id, "no").status_code == 200
        kinds = [kind for _, kind, _ in events(heard)]
        assert kinds.count("waiting") == 1
        assert kinds[-1] == "done"


def interrupted(serve: Serve, kind: Any) -> str:
    """A query whose function was cut off by the end of its server."""
    with serve(apps(on_unknown=kind)) as (_, client):
        id: str = ask(client, "stuck").json()["query_id"]
        soon(lambda: LOG == ["stuck"])
    return id


@pytest.mark.parametrize(
    ("told", "state", "calls"),
    [
        ({"do": "repeat"}, "ok", 2),
        ({"do": "take", "result": "seen it"}, "ok", 1),
        ({"do": "fail"}, "failed", 1),
    ],
)
def test_people_say_what_became_of_what_was_cut_off(
    serve: Serve, told: dict[str, Any], state: str, calls: int
) -> None:
    id = interrupted(serve, "ask")
    with serve(apps()) as (_, client):
        (asked,) = waiting(client, id)["asks"]
        assert (asked["kind"], asked["component"]) == ("unknown", "stuck")
        assert answer(client, id, told).status_code == 200
        assert done(client, id)["state"] == state
    assert ["stuck"] * calls == LOG


def test_what_was_cut_off_fails_if_nobody_is_to_be_asked(serve: Serve) -> None:
    id = interrupted(serve, "fail")
    with serve(apps(on_unknown="fail")) as (_, client):
        found = done(client, id)
        assert found["state"] == "failed"
        assert "may have happened, so it is not done again" in found["result"]["error"]
    assert LOG == ["stuck"]
