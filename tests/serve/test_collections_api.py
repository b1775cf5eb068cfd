"""Collections over HTTP, on the embedded store: what comes, is listed, replaced and deleted."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from teola import Runtime, collections
from teola.catalogue import load_app
from teola.query.query_files import PREFIX
from teola.serve.access.auth import KeyFile
from tests.serve.conftest import serving
from tests.serve.databases import journal_in, journal_on, new_database

LAMP = {"name": "lamp.md", "text": "Mara Quist keeps the lamp.", "metadata": {"lang": "en"}}
BOATS = {"name": "boats.md", "text": "Fourteen boats are moored in the harbour."}


@pytest.fixture(scope="module")
def clients(
    runtime: Runtime, admin: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Of two tenants of a server that keeps a journal."""
    keys = KeyFile(tmp_path_factory.mktemp("keys") / "keys.json")
    secrets = [keys.create(name, name) for name in ("red", "blue")]
    app = load_app("naive-rag")
    with (
        journal_on(admin) as journal,
        serving(runtime, {app.name: app}, keys, journal) as found,
    ):
        red, blue = (
            httpx.Client(base_url=found.url, headers={"x-api-key": secret}, timeout=60)
            for secret in secrets
        )
        with red, blue:
            yield red, blue


@pytest.fixture
def red(clients: tuple[httpx.Client, httpx.Client]) -> httpx.Client:
    return clients[0]


@pytest.fixture
def blue(clients: tuple[httpx.Client, httpx.Client]) -> httpx.Client:
    return clients[1]


@pytest.fixture
def place() -> str:
    """The documents of a collection that there is not yet."""
    return f"/v1/collections/c{uuid4().hex}/documents"


def done(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """What an accepted query that indexes has done."""
    assert answer.status_code == 202, answer.text
    assert answer.json()["app"] == "index-documents"
    where = answer.headers["location"]
    with client.stream("GET", f"{where}/events") as events:
        events.read()
    shown = client.get(where).json()
    assert shown["state"] == "ok", shown
    outputs: dict[str, Any] = shown["result"]["outputs"]
    return outputs


def names(client: httpx.Client, place: str) -> list[str]:
    return [one["name"] for one in client.get(place).json()["documents"]]


def test_documents_come_are_replaced_and_go(red: httpx.Client, place: str) -> None:
    collection = place.split("/")[3]
    body = {"documents": [LAMP, BOATS], "metadata": {"year": 2026, "lang": "de"}}
    told = done(red, red.post(place, json=body))
    assert told == {
        "collection": collection, "documents": 2, "new": 2, "known": 0, "replaced": [],
        "taken": 0, "chunks": 2, "hidden": 0,
    }  # fmt: skip
    mine = {"name": collection, "documents": 2, "chunks": 2}
    assert mine in red.get("/v1/collections").json()["collections"]
    listed = red.get(place).json()
    assert (listed["collection"], listed["total"]) == (collection, 2)
    metadata = {one["name"]: one["metadata"] for one in listed["documents"]}
    assert metadata == {
        "lamp.md": {"year": 2026, "lang": "en"},
        "boats.md": {"year": 2026, "lang": "de"},
    }
    page = red.get(place, params={"offset": 1, "limit": 1}).json()["documents"]
    assert page == listed["documents"][1:]

    changed = {**LAMP, "text": "Jon Vane keeps the lamp."}
    copied = {**BOATS, "name": "copy.md", "metadata": {"year": 2026, "lang": "de"}}
    told = done(red, red.post(place, json={"documents": [changed, copied]}))
    assert (told["new"], told["replaced"], told["taken"], told["chunks"]) == (2, ["lamp.md"], 1, 1)
    again = done(red, red.post(place, json={"documents": changed}))
    assert (again["new"], again["known"], again["replaced"]) == (0, 1, [])
    inputs = {"question": "Who keeps the lamp?", "collection": collection}
    answer = red.post("/v1/apps/naive-rag/queries", json={"inputs": inputs}).json()
    assert "Jon Vane" in answer["outputs"]["answer"]
    assert "Mara" not in json.dumps(answer["outputs"])

    ids = {one["name"]: one["id"] for one in listed["documents"]}
    gone = red.delete(place, params={"name": ["copy.md", ids["boats.md"]]}).json()
    assert gone == {"collection": collection, "deleted": 2}
    assert names(red, place) == ["lamp.md"]
    assert red.delete(place, params={"all": True}).json()["deleted"] == 1
    assert red.get(place).status_code == 404


def test_files_come_in_a_form(red: httpx.Client, place: str) -> None:
    files = [
        ("documents", ("a.html", b"<p>Mara keeps the lamp.</p><p hidden>not here</p>")),
        ("documents", ("b.md", b"Fourteen boats.")),
    ]
    data = {"request": json.dumps({"metadata": {"year": 2026}, "documents": LAMP})}
    told = done(red, red.post(place, data=data, files=files))
    assert (told["new"], told["hidden"]) == (3, 1)
    found = {one["name"]: one["metadata"] for one in red.get(place).json()["documents"]}
    assert found == {
        "a.html": {"year": 2026},
        "b.md": {"year": 2026},
        "lamp.md": {"year": 2026, "lang": "en"},
    }


def test_a_request_with_a_key_is_one(red: httpx.Client, place: str) -> None:
    headers = {"idempotency-key": uuid4().hex}
    first = red.post(place, json={"documents": LAMP}, headers=headers)
    second = red.post(place, json={"documents": LAMP}, headers=headers)
    assert second.headers["idempotency-replayed"] == "true"
    assert first.json()["query_id"] == second.json()["query_id"]
    assert done(red, first)["new"] == 1


def test_a_document_that_cannot_be_read_stores_nothing(red: httpx.Client, place: str) -> None:
    files = {"documents": ("a.pdf", b"no PDF at all")}
    answer = red.post(place, data={"request": json.dumps({"documents": LAMP})}, files=files)
    where = answer.headers["location"]
    with red.stream("GET", f"{where}/events") as events:
        events.read()
    shown = red.get(where).json()
    assert shown["state"] == "failed"
    assert "a.pdf" in shown["result"]["error"]
    assert red.get(place).status_code == 404


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("c", {}, "nothing to index"),
        ("c", {"documents": []}, "nothing to index"),
        ("c", {"documents": {"name": "a"}}, "a document is"),
        ("c", {"documents": "/etc/passwd"}, "a document is"),
        ("c", {"documents": {"name": "a", "path": "/etc/passwd"}}, "a document is"),
        ("c", {"documents": {"url": "http://127.0.0.1/x"}}, "fetches no documents by URL"),
        ("c", {"documents": LAMP, "metadata": {"x": "y" * 20_000}}, "metadata of a document has"),
        ("c", {"documents": LAMP, "metadata": [1]}, "metadata"),
        ("c", {"documents": LAMP, "collection": "d"}, "collection"),
        ("c", {"documents": LAMP, "deadline_s": 1e9}, "deadline_s"),
        ("c", {"documents": LAMP, "overrides": {"index.nothing": 1}}, "nothing"),
        ("documents", {"documents": LAMP}, "name another"),
        ("a%00b", {"documents": LAMP}, "NUL"),
        ("a%09b", {"documents": LAMP}, "line breaks"),
        ("c" * 256, {"documents": LAMP}, "255"),
        ("%20", {"documents": LAMP}, "1 to 255"),
    ],
)
def test_what_is_refused(red: httpx.Client, name: str, body: dict[str, Any], told: str) -> None:
    answer = red.post(f"/v1/collections/{name}/documents", json=body)
    assert answer.status_code == 422, answer.text
    assert told in answer.json()["error"]["message"]


def test_forms_are_read_strictly_and_within_bounds(red: httpx.Client, place: str) -> None:
    file = ("a.md", b"A lamp.")
    other = red.post(place, files={"document": file})
    assert "not 'document'" in other.json()["error"]["message"]
    text = red.post(place, data={"documents": "x"}, files={"documents": file})
    assert text.status_code == 422
    large = red.post(place, files={"documents": ("a.md", b"a" * (65 * 2**20))})
    assert large.status_code == 413
    assert red.post(place, content=b" " * (5 * 2**20)).status_code == 413


def test_files_of_what_is_refused_are_not_kept(
    red: httpx.Client, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = ("documents", ("a.md", b"A lamp."))
    wrong = {"request": json.dumps({"overrides": {"index.nothing": 1}})}
    for files, data in (([file, ("document", ("b.md", b"b"))], {}), ([file], wrong)):
        assert red.post(place, files=files, data=data).status_code == 422
    assert not list(tmp_path.glob(f"{PREFIX}*/*"))


def test_deleting_says_which(red: httpx.Client, place: str) -> None:
    assert red.delete(place, params={"all": True}).status_code == 404
    done(red, red.post(place, json={"documents": LAMP}))
    for params in ({}, {"all": True, "name": "lamp.md"}, {"name": ["a"] * 101}):
        assert red.delete(place, params=params).status_code == 422, params
    missing = red.delete(place, params={"name": ["lamp.md", "lmap.md"]})
    assert missing.status_code == 404
    assert "did you mean 'lamp.md'" in missing.json()["error"]["message"]
    assert names(red, place) == ["lamp.md"]


def test_tenants_have_their_own(red: httpx.Client, blue: httpx.Client, place: str) -> None:
    done(red, red.post(place, json={"documents": LAMP}))
    assert blue.get(place).status_code == 404
    assert blue.delete(place, params={"all": True}).status_code == 404
    assert place.split("/")[3] not in blue.get("/v1/collections").text
    assert done(blue, blue.post(place, json={"documents": [LAMP, BOATS]}))["new"] == 2
    assert blue.delete(place, params={"all": True}).json()["deleted"] == 2
    assert names(red, place) == ["lamp.md"]


def test_a_name_with_a_slash_is_a_name(red: httpx.Client) -> None:
    place = f"/v1/collections/{uuid4().hex}%2Fdocuments/documents"
    done(red, red.post(place, json={"documents": LAMP}))
    assert names(red, place) == ["lamp.md"]


def test_no_journal_is_needed_and_files_are_replaced(
    runtime: Runtime, place: str, tmp_path: Path
) -> None:
    file = tmp_path / "lamp.md"
    file.write_text("Jon Vane keeps the lamp.")
    collections.index(file, collection=place.split("/")[3], runtime=runtime)
    with (
        serving(runtime, {}) as found,
        httpx.Client(base_url=found.url, timeout=60) as client,
    ):
        assert str(tmp_path) not in client.get(place).text
        told = done(client, client.post(place, json={"documents": LAMP}))
        assert (told["new"], told["replaced"]) == (1, ["lamp.md"])
        assert client.delete(place, params={"all": True}).json()["deleted"] == 1


def test_another_server_goes_on_with_what_one_has_left(
    runtime: Runtime, admin: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the files, whose first server ended while it read them."""
    loader, reading = runtime.host("documents").engine, threading.Event()

    async def reads(*_: Any) -> None:
        reading.set()
        await asyncio.Event().wait()

    files = {"documents": ("a.md", b"Mara keeps the lamp.")}
    with new_database(admin) as dsn:
        with monkeypatch.context() as patch, serving(runtime, {}, None, journal_in(dsn)) as first:
            patch.setattr(loader, "split", reads)
            answer = httpx.post(f"{first.url}{place}", files=files, timeout=60)
            assert reading.wait(60)
        with (
            serving(runtime, {}, None, journal_in(dsn)) as second,
            httpx.Client(base_url=second.url, timeout=60) as client,
        ):
            assert done(client, answer)["new"] == 1
            assert names(client, place) == ["a.md"]
            client.delete(place, params={"all": True})
