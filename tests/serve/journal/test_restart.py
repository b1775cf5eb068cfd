"""Servers that end, in order or not, with background queries in flight: none is lost.

A server without engines is there in half the time, so only what is about documents has some."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.serve.conftest import soon
from tests.serve.databases import place_of_servers
from tests.serve.killing import kill_during_ingestion
from tests.serve.mortal import Database, Mortal, document, mortal, wanted

QUERIES = 10
"""Of each application."""
NO_ENGINES = ("working",)


@dataclass(frozen=True, slots=True)
class Place:
    """Where servers come and go. effects: what their queries note."""

    folder: Path
    database: Database
    effects: Path

    def notes(self) -> list[tuple[str, str, int]]:
        """What, of which query, by which process."""
        text = self.effects.read_text() if self.effects.exists() else ""
        words = [line.split() for line in text.splitlines()]
        return [(what, token, int(pid)) for what, token, pid in words]


@pytest.fixture
def place(servers: None) -> Iterator[Place]:
    with place_of_servers() as (folder, admin):
        yield Place(folder, Database(admin), folder / "effects")


def work(server: Mortal, seconds: float = 1.0) -> dict[str, str]:
    """Ask many queries in the background that need no engine; name -> id."""
    asked = {}
    for i in range(QUERIES):
        inputs = {"token": f"work-{i}", "seconds": str(seconds)}
        asked[f"work-{i}"] = server.ask("working", inputs).json()["query_id"]
    return asked


def ingest(server: Mortal) -> dict[str, str]:
    """As many that store a document each, in a collection of its own; name -> id."""
    asked = {}
    for i in range(QUERIES):
        inputs = {"documents": [document(f"doc-{i}", 48)], "collection": f"collection-{i}"}
        asked[f"doc-{i}"] = server.ask("ingesting", inputs).json()["query_id"]
    return asked


def check(server: Mortal, place: Place, asked: dict[str, str]) -> None:
    """All have ended well, and nobody holds them."""
    states = Counter(server.ended(id)["state"] for id in asked.values())
    assert states == {"ok": len(asked)}
    left = "SELECT count(*) FROM teola_journal.queries WHERE ended IS NULL OR holder IS NOT NULL"
    assert place.database.rows(left) == [(0,)]


def test_sigterm_gives_back_what_runs_and_the_next_server_ends_it(place: Place) -> None:
    with mortal(place.folder, effects=place.effects) as server:
        asked = ingest(server) | work(server)
        soon(lambda: len(place.notes()) >= QUERIES)
        assert server.end(signal.SIGTERM) == 0
    held = "SELECT count(*) FROM teola_journal.queries WHERE holder IS NOT NULL"
    assert place.database.rows(held) == [(0,)]
    ended = "SELECT id FROM teola_journal.queries WHERE ended IS NOT NULL"
    done = {id for (id,) in place.database.rows(ended)}
    assert len(done) < len(asked), "all had ended before: nothing was tried"
    with mortal(place.folder, effects=place.effects) as server:
        check(server, place, asked)
    for i in range(QUERIES):
        assert place.database.stored(f"collection-{i}") == wanted([document(f"doc-{i}", 48)])
    assert place.database.pending() == 0
    runs = dict(place.database.rows("SELECT id, runs FROM teola_journal.queries"))
    assert runs == {id: 1 if id in done else 2 for id in asked.values()}
    notes = Counter((what, token) for what, token, _ in place.notes())
    for i in range(QUERIES):
        most = runs[asked[f"work-{i}"]]
        assert notes["begin", f"work-{i}"] <= most
        assert 1 <= notes["end", f"work-{i}"] <= most
    assert place.database.rows("SELECT max(deaths) FROM teola_journal.queries") == [(0,)]


@pytest.mark.nightly
def test_sigkill_loses_nothing_either(place: Place) -> None:
    """What it does to documents that are half stored, see the last test."""
    with mortal(place.folder, NO_ENGINES, effects=place.effects) as server:
        asked = work(server)
        soon(lambda: len(place.notes()) >= QUERIES)
        server.end(signal.SIGKILL)
    waiting = "SELECT count(*) FROM teola_journal.queries WHERE ended IS NULL"
    assert place.database.rows(waiting)[0][0] > 0, "all had ended before: nothing was tried"
    with mortal(place.folder, NO_ENGINES, effects=place.effects) as server:
        check(server, place, asked)
        last = httpx.get(f"{server.url}/v1/queries", params={"limit": 500}).json()["queries"]
        assert {one["query_id"] for one in last} == set(asked.values())


def test_two_servers_share_a_journal_and_one_takes_over(place: Place) -> None:
    """What one runs the other leaves alone, shows, and can cancel; what it leaves, it takes."""
    with (
        mortal(place.folder, NO_ENGINES, effects=place.effects) as first,
        mortal(place.folder, NO_ENGINES, effects=place.effects) as second,
    ):
        inputs = {"token": "unwanted", "seconds": "60"}
        unwanted = first.ask("working", inputs).json()["query_id"]
        assert second.get(unwanted)["state"] == "running"
        cancelled = httpx.delete(f"{second.url}/v1/queries/{unwanted}", timeout=60).json()
        assert cancelled["state"] == "cancelled"
        assert first.get(unwanted)["state"] == "cancelled"
        inputs = {"token": "followed", "seconds": "0"}
        followed = second.ended(first.ask("working", inputs).json()["query_id"])
        assert followed["state"] == "ok"
        asked = work(first, seconds=8)
        soon(lambda: len(place.notes()) > QUERIES + 2)
        assert {pid for _, _, pid in place.notes()} == {first.process.pid}
        first.end(signal.SIGKILL)
        check(second, place, asked)
        begun = Counter(token for what, token, _ in place.notes() if what == "begin")
        assert set(begun.values()) == {1, 2}


def test_uploaded_documents_survive_too(place: Place) -> None:
    text = "\n".join(f"line {i}" for i in range(400))
    with mortal(place.folder) as server:
        response = httpx.post(
            f"{server.url}/v1/apps/ingesting/queries",
            data={"request": '{"mode": "background", "inputs": {"collection": "mine"}}'},
            files=[("documents", ("a.txt", text.encode())), ("documents", ("b.txt", b"just this"))],
        )
        assert response.status_code == 202, response.text
        server.end(signal.SIGKILL)
    with mortal(place.folder) as server:
        assert server.ended(response.json()["query_id"])["state"] == "ok"
    documents = [{"name": "a.txt", "text": text}, {"name": "b.txt", "text": "just this"}]
    assert place.database.stored("mine") == wanted(documents)
    assert place.database.rows("SELECT count(*) FROM teola_journal.files") == [(0,)]


@pytest.mark.server
def test_servers_killed_while_they_ingest() -> None:
    found = kill_during_ingestion(3)
    assert found.kills == 3
    assert found.amid > 0, "no kill came amid an ingestion: nothing was tried"
