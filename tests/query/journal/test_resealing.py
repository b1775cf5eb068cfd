"""Sealing what lies in a journal: every query once, whoever else works on it, and it is said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from teola.query.journal import durable, resealing
from teola.query.journal.journal import Journal
from teola.query.journal.lost import JournalUnreadable
from teola.query.journal.query_rows import Asked
from teola.query.journal.resealing import Sealing, seal_rest
from teola.query.journal.sealing import BYTES_MARK, MARK
from tests.serve.journal.conftest import reached, rows
from tests.serve.journal.test_asks import filed

KEY, OTHER = "a key that nobody guesses", "another key that is as long"
TEXTS = """
SELECT request FROM teola_journal.queries UNION ALL SELECT value FROM teola_journal.steps
UNION ALL SELECT told FROM teola_journal.asks UNION ALL SELECT answer FROM teola_journal.asks
"""
BODIES = "SELECT body FROM teola_journal.files ORDER BY number, piece"
MARKS = "SELECT id, seal FROM teola_journal.queries ORDER BY id"


async def accepted(journal: Journal, *ids: str, files: Any = ()) -> None:
    for id in ids:
        asked = Asked(id, "t", "app", '{"secret": 1}', 1.0, 1e6, "code", files, f"key {id}", "d")
        assert await journal.accept(asked) is None


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
async def test_every_query_is_sealed_once_a_few_at_a_time(
    made: str, count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And none again, but where that is asked for; then nothing in them changes."""
    monkeypatch.setattr(resealing, "AT_ONCE", 2)
    ids = [f"q{n}" for n in range(count)]
    heard = list[str]()
    async with reached(made) as plain:
        await accepted(plain, *ids)
    async with reached(made, KEY) as journal:
        assert journal.to_be_sealed
        assert await seal_rest(journal, on_query=heard.append) == Sealing(count, count, 0)
        assert heard == ids
        assert (journal.to_be_sealed, journal.seal.required) == (False, True)
        before = rows(made, TEXTS), rows(made, MARKS)
        assert all(text.startswith(MARK) for (text,) in before[0])
        assert all(journal.seal.of("t", id).open("query", mark) == "" for id, mark in before[1])
        for again, told in ((False, []), (True, ids)):
            heard.clear()
            assert await seal_rest(journal, again, heard.append) == Sealing()
            assert heard == told
        assert (rows(made, TEXTS), rows(made, MARKS)) == before
    records: list[Any] = [record for record in caplog.records if record.name.endswith("resealing")]
    assert [(record.levelname, record.event, record.fields) for record in records] == [
        ("WARNING", "journal_sealed", {"values": count, "queries": count})
    ] * (count > 0)


@pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 1])
async def test_all_that_a_query_has_is_sealed_in_its_place(
    made: str, tmp_path: Path, size: int
) -> None:
    """Its request, what was done, asked and answered, and its documents; then all of it is read."""
    document, empty = tmp_path / "one", tmp_path / "two"
    document.write_bytes(b"x" * size)
    empty.write_bytes(b"")
    async with reached(made) as plain:
        await accepted(plain, "q", files=[document, empty])
        await filed(plain, "asks", {"done": '{"text": "a"}', "begun": None})
        await durable.answer(plain, "t", "asks", "first", True, takes=False)
        steps = await durable.steps_of(plain, "t", "asks")
    async with reached(made, KEY) as journal:
        pieces = -(-size // 2**20)
        # a request each; a step, three questions and an answer; the pieces
        assert await seal_rest(journal) == Sealing(2, 2 + 5 + pieces, 0)
        assert all(text is None or text.startswith(MARK) for (text,) in rows(made, TEXTS))
        bodies = [bytes(body) for (body,) in rows(made, BODIES)]
        assert [body.startswith(BYTES_MARK) for body in bodies] == [True] * pieces
        copies = [tmp_path / "back one", tmp_path / "back two"]
        await journal.restore("t", "q", copies)
        assert [path.read_bytes() for path in copies] == [b"x" * size, b""]
        assert await durable.steps_of(journal, "t", "asks") == steps
        kept = await journal.known("t", "key q", "d")
        assert kept is not None
        assert (kept.id, kept.digest) == ("q", journal.seal.digest("t", "d"))
    async with reached(made, OTHER) as other, other.session() as session:
        await other.look_at_note(session)
        with pytest.raises(JournalUnreadable):
            await durable.steps_of(other, "t", "asks")
        found = await other.find("t", "q")
        assert found is not None
        assert found.unreadable


@pytest.mark.parametrize("table", ["queries", "asks"])
async def test_what_somebody_works_on_is_come_back_to_after_all_others(
    made: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may also be gone by then."""
    for forgotten in (False, True):
        heard, looks = list[str](), 0
        ids = [f"{forgotten}{n}" for n in range(3)]
        async with reached(made) as plain:
            for id in ids:
                await filed(plain, id)
        with psycopg.connect(made) as busy:
            column = "id" if table == "queries" else "query"
            busy.execute(
                f"SELECT FROM teola_journal.{table} WHERE {column} = %s FOR UPDATE", (ids[0],)
            )

            gone = [ids[0]] if forgotten else []

            async def sleep(seconds: float, busy: Any = busy, gone: Any = gone) -> None:
                nonlocal looks
                assert seconds == resealing.AGAIN_S
                looks += 1
                if looks == 3:
                    busy.rollback()
                    rows(made, "DELETE FROM teola_journal.queries WHERE id = ANY(%s)", gone)

            monkeypatch.setattr(resealing.asyncio, "sleep", sleep)
            async with asyncio.timeout(60), reached(made, KEY) as journal:
                done = await seal_rest(journal, on_query=heard.append)
            monkeypatch.undo()
        assert looks == 3
        assert heard == [ids[1], ids[2], ids[0]]
        assert done == Sealing(2 if forgotten else 3, (2 if forgotten else 3) * 4, 0)
