"""A sealed journal: what an older server left is sealed and goes on, and what was changed there
since, moved, or sealed with another key is one query that cannot be opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from teola import Runtime
from teola.cli import call
from teola.query.journal import journal as journals
from teola.query.journal.journal import Given, Journal
from teola.query.journal.lost import JournalUnreadable
from teola.query.journal.resealing import seal_rest
from teola.query.journal.sealing import MARK, Seal
from tests.serve.conftest import soon
from tests.serve.databases import rows
from tests.serve.journal.conftest import Serve
from tests.serve.journal.old_journal import DOCUMENT, IDEMPOTENCY_KEY, OldJournal
from tests.serve.journal.test_people import answer, apps, done, waiting
from tests.serve.journal.test_people import ask as ask_people

KEY, OTHER = "a key that nobody guesses", "another key that is as long"
CONTENT = """
SELECT request FROM teola_journal.queries UNION ALL SELECT result FROM teola_journal.queries
UNION ALL SELECT problem FROM teola_journal.queries UNION ALL SELECT value FROM teola_journal.steps
UNION ALL SELECT told FROM teola_journal.asks UNION ALL SELECT answer FROM teola_journal.asks
"""
SEALED = "SELECT sealed FROM teola_journal.settings WHERE version = 3"
PIECES = "SELECT body FROM teola_journal.files"


def codes() -> dict[str, str]:
    return {**{name: app.code for name, app in apps().items()}, "read": "0" * 32}


def contents(dsn: str) -> list[str]:
    """Every text that holds content."""
    return [value for (value,) in rows(dsn, CONTENT) if value is not None]


def is_sealed(dsn: str) -> bool:
    return rows(dsn, SEALED)[0][0] not in (None, journals.SEALING)


def listed(client: httpx.Client) -> dict[str, dict[str, Any]]:
    return {one["query_id"]: one for one in client.get("/v1/queries").json()["queries"]}


def refusal(response: httpx.Response) -> tuple[int, str, bool]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["retryable"]


UNREADABLE = (409, "journal_unreadable", False)


# --- what an older server left --------------------------------------------------------------


@pytest.mark.parametrize(("before", "key"), [(None, None), (None, KEY), (KEY, KEY)])
def test_a_journal_of_an_older_server_goes_on(
    serve: Serve, dsn: str, before: str | None, key: str | None
) -> None:
    old = OldJournal(dsn, codes(), before)
    with serve(apps(), key=key) as (_, client):
        soon(lambda: len(listed(client)) == 5)
        assert client.get(f"/v1/queries/{old.ended}").json()["result"]["outputs"] == {
            "answer": "old"
        }
        assert done(client, old.answered)["result"]["outputs"]["answer"] == "yes: About tides."
        if key:
            soon(lambda: is_sealed(dsn))
            assert all(value.startswith(MARK) for value in contents(dsn))
            assert not any(b"rains" in body for (body,) in rows(dsn, PIECES))
        again = client.post(
            "/v1/apps/mail/queries",
            json={"inputs": {"question": "winds"}, "mode": "background"},
            headers={"Idempotency-Key": IDEMPOTENCY_KEY},
        )
        assert (again.status_code, again.json()["query_id"]) == (202, old.accepted)
        asked = {old.waiting: "tides", old.accepted: "winds"}
        for id, about in asked.items():
            assert waiting(client, id)["asks"][0]["question"] == f"Send?\nAbout {about}."
            assert answer(client, id, "yes").status_code == 200
            assert done(client, id)["result"]["outputs"]["answer"] == f"yes: About {about}."
        if key:
            assert all(value.startswith(MARK) for value in contents(dsn))
            digests = rows(dsn, "SELECT digest FROM teola_journal.queries WHERE digest IS NOT NULL")
            assert [digest[:6] for (digest,) in digests] == ["hmac1:"]


@pytest.mark.parametrize("key", [None, KEY])
def test_documents_of_an_older_server_come_back(dsn: str, tmp_path: Path, key: str | None) -> None:
    old = OldJournal(dsn, codes())

    async def work() -> None:
        journal = Journal(Given(dsn), 1e6, Seal(key))
        await journal.open()
        try:
            if key is not None:
                await seal_rest(journal)
            await journal.restore("default", old.documents, [tmp_path / "rain.txt"])
            assert (tmp_path / "rain.txt").read_text() == DOCUMENT
            if key is not None:
                with pytest.raises(JournalUnreadable):
                    await journal.restore("other", old.documents, [tmp_path / "again.txt"])
        finally:
            await journal.close()

    asyncio.run(work())


def test_an_older_server_has_nothing_to_run_in_a_sealed_journal(dsn: str) -> None:
    """It would fail what it cannot read, and write in plain."""
    OldJournal(dsn, codes())
    seen = "SELECT count(*) FROM teola_journal.queries"
    with psycopg.connect(dsn, autocommit=True) as old:
        old.execute("SELECT set_config('role', 'teola_journal', false)")
        old.execute("SELECT set_config('teola.journal', 'server', false)")
        assert old.execute(seen).fetchone() == (5,)
        seal(dsn)
        assert old.execute(seen).fetchone() == (0,)


# --- sealing --------------------------------------------------------------------------------


def seal(
    dsn: str, key: str = KEY, again: bool = False, heard: list[str] | None = None
) -> tuple[int, int, int]:
    """Seal what lies there; how many queries were sealed, with how many values, and how many could
    not be. heard: ids of those that are done."""

    async def work() -> tuple[int, int, int]:
        journal = Journal(Given(dsn), 1e6, Seal(key))
        await journal.open()
        try:
            done = await seal_rest(journal, again, None if heard is None else heard.append)
            return done.queries, done.values, done.unreadable
        finally:
            await journal.close()

    return asyncio.run(work())


def test_a_query_is_sealed_whole_or_left_and_what_is_locked_is_come_back_to(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    old = OldJournal(dsn, codes(), KEY)
    assert seal(dsn, OTHER) == (2, 2, 3), "questions of another key are left, with their queries"
    with psycopg.connect(dsn) as busy:
        busy.execute("SELECT FROM teola_journal.asks WHERE query = %s FOR UPDATE", (old.waiting,))

        with ThreadPoolExecutor(1) as pool:
            heard: list[str] = []
            sealing = pool.submit(seal, dsn, again=True, heard=heard)
            try:
                at_rest = "SELECT count(*) FROM teola_journal.asks WHERE starts_with(told, %s)"
                soon(lambda: rows(dsn, at_rest, MARK) == [(2,)])
                assert not sealing.done()
            finally:
                busy.rollback()
            assert sealing.result() == (3, 11, 0)
            assert (len(heard), len({*heard}), heard[-1]) == (5, 5, old.waiting)
    assert seal(dsn) == (0, 0, 0)
    told = [record for record in caplog.records if record.name.endswith("resealing")]
    assert [(record.levelname, record.getMessage()) for record in told] == [
        ("WARNING", f"sealed {values} values of {queries} queries that lay in the journal unsealed")
        for values, queries in ((2, 2), (11, 3))
    ]


def test_the_command_seals_a_journal(
    dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = OldJournal(dsn, codes())
    config = tmp_path / "teola.toml"
    line = ["journal", "seal", "--config", str(config)]

    def command(key: str = "", *more: str) -> tuple[int, str, str]:
        config.write_text(f'[server]\njournal = "{dsn}"\n{key}')
        return call([*line, *more]), *capsys.readouterr()

    code, _, told = command()
    assert code == 2
    assert "server.journal_key" in told
    key = f'journal_key = "{KEY}"\n'
    code, out, told = command(key)
    assert (code, out) == (0, "sealed 13 values of 5 queries\n")
    assert f"sealed {old.waiting}" in told
    assert all(value.startswith(MARK) for value in contents(dsn))
    assert command(key)[:2] == (0, "sealed 0 values of 0 queries\n")
    rows(dsn, "UPDATE teola_journal.steps SET value = %s WHERE query = %s", PLANTED, old.waiting)
    assert command(key)[:2] == (0, "sealed 0 values of 0 queries\n")
    digests = "SELECT digest FROM teola_journal.queries ORDER BY id"
    before = rows(dsn, digests)
    assert any(digest for (digest,) in before)
    assert command(key, "--again")[:2] == (0, "sealed 1 values of 1 queries\n")
    assert rows(dsn, digests) == before, "a digest that is sealed is left as it is"


# --- what cannot be opened ------------------------------------------------------------------

PLANTED = '{"gives": {"draft": "About gold."}}'


def swap(dsn: str, table: str, column: str, where: str, one: str, other: str) -> None:
    """Exchange the values of two queries."""
    rows(
        dsn,
        f"UPDATE teola_journal.{table} a SET {column} = b.{column} FROM teola_journal.{table} b"
        f" WHERE (a.{where}, b.{where}) IN ((%s, %s), (%s, %s))",
        *(one, other, other, one),
    )


def planted(dsn: str, one: str, other: str) -> None:
    rows(dsn, "UPDATE teola_journal.steps SET value = %s WHERE query = %s", PLANTED, one)


def answered(dsn: str, one: str, other: str) -> None:
    """What made a call that nobody had approved."""
    rows(dsn, "UPDATE teola_journal.asks SET answer = '\"yes\"' WHERE query = %s", one)
    rows(dsn, "UPDATE teola_journal.queries SET state = 'running' WHERE id = %s", one)


def moved_step(dsn: str, one: str, other: str) -> None:
    swap(dsn, "steps", "value", "query", one, other)


def moved_question(dsn: str, one: str, other: str) -> None:
    swap(dsn, "asks", "told", "query", one, other)


def moved_request(dsn: str, one: str, other: str) -> None:
    swap(dsn, "queries", "request", "id", one, other)


def question_for_answer(dsn: str, one: str, other: str) -> None:
    """A sealed value in another place of the same query."""
    rows(dsn, "UPDATE teola_journal.asks SET answer = told WHERE query = %s", one)
    rows(dsn, "UPDATE teola_journal.queries SET state = 'running' WHERE id = %s", one)


@pytest.mark.parametrize(
    "change",
    [planted, answered, moved_step, moved_question, moved_request, question_for_answer],
)
def test_what_was_changed_or_moved_is_not_believed(
    serve: Serve, dsn: str, change: Callable[[str, str, str], None]
) -> None:
    with serve(apps(), key=KEY) as (_, client):
        one, other, third = (ask_people(client).json()["query_id"] for _ in range(3))
        for id in (one, other, third):
            waiting(client, id)
        soon(lambda: is_sealed(dsn))
    change(dsn, one, other)
    with serve(apps(), key=KEY) as (_, client):
        soon(lambda: len(listed(client)) == 3)
        answer(client, one, "yes")
        soon(lambda: refusal_of(client, one) == UNREADABLE)
        assert refusal(answer(client, one, "yes")) == UNREADABLE
        assert listed(client)[one]["code"] == "journal_unreadable"
        assert "code" not in listed(client)[third]
        assert answer(client, third, "yes").status_code == 200
        assert done(client, third)["result"]["outputs"]["answer"] == "yes: About tides."
        assert rows(dsn, "SELECT state FROM teola_journal.queries WHERE id = %s", one) in (
            [("waiting",)],
            [("running",)],
        )
        client.delete(f"/v1/queries/{one}")
        soon(lambda: rows_of(dsn, one) == [("cancelled",)])


def refusal_of(client: httpx.Client, id: str) -> tuple[int, str, bool] | None:
    response = client.get(f"/v1/queries/{id}")
    return refusal(response) if response.is_error else None


def rows_of(dsn: str, id: str) -> list[tuple[Any, ...]]:
    return rows(dsn, "SELECT state FROM teola_journal.queries WHERE id = %s", id)


@pytest.mark.parametrize("key", [OTHER, None])
def test_with_another_key_every_query_is_shown_and_none_is_opened(
    serve: Serve, dsn: str, key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    old = OldJournal(dsn, codes())
    seal(dsn)
    with serve(apps(), key=key) as (_, client):
        soon(lambda: len(listed(client)) == 5)
        assert {one["code"] for one in listed(client).values()} == {"journal_unreadable"}
        for id in (old.waiting, old.ended, old.accepted):
            assert refusal(client.get(f"/v1/queries/{id}")) == UNREADABLE
        assert refusal(answer(client, old.waiting, "yes")) == UNREADABLE
        assert "journal_unreadable" in client.get(f"/v1/queries/{old.waiting}/events").text
        mine = ask_people(client)
        if key is None:
            assert refusal(mine) == UNREADABLE, "nothing is written in plain any more"
        else:
            id = mine.json()["query_id"]
            waiting(client, id)
            assert answer(client, id, "yes").status_code == 200
            assert done(client, id)["state"] == "ok"
        soon(lambda: caplog.text.count(f"query {old.answered} is left as it is") == 1)
    with serve(apps(), key=KEY) as (_, client):
        assert done(client, old.answered)["result"]["outputs"]["answer"] == "yes: About tides."
        assert answer(client, old.waiting, "yes").status_code == 200
        assert done(client, old.waiting)["state"] == "ok"
    assert caplog.text.count(f"query {old.answered} is left as it is") == 1


def test_a_question_that_is_no_json_breaks_nothing_else(serve: Serve, dsn: str) -> None:
    old = OldJournal(dsn, codes())
    rows(dsn, "UPDATE teola_journal.asks SET told = '{' WHERE query = %s", old.documents)
    rows(dsn, "UPDATE teola_journal.asks SET answer = '{' WHERE query = %s", old.answered)
    rows(dsn, "UPDATE teola_journal.queries SET result = '{' WHERE id = %s", old.ended)
    with serve(apps()) as (_, client):
        soon(lambda: len(listed(client)) == 5)
        for path in ("/v1/queries", "/v1/queries?state=waiting"):
            found = {one["query_id"]: one for one in client.get(path).json()["queries"]}
            assert found[old.documents]["code"] == "journal_unreadable"
            assert found[old.waiting]["asks"]
        for id in (old.documents, old.ended):
            assert refusal(client.get(f"/v1/queries/{id}")) == UNREADABLE
        soon(lambda: refusal_of(client, old.answered) == UNREADABLE)
        assert refusal(answer(client, old.documents, "yes")) == UNREADABLE
        assert answer(client, old.waiting, "yes").status_code == 200
        assert done(client, old.waiting)["state"] == "ok"


def test_programs_leave_out_what_cannot_be_opened(dsn: str) -> None:
    old = OldJournal(dsn, codes())
    with Runtime(learn=False, journal=dsn, journal_key=KEY) as runtime:
        app = apps()["mail"]
        app.runtime = runtime
        assert [one.query_id for one in app.waiting()] == [old.waiting]
        planted(dsn, old.waiting, "")
        with pytest.raises(JournalUnreadable, match="unsealed, in a journal that is sealed"):
            app.resume(old.waiting, "yes")
        rows(dsn, "UPDATE teola_journal.asks SET told = '{}' WHERE query = %s", old.waiting)
        rows(dsn, "UPDATE teola_journal.asks SET answer = NULL WHERE query = %s", old.waiting)
        assert app.waiting() == []
