"""A journal on its database server: what is written, known, told and forgotten, call by call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from teola.errors import InputError
from teola.query.journal import durable
from teola.query.journal import journal as journals
from teola.query.journal.journal import GRACE_S, LOOK, Given, Journal
from teola.query.journal.lost import UNREADABLE, JournalLost, JournalUnreadable
from teola.query.journal.query_rows import Asked, Ended
from teola.query.journal.resealing import seal_rest
from tests.serve.journal.conftest import put, reached, rows
from tests.serve.journal.test_asks import filed

KEY, OTHER = "a key that nobody guesses", "another key that is as long"
IDS = "SELECT id FROM teola_journal.queries ORDER BY id"
LOCKS = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
COLUMNS = """
SELECT id, tenant, key, digest, app, request, extract(epoch FROM created)::float8,
    extract(epoch FROM deadline - now())::float8, holder, code, seal, state, runs, deaths, cancel
FROM teola_journal.queries
"""


def asked(id: str = "q", **more: Any) -> Asked:
    given = {"key": "k", "digest": "d", "code": "c", **more}
    return Asked(id, "alice", "mail", '{"inputs": {}}', 7.5, 60.0, **given)


# --- what is accepted -------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY])
async def test_what_is_accepted_is_its_servers_and_known_by_its_key(
    made: str, key: str | None
) -> None:
    async with reached(made, key) as journal:
        assert await journal.known("alice", "k", "d") is None
        assert await journal.accept(asked()) is None
        ((*begin, left_s, holder, code, mark, state, runs, deaths, cancel),) = rows(made, COLUMNS)
        seal = journal.seal.of("alice", "q")
        id, tenant, name, digest, app, request, created = begin
        assert (id, tenant, name, app, created) == ("q", "alice", "k", "mail", 7.5)
        assert (holder, code, state, runs) == (journal.token, "c", "running", 1)
        assert (deaths, cancel, 50.0 < left_s <= 60.0) == (0, False, True)
        assert digest == journal.seal.digest("alice", "d")
        assert (request == '{"inputs": {}}') is (key is None)
        assert (mark is None) is (key is None)
        if mark is not None:
            assert seal.open("query", mark) == ""
        before = await journal.accept(asked("other"))
        found = await journal.known("alice", "k", "d")
        assert before == found == await journal.find("alice", "q")
        assert before is not None
        assert (before.id, before.digest, before.unreadable) == ("q", digest, False)
        assert await journal.find("bob", "q") is None
        assert await journal.known("bob", "k", "d") is None
        for other in ("e", None):
            with pytest.raises(InputError) as raised:
                await journal.accept(asked("other", digest=other))
            assert str(raised.value) == (
                "this Idempotency-Key was given before, to another query: take a new one"
            )
        assert await journal.accept(asked("without", key=None)) is None
        assert await journal.accept(asked("again", key=None)) is None
        assert rows(made, IDS) == [("again",), ("q",), ("without",)]


async def test_what_was_accepted_in_plain_is_known_with_a_key_and_not_with_another_one(
    made: str,
) -> None:
    async with reached(made, keep_s=100.0) as plain:
        await plain.accept(asked())
    async with reached(made, KEY) as journal:
        found = await journal.known("alice", "k", "d")
        assert found is not None
        assert found.digest == "d"
        await seal_rest(journal)
    async with reached(made, OTHER) as other:
        with pytest.raises(JournalUnreadable) as raised:
            await other.known("alice", "k", "d")
        assert str(raised.value) == UNREADABLE.format(id="q")
        (listed,) = await other.all("alice", "mail", "running", 9, [])
        assert (listed.id, listed.unreadable) == ("q", True)
        assert await other.all("alice", "mail", "running", 9, ["q"]) == []
        assert await other.all("alice", "read", None, 9, []) == []


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("sizes", [[], [0], [3, 4, 5], [9, 0, 8]])
async def test_documents_are_kept_in_pieces_and_come_back_whole(
    made: str,
    tmp_path: Path,
    key: str | None,
    sizes: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journals, "PIECE", 4)
    paths = [tmp_path / f"document {n}" for n in range(len(sizes))]
    for n, size in enumerate(sizes):
        paths[n].write_bytes(bytes(65 + (n + k) % 26 for k in range(size)))
    async with reached(made, key) as journal:
        await journal.accept(asked(files=paths))
        stored = "SELECT tenant, number, piece FROM teola_journal.files ORDER BY number, piece"
        assert rows(made, stored) == [
            ("alice", n, piece) for n, size in enumerate(sizes) for piece in range(-(-size // 4))
        ]
        copies = [tmp_path / f"copy {n}" for n in range(len(sizes))]
        await journal.restore("alice", "q", copies)
        assert [copy.read_bytes() for copy in copies] == [path.read_bytes() for path in paths]


# --- what the settings say ----------------------------------------------------------------------


async def test_a_journal_that_another_key_has_sealed_is_noted_once(
    made: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with reached(made, KEY) as journal:
        await seal_rest(journal)
    for key, told in ((KEY, 0), (OTHER, 1), (None, 1)):
        caplog.clear()
        async with reached(made, key) as journal, journal.session() as session:
            assert not journal.seal.required
            assert journal.to_be_sealed is (key is not None)
            for _ in range(2):
                await journal.look_at_note(session)
            assert journal.seal.required
            assert not journal.to_be_sealed
        records: list[Any] = [r for r in caplog.records if r.name == journals.__name__]
        assert [(r.levelname, r.event, r.getMessage(), r.fields) for r in records] == [
            (
                "WARNING",
                "journal_other_key",
                "the journal was sealed with a server.journal_key that this server does not "
                "have: what queries have left there cannot be opened here",
                {},
            )
        ] * told


# --- what is forgotten --------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3, 4])
async def test_what_ended_long_ago_is_forgotten_the_oldest_first_and_no_more_at_once(
    made: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "FORGET_AT_ONCE", most)
    monkeypatch.setattr(journals, "FORGET_S", 60.0)
    ages = {"a": 150, "b": 300, "c": 50, "d": 200}
    for id, age_s in ages.items():
        ended = f"{time.time() - age_s}"
        put(made, id=id, holder=None, state="ok", ended="2020-01-01")
        change = "UPDATE teola_journal.queries SET ended = to_timestamp(%s) WHERE id = %s"
        rows(made, change, ended, id)
    put(made, id="e")
    async with reached(made, keep_s=100.0) as journal, journal.session() as session:
        oldest = ["b", "d", "a"]
        assert await journal.forget(session) is (most <= 3)
        assert rows(made, IDS) == [(id,) for id in "abcde" if id not in oldest[:most]]


# --- news ---------------------------------------------------------------------------------------


async def test_servers_hear_of_what_may_concern_them(made: str) -> None:
    """What follows a query hears its id; what may be to be taken, that one should look."""
    listener = await psycopg.AsyncConnection.connect(made, autocommit=True)
    async with listener, reached(made, keep_s=100.0) as journal:
        await listener.execute("LISTEN teola_journal")

        async def heard() -> list[str]:
            return [news.payload async for news in listener.notifies(timeout=0.1)]

        await journal.accept(asked())
        assert await heard() == []
        await journal.cancel("alice", "q")
        assert await heard() == [LOOK]
        ending = Ended("q", "ok", 0.5, "{}", "alice")
        assert await journal.end(ending)
        assert await heard() == ["q"]
        assert not await journal.end(ending)
        await journal.give_back([])
        assert await heard() == []
        await journal.accept(asked("r", key=None))
        await journal.give_back(["r"])
        assert await heard() == []
        await journal.give_back([])
        assert await heard() == [LOOK]
        await filed(journal, "s")
        await durable.answer(journal, "t", "s", "first", True, takes=False)
        assert await heard() == [LOOK]
        taken = await durable.answer(journal, "t", "s", "second", True, takes=True)
        assert taken[1] is not None
        assert await heard() == ["s"]
        await filed(journal, "u")
        assert await journal.give_up(Ended("u", "cancelled", 0.0, "{}", "t"))
        assert await heard() == ["u"]
        assert not await journal.give_up(Ended("u", "cancelled", 0.0, "{}", "t"))


# --- endings that could not be written ------------------------------------------------------------


async def test_how_queries_ended_is_written_later_where_it_cannot_be_now(made: str) -> None:
    states = "SELECT id, state, holder IS NULL FROM teola_journal.queries ORDER BY id"
    async with reached(made, keep_s=100.0) as journal:
        for id in ("a", "b", "c"):
            await journal.accept(asked(id, key=None))
        journal.away = True
        for id in ("a", "b"):
            ending = Ended(id, "ok", 0.5, "{}", "alice")
            assert await journal.end(ending)
            assert journal.unwritten[id] == ending
        assert rows(made, states) == [(id, "running", False) for id in "abc"]
        async with journal.session() as session:
            await journal.write_rest(session)
        assert journal.unwritten == {}
        assert rows(made, states) == [("a", "ok", True), ("b", "ok", True), ("c", "running", False)]
        assert await journal.end(Ended("c", "ok", 0.5, "{}", "alice"))
        await journal.accept(asked("d", key=None))
        await journal.give_back([])
        assert rows(made, states)[2:] == [("c", "ok", True), ("d", "running", True)]


# --- who is dead ----------------------------------------------------------------------------------


async def test_a_server_is_dead_that_has_shown_nothing_for_a_while(
    made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two looks apart; one that shows life in between begins anew, and so does who lost touch."""
    monkeypatch.setattr(journals, "LEASE_S", 0.0)
    put(made, id="old", holder=4711)
    now = 1000.0
    async with reached(made, keep_s=100.0) as journal, reached(made, keep_s=100.0) as other:
        await other.accept(asked())

        async def dead(session: Any, at: float) -> list[int]:
            with monkeypatch.context() as patch:
                patch.setattr(journals.asyncio, "get_running_loop", lambda: Clock(at))
                gone = journal._long_gone
                await journal.look_for_dead(session)
                return sorted(gone())

        both = sorted([4711, other.token])
        async with journal.session() as session:
            assert await dead(session, now) == []
            assert await dead(session, now + GRACE_S - 0.1) == []
            assert await dead(session, now + GRACE_S) == both
            async with other.session():
                assert await dead(session, now + 50.0) == [4711]
            async with asyncio.timeout(30):
                while rows(made, LOCKS) != [(1,)]:  # PostgreSQL notices a moment later
                    await asyncio.sleep(0.005)
            assert await dead(session, now + 60.0) == [4711], "it was there a moment ago"
            assert await dead(session, now + 60.0 + GRACE_S) == both
        async with journal.session() as session:
            assert await dead(session, now + 70.0) == [], "others may have lost theirs, too"


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now


# --- what is taken --------------------------------------------------------------------------------


async def test_what_nobody_runs_is_taken_the_oldest_first(made: str) -> None:
    """Of the applications that this server has, in the version that began it, but for some."""
    for n, (id, more) in enumerate(
        {
            "young": {"app": "mail", "code": "c"},
            "old": {"app": "mail", "code": None},
            "other app": {"app": "read"},
            "cancelled": {"app": "read", "cancel": True},
            "other version": {"app": "mail", "code": "d"},
            "apart": {"app": "mail"},
            "unreadable": {"app": "mail"},
            "waits": {"app": "mail", "state": "waiting", "left_s": 1.0},
            "held": {"app": "mail", "holder": 4711},
        }.items()
    ):
        columns: dict[str, Any] = {"holder": None, "created": f"2020-01-0{9 - n}", **more}
        put(made, id=id, **columns)
    rows(made, "INSERT INTO teola_journal.steps VALUES ('default', 'other version', 'k', 'v')")
    async with reached(made, keep_s=100.0) as journal, journal.session() as session:
        journal.unreadable.add("unreadable")
        apps = {"mail": "c"}
        (first,) = await journal.take(session, apps, [], ["apart"], 1)
        assert (first.id, first.runs, first.deaths) == ("cancelled", 2, 0)
        rest = await journal.take(session, apps, [], ["apart"], 9)
        assert [one.id for one in rest] == ["old", "young"]
        assert await journal.take(session, apps, [], ["apart"], 9) == []
        (mine,) = await journal.take(session, apps, ["old"], [], 1)
        assert (mine.id, mine.runs, mine.deaths) == ("apart", 2, 0)
        (again,) = await journal.take(session, apps, ["old"], [], 9)
        assert (again.id, again.runs, again.deaths) == ("old", 3, 0)
        await journal.release("old")
        (once_more,) = await journal.take(session, apps, [], [], 9)
        assert (once_more.id, once_more.runs) == ("old", 3)
        assert await journal.request(replace(once_more, request=None)) == ""


async def test_without_its_database_a_journal_says_so(made: str) -> None:
    journal = Journal(Given(made), 1.0)
    for work in (
        journal.accept(asked()),
        journal.known("alice", "k", "d"),
        journal.cancel("alice", "q"),
        journal.give_back([]),
    ):
        with pytest.raises(JournalLost):
            await work
