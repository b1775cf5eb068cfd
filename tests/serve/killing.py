"""Servers that are killed while they ingest, again and again: what is stored must be as if not.

`python -m tests.serve.killing 50` does it fifty times.
"""

from __future__ import annotations

import random
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass

from tests.serve.conftest import soon
from tests.serve.mortal import Database, Document, Mortal, document, mortal, place, wanted


@dataclass(frozen=True, slots=True)
class Killed:
    """kills: in all. amid: of them, those that left a document half stored or a query that had not
    ended. chunks: stored in the end, each exactly once."""

    kills: int
    amid: int
    chunks: int


def kill_during_ingestion(n: int, seed: int = 0) -> Killed:
    """Kill `n` servers with SIGKILL, each when a background query that ingests two documents has
    stored as many chunks as chance will have it; the next server must complete that query.

    Raises AssertionError where a query is lost, or the stored chunks are not the documents'.
    """
    chance, amid, chunks = random.Random(seed), 0, 0
    with place() as (folder, database), ExitStack() as stack:
        server = stack.enter_context(mortal(folder, pause_s=0.1))
        _undisturbed(server, database)
        for round_ in range(n):
            documents = [document(f"{round_}-{i}", chance.randint(20, 120)) for i in range(2)]
            asked = _asked(server, round_, documents)
            most = chance.randrange(len(wanted(documents)))
            soon(lambda n=round_, most=most: len(_chunks(database, n)) >= most, 60)
            server.end(signal.SIGKILL)
            amid += database.pending() > 0 or not _has_ended(database, asked)
            server = stack.enter_context(mortal(folder, pause_s=0.1))
            _check(server, database, round_, documents, asked)
            chunks += len(wanted(documents))
        assert database.pending() == 0
    return Killed(n, amid, chunks)


def _asked(server: Mortal, round_: int, documents: list[Document]) -> str:
    """Id of a query that stores the documents in a collection of its own."""
    inputs = {"documents": documents, "collection": f"round-{round_}"}
    id: str = server.ask("ingesting", inputs, key=f"round-{round_}").json()["query_id"]
    return id


def _undisturbed(server: Mortal, database: Database) -> None:
    """What is stored if nobody is killed."""
    documents = [document(f"calm-{i}", 70) for i in range(2)]
    found = server.ended(_asked(server, -1, documents))
    assert found["state"] == "ok", found
    assert database.stored("round--1") == wanted(documents)


def _check(
    server: Mortal, database: Database, round_: int, documents: list[Document], asked: str
) -> None:
    """The query ends, and what is stored is what it was given; asked again, it is the same one."""
    found = server.ended(asked)
    assert found["state"] == "ok", found
    assert database.stored(f"round-{round_}") == wanted(documents)
    assert _asked(server, round_, documents) == asked
    assert database.stored(f"round-{round_}") == wanted(documents)


def _chunks(database: Database, round_: int) -> list[object]:
    """What is stored of a round so far, visible or not."""
    return [row for row in database.stored(f"round-{round_}") if row[2] is not None]


def _has_ended(database: Database, id: str) -> bool:
    rows = database.rows("SELECT ended FROM teola_journal.queries WHERE id = %s", id)
    assert len(rows) == 1, "an accepted query is not in the journal"
    return rows[0][0] is not None


if __name__ == "__main__":
    print(kill_during_ingestion(int(sys.argv[1]), seed=int("".join(sys.argv[2:3]) or 0)))
