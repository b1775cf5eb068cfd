"""The life of a query over HTTP: asked, followed, looked at, cancelled, refused."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from teola.query.job import Job
from teola.runtime.observe.trace import Trace
from teola.serve import board
from teola.serve.board import Entry
from teola.serve.intake.uploads import file_label
from tests.serve.conftest import Served, soon

ECHO = "/v1/apps/echo/queries"


def ask(client: httpx.Client, question: str, **more: Any) -> httpx.Response:
    return client.post(ECHO, json={"inputs": {"question": question}, **more})


def events(text: str) -> list[tuple[int, str, Any]]:
    """Number, kind and data of every event."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


@pytest.fixture
def collected() -> Iterator[list[Any]]:
    """What only Python's search for cycles finds, in the meantime."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize("mode", ["sync", "stream"])
def test_a_forgotten_query_is_freed_at_once(
    client: httpx.Client, served: Served, collected: list[Any], mode: str
) -> None:
    """A server that keeps the last ones would else hold many more, until Python looks for them."""
    assert ask(client, "hello", mode=mode).status_code == 200
    soon(lambda: not served.board.running)
    assert served.board.past
    served.board.past.clear()
    gc.collect()
    assert [one for one in collected if isinstance(one, Entry | Job | Trace)] == []


def test_large_answers_are_forgotten_sooner(
    client: httpx.Client, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.board.past.clear()
    served.board.past_bytes = 0
    ids = [ask(client, "x" * 300_000).json()["query_id"] for _ in range(3)]
    assert [id for id in ids if id in served.board.past] == ids
    monkeypatch.setattr(board, "KEPT_BYTES", 700_000)
    ids.append(ask(client, "x" * 300_000).json()["query_id"])
    assert [id for id in ids if id in served.board.past] == ids[2:]
    assert served.board.past_bytes == sum(one.bytes for one in served.board.past.values())
    monkeypatch.setattr(board, "KEPT_BYTES", 1)
    ids.append(ask(client, "hello").json()["query_id"])
    assert list(served.board.past) == ids[-1:], "the last one is kept"


# --- asking ---------------------------------------------------------------------------------


def test_sync_answers_with_the_result(client: httpx.Client) -> None:
    response = ask(client, "hello")
    assert response.status_code == 200
    found = response.json()
    assert found["outputs"] == {"answer": "you said: hello"}
    assert found["state"] == "ok"
    assert found["query_id"] == response.headers["x-query-id"]


def test_stream_numbers_its_events_and_ends_with_done(client: httpx.Client) -> None:
    response = ask(client, "hello", mode="stream")
    assert response.headers["content-type"].startswith("text/event-stream")
    found = events(response.text)
    assert [n for n, _, _ in found] == list(range(1, len(found) + 1))
    kinds = [kind for _, kind, _ in found]
    assert kinds[0] == "primitive"
    assert kinds.count("token") == 1
    assert kinds[-1] == "done"
    assert found[-1][2]["outputs"] == {"answer": "you said: hello"}


def test_background_is_accepted_and_can_be_followed_from_any_event(client: httpx.Client) -> None:
    response = ask(client, "hello", mode="background")
    assert response.status_code == 202
    where = response.headers["location"]
    whole = events(client.get(f"{where}/events").text)
    rest = events(client.get(f"{where}/events", headers={"Last-Event-ID": "2"}).text)
    assert rest == whole[2:]
    nothing = client.get(f"{where}/events", headers={"Last-Event-ID": str(len(whole))})
    assert (nothing.status_code, nothing.text) == (204, "")
    assert client.get(where).json()["result"]["outputs"] == {"answer": "you said: hello"}


def test_a_failure_ends_every_mode_with_its_reason(client: httpx.Client) -> None:
    response = ask(client, "fail")
    assert response.status_code == 502
    error = response.json()["error"]
    assert error["code"] == "failed"
    assert "bad luck" in error["message"]
    assert error["query_id"] == response.headers["x-query-id"]
    last = events(ask(client, "fail", mode="stream").text)[-1]
    assert last[1] == "error"
    assert "bad luck" in last[2]["error"]["message"]


def test_a_deadline_is_one(client: httpx.Client) -> None:
    response = ask(client, "please wait", deadline_s=0.2)
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "deadline"


def test_an_objective_is_promised_and_told_and_nothing_is_given_up_at_it(
    client: httpx.Client,
) -> None:
    for finish_by_s, met in ((60.0, True), (1e-6, False)):
        found = ask(client, "hello", finish_by_s=finish_by_s).json()
        assert found["objective"] == {"finish_by_s": finish_by_s, "stated": True, "met": met}
        assert found["state"] == "ok"
    page = client.get("/metrics").text
    for met in ("true", "false"):
        assert f'teola_objective_total{{app="echo",met="{met}"}}' in page
    assert 'teola_objective_ratio_count{app="echo"}' in page


# --- looking and cancelling -----------------------------------------------------------------


def test_trace_and_graph_of_a_query(client: httpx.Client) -> None:
    id = ask(client, "hello").json()["query_id"]
    spans = client.get(f"/v1/queries/{id}/trace").json()["spans"]
    assert any(span["primitive"] == "say.call" and span["state"] == "done" for span in spans)
    graph = client.get(f"/v1/queries/{id}/graph").json()
    assert [p["id"] for p in graph["primitives"]] == ["say.call"]
    mermaid = client.get(f"/v1/queries/{id}/graph", params={"form": "mermaid"}).text
    assert mermaid.startswith(("flowchart", "graph"))


def test_lists_are_filtered_newest_first(client: httpx.Client) -> None:
    first, second = (ask(client, text).json()["query_id"] for text in ("one", "two"))
    ask(client, "fail")
    listed = client.get("/v1/queries", params={"state": "ok", "app": "echo"}).json()["queries"]
    ids = [one["query_id"] for one in listed]
    assert ids[:2] == [second, first]
    assert {one["state"] for one in listed} == {"ok"}


def test_delete_cancels_and_tells_followers(client: httpx.Client, served: Served) -> None:
    where = ask(client, "wait", mode="background").headers["location"]
    assert client.get(where).json()["state"] == "running"
    assert client.delete(where).json()["state"] == "cancelled"
    last = events(client.get(f"{where}/events").text)[-1]
    assert last[1] == "error"
    assert last[2]["error"]["code"] == "cancelled"
    assert client.delete(where).json()["state"] == "cancelled"
    assert not served.runtime.live.queries


@pytest.mark.parametrize("mode", ["sync", "stream"])
def test_a_client_that_leaves_cancels_its_query(
    client: httpx.Client, served: Served, mode: str
) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.post(
            ECHO, json={"inputs": {"question": "wait"}, "mode": mode}, timeout=httpx.Timeout(0.5)
        )
    soon(lambda: not served.board.running)
    assert client.get("/v1/queries").json()["queries"][0]["state"] == "cancelled"


def test_a_follower_that_leaves_cancels_nothing(client: httpx.Client, served: Served) -> None:
    where = ask(client, "wait", mode="background").headers["location"]
    with pytest.raises(httpx.ReadTimeout):
        client.get(f"{where}/events", timeout=httpx.Timeout(0.3))
    assert client.get(where).json()["state"] == "running"
    client.delete(where)
    assert not served.board.running


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ("{", 422, "not JSON"),
        ("[]", 422, "dictionary"),
        ('{"input": {}}', 422, "input"),
        ('{"inputs": {"quesion": "x"}}', 422, "did you mean 'question'"),
        ('{"inputs": {"question": 7}}', 422, "must be a text"),
        ('{"inputs": {"question": "x"}, "mode": "later"}', 422, "mode"),
        ('{"inputs": {"question": "x"}, "deadline_s": -1}', 422, "deadline_s"),
        ('{"inputs": {"question": "x"}, "deadline_s": 1e999}', 422, "too large"),
        ('{"inputs": {"question": "x"}, "finish_by_s": 0}', 422, "finish_by_s"),
        ('{"inputs": {"question": "x"}, "finish_by_s": 121}', 422, "a longer deadline_s"),
        ('{"inputs": {"question": "x"}, "overrides": {"sy.x": 1}}', 422, "did you mean 'say'"),
        ('{"inputs": {"question": "x"}, "passes": "most"}', 422, "pass"),
        ('{"inputs": {"question": "' + "x" * 5_000_000 + '"}}', 413, "larger than 4 MiB"),
        ("[" * 100_000, 422, "not JSON"),
    ],
)
def test_a_bad_body_is_told_what_is_wrong(
    client: httpx.Client, served: Served, body: str, status: int, told: str
) -> None:
    response = client.post(ECHO, content=body)
    assert response.status_code == status
    assert told in response.json()["error"]["message"]
    assert not served.board.running


def test_a_body_that_does_not_say_how_long_it_is_is_cut_off(client: httpx.Client) -> None:
    pieces = (b'{"inputs": {"question": "', *(b"x" * 2**20 for _ in range(5)), b'"}}')
    response = client.post(ECHO, content=iter(pieces))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "too_large"


def test_what_was_asked_is_not_kept(client: httpx.Client, served: Served) -> None:
    id = ask(client, "a long question").json()["query_id"]
    assert not served.board.past[id].job.given


def test_unknown_names_are_not_found(client: httpx.Client) -> None:
    for path in ("/v1/apps/eco", "/v1/queries/none", "/v1/queries/none/trace", "/nowhere"):
        response = client.get(path)
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "not_found"
    assert "did you mean 'echo'" in client.get("/v1/apps/eco").json()["error"]["message"]
    assert client.put("/v1/apps").status_code == 405


def test_who_answers_what_does_not_ask_is_told_so(client: httpx.Client) -> None:
    """Whether it runs or has ended; who names none is told that there is none."""

    def answered(id: str, **body: Any) -> tuple[int, str]:
        response = client.post(f"/v1/queries/{id}/answers", json={"answer": True, **body})
        return response.status_code, response.json()["error"]["code"]

    ids = [ask(client, question).headers["x-query-id"] for question in ("hello", "fail")]
    ids.append(ask(client, "wait", mode="background").headers["x-query-id"])
    for id in ids:
        assert answered(id) == (409, "answered")
        assert answered(id, ask="a question") == (409, "answered")
        assert answered(id, more=1)[0] == 422
    assert client.delete(f"/v1/queries/{ids[2]}").json()["state"] == "cancelled"
    assert answered(ids[2]) == (409, "answered")
    assert answered("0" * 32) == (404, "not_found")


def test_more_than_may_run_are_refused_at_once(client: httpx.Client, served: Served) -> None:
    served.board.most = 1
    try:
        where = ask(client, "wait", mode="background").headers["location"]
        response = ask(client, "hello")
        assert response.status_code == 429
        assert response.headers["retry-after"] == "1"
        assert response.json()["error"]["retryable"] is True
        client.delete(where)
        assert ask(client, "hello").status_code == 200
    finally:
        served.board.most = 1024


def test_lists_and_texts_come_by_form_too(client: httpx.Client) -> None:
    response = client.post(
        "/v1/apps/count/queries", files=[("names", (None, "a")), ("names", (None, "b"))],
        data={"unit": "letters"},
    )  # fmt: skip
    assert response.json()["outputs"] == {"answer": {"count": 2, "unit": "letters"}}
    refused = client.post("/v1/apps/count/queries", files={"unit": ("x.txt", b"x")})
    assert refused.status_code == 422
    assert "takes no documents" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ("notes.md", "notes.md"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/abs/x.pdf", "x.pdf"),
        ("a\x00b\n.txt", "ab.txt"),
        ("..", "document"),
        ("x" * 116 + ".txt", "x" * 116 + ".txt"),
        ("x" * 500 + ".txt", "…" + "x" * 115 + ".txt"),
    ],
)
def test_a_files_name_is_a_label_and_no_path(given: str, label: str) -> None:
    assert file_label(given) == label
    assert Path(file_label(given)).name == file_label(given)
