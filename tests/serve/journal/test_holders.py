"""A query is its holder's: nobody else ends it, and its holder does not take it from itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from teola.query.journal import statements
from teola.query.journal.journal import Journal
from teola.query.journal.query_rows import Ended
from teola.serve.journal.keeper import Keeper
from tests.planted import catches, edited
from tests.serve.conftest import soon
from tests.serve.journal.conftest import Serve, ask, put, reached, rows

STATE = "SELECT state, result FROM teola_journal.queries WHERE id = %s"


def how(id: str, state: str) -> Ended:
    return Ended(id, state, 0.5, f'{{"state": "{state}"}}', None)


def _holder_ignored(patch: pytest.MonkeyPatch) -> None:
    assert statements.END.count("AND holder = %s") == 1
    patch.setattr(statements, "END", statements.END.replace("holder = %s", "%s IS NOT NULL"))


@catches("ended-by-anybody", "a server that lost a query ends it all the same", _holder_ignored)
async def test_a_former_holder_comes_too_late(made: str) -> None:
    """Its query was taken while it had no journal, and runs elsewhere."""
    async with reached(made) as former, reached(made) as holder:
        id = await asyncio.to_thread(put, made, holder=holder.token)
        assert await former.end(how(id, "failed")) is False
        assert await asyncio.to_thread(rows, made, STATE, id) == [("running", None)]
        former.unwritten[id] = how(id, "failed")
        async with former.session() as session:
            await former.write_rest(session)
        assert former.unwritten == {}
        assert await asyncio.to_thread(rows, made, STATE, id) == [("running", None)]
        assert await holder.end(how(id, "ok")) is True
        assert await holder.end(how(id, "failed")) is False
        ((state, result),) = await asyncio.to_thread(rows, made, STATE, id)
        assert (state, result) == ("ok", '{"state": "ok"}')


def _own_restarts_are_deaths(patch: pytest.MonkeyPatch) -> None:
    for name in ("TAKE", "TAKE_ONE"):
        statement = getattr(statements, name)
        assert statement.count("AND q.holder <> %(me)s") == 1
        patch.setattr(statements, name, statement.replace("AND q.holder <> %(me)s", ""))


@catches(
    "own-restart-kills",
    "a server that takes its own query again lets it die",
    _own_restarts_are_deaths,
)
async def test_who_takes_its_own_again_lets_nothing_die(made: str) -> None:
    """Three deaths would fail it as one that kills servers."""
    counts = "SELECT runs, deaths FROM teola_journal.queries WHERE id = %s"
    async with reached(made) as server:
        id = await asyncio.to_thread(put, made, holder=server.token)
        for _ in range(3):
            async with server.session() as session:
                (taken,) = await server.take(session, {"echo": ""}, [id], [], 9)
            assert (taken.id, taken.deaths) == (id, 0)
            again = await server.take_one("default", id)
            assert again is not None
            assert again.deaths == 0
        assert await asyncio.to_thread(rows, made, counts, id) == [(1 + 6, 0)]
        other = await asyncio.to_thread(put, made, holder=4711)
        taken_over = await server.take_one("default", other)
        assert taken_over is not None
        assert taken_over.deaths == 1
        nobodys = await asyncio.to_thread(put, made, holder=None)
        free = await server.take_one("default", nobodys)
        assert free is not None
        assert free.deaths == 0


@catches(
    "taken-from-itself",
    "a server takes what it accepted while it looked around",
    edited(Keeper._look, "running.keys() | self.journal", "self.journal"),
)
def test_what_is_accepted_during_a_look_is_not_taken_again(
    serve: Serve, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is accepted after the look has seen what runs here, and before it sees what is held."""
    asking: list[Any] = []
    ids: list[str] = []
    held = Journal.held

    async def accepting(self: Journal, session: Any) -> dict[str, bool]:
        while asking:
            response = await asyncio.to_thread(ask, asking.pop(), "please wait")
            ids.append(response.json()["query_id"])
        return await held(self, session)

    monkeypatch.setattr(Journal, "held", accepting)
    with serve() as (_, client):
        assert ask(client, "hello").status_code == 202
        asking.append(client)
        soon(lambda: bool(ids))
        for _ in range(3):  # looks
            rows(dsn, "NOTIFY teola_journal, 'look'")
            assert ask(client, "hello").status_code == 202
        (id,) = ids
        runs = "SELECT runs, deaths FROM teola_journal.queries WHERE id = %s"
        assert rows(dsn, runs, id) == [(1, 0)]
        assert client.delete(f"/v1/queries/{id}").json()["state"] == "cancelled"
