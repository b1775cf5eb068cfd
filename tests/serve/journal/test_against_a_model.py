"""The journal's statements against a dictionary: holders, deaths, steps, questions, three servers.

No HTTP and no server at work: each event is one call, as servers make them, in an order drawn by
seed. After each one all tables are as the model says. A server that dies leaves its queries as they
are and comes back under another token; one that has lost its session goes on writing.

Long because it is one machine: its events, and what is there after each.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
import pytest

from teola.errors import InputError, UnknownName
from teola.graph import Inquiry
from teola.query.journal import durable
from teola.query.journal import journal as journals
from teola.query.journal.journal import Given, Journal
from teola.query.journal.lost import Answered, JournalLost
from teola.query.journal.query_rows import Asked, Ended
from teola.query.journal.sealing import Seal
from teola.runtime.live.steps import ASKED

TENANTS, APPS, CODES = ("alice", "bob"), ("mail", "read"), ("", "one", "two")
KEY = "a key that nobody can guess"


@dataclass
class Row:
    """A query as it has to be."""

    id: str
    tenant: str
    app: str
    code: str
    key: str | None
    holder: int | None
    late: bool
    state: str = "running"
    runs: int = 1
    deaths: int = 0
    cancel: bool = False
    result: str | None = None
    steps: dict[str, str | None] = field(default_factory=dict)
    asks: dict[str, str | None] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        return self.state in ("running", "waiting")

    def close(self, state: str, result: str) -> None:
        self.state, self.result, self.holder = state, result, None
        self.steps, self.asks = {}, {}

    def taken(self, token: int) -> None:
        self.deaths += self.holder not in (None, token)
        self.holder, self.runs = token, self.runs + 1


class Server:
    """One of three. session: shows that it lives."""

    def __init__(self, dsn: str, seal: str | None) -> None:
        self._where = dsn, seal
        self.session: Any = None
        self._stack = AsyncExitStack()

    async def begin(self) -> None:
        dsn, seal = self._where
        self.journal = Journal(Given(dsn), 3600.0, Seal(seal))
        await self.journal.open()
        self.journal.away = False
        self.session = await self._stack.enter_async_context(self.journal.session())

    async def die(self) -> None:
        await self._stack.aclose()
        self.session = None

    @property
    def token(self) -> int:
        return self.journal.token


class World:
    """Servers, the rows as they have to be, and the order of events."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.chance, self.dsn = Random(seed), dsn
        self.servers = [Server(dsn, KEY if seed % 2 else None) for _ in range(3)]
        self.rows: dict[str, Row] = {}
        self.n = self.died = 0

    def server(self) -> Server:
        return self.chance.choice(self.servers)

    def row(self) -> Row:
        """One that is open, most of the time."""
        open_ones = [row for row in self.rows.values() if row.open]
        return self.chance.choice(
            open_ones if open_ones and self.chance.random() < 0.9 else [*self.rows.values()]
        )

    def lives(self, token: int | None) -> bool:
        return any(one.session is not None and one.token == token for one in self.servers)

    # --- events -----------------------------------------------------------------------------

    async def accepts(self) -> None:
        server, self.n = self.server(), self.n + 1
        tenant, key = self.chance.choice(TENANTS), self.chance.choice([None, "k1", "k2", "k3"])
        digest = self.chance.choice("ab") if key else None
        late = self.chance.random() < 0.1
        new = Row(
            f"q{self.n}",
            tenant,
            self.chance.choice(APPS),
            self.chance.choice(CODES),
            key and f"{key}{digest}",
            server.token,
            late,
        )
        deadline_s = -1.0 if late else 1e6
        asked = Asked(
            *(new.id, tenant, new.app, "{}", float(self.n), deadline_s, new.code, (), key, digest)
        )
        named = [row for row in self.rows.values() if key and row.tenant == tenant and row.key]
        before = next((row for row in named if str(row.key).startswith(str(key))), None)
        if before is None:
            assert await server.journal.accept(asked) is None
            self.rows[new.id] = new
        elif before.key == new.key:
            kept = await server.journal.accept(asked)
            assert kept is not None
            assert (kept.id, kept.state) == (before.id, before.state)
        else:
            with pytest.raises(InputError, match="was given before, to another query"):
                await server.journal.accept(asked)

    async def ends(self) -> None:
        server, row = self.server(), self.row()
        how = Ended(row.id, "ok", 0.5, f'{{"n": {self.n}}}', row.tenant)
        mine = row.open and row.holder == server.token
        server.journal.away = self.chance.random() < 0.3
        assert await server.journal.end(how) is (mine or server.journal.away)
        if server.journal.away:
            server.journal.away = False
            if server.session is None or self.chance.random() < 0.3:
                server.journal.unwritten.clear()  # it died before it could write that
                return
            await server.journal.write_rest(server.session)
        assert not server.journal.unwritten
        if mine:
            row.close("ok", how.result)

    async def does(self) -> None:
        server, row, key = self.server(), self.row(), self.chance.choice(["f", "g", "h#0:2"])
        steps = durable.JournalSteps(server.journal, row.tenant, row.id)
        value = self.chance.choice([None, '{"gives": {}}', '{"text": "x"}'])
        work = steps.begun(key) if value is None else steps.done(key, value)
        if row.open and row.holder == server.token:
            await work
            row.steps[key], row.deaths = value, 0
        else:
            with pytest.raises(JournalLost, match="not this server's any more"):
                await work

    async def gets_on(self) -> None:
        server, row = self.server(), self.row()
        await server.journal.gets_on(row.id)
        if row.open and row.holder == server.token:
            row.deaths = 0

    async def waits(self) -> None:
        server, row = self.server(), self.row()
        names = self.chance.sample(["ask1", "ask2", "ask3"], self.chance.randint(1, 2))
        asks = [inquiry(row.id, name) for name in names]
        await durable.wait(server.journal, row.tenant, row.id, asks, 1e5, 1e6)
        if row.open and row.holder == server.token:
            for name in names:
                row.asks.setdefault(name, None)
            if all(row.asks[name] is None for name in names):
                row.state, row.deaths, row.late = "waiting", 0, False

    async def is_answered(self) -> None:
        server, row = self.server(), self.row()
        tenant = row.tenant if self.chance.random() < 0.9 else "bob"
        name, text = self.chance.choice(["ask1", "ask2"]), self.chance.choice(["yes", "no"])
        takes = self.chance.random() < 0.5
        work = durable.answer(server.journal, tenant, row.id, name, text, takes=takes)
        asks = row.asks if tenant == row.tenant else {}
        if None not in asks.values() or asks.get(name) is not None:
            with pytest.raises(Answered):
                await work
            return
        if name not in asks:
            with pytest.raises(UnknownName):
                await work
            return
        _, taken = await work
        row.asks[name] = text
        row.late = row.late and row.state == "running"
        row.state = "running"
        free = row.holder in (None, server.token) or not self.lives(row.holder)
        assert (taken is not None) is (takes and free)
        if taken is not None:
            row.taken(server.token)
            assert (taken.id, taken.runs, taken.deaths) == (row.id, row.runs, row.deaths)

    async def takes_over(self) -> None:
        server = self.server()
        if server.session is None:
            return
        apps = {app: self.chance.choice(CODES) for app in APPS if self.chance.random() < 0.8}
        mine = self.chance.sample(sorted(self.rows), min(2, len(self.rows)))
        mine = [id for id in mine if self.rows[id].holder == server.token]
        apart = self.chance.sample(sorted(self.rows), min(2, len(self.rows)))
        most = self.chance.choice([0, 1, 2, 100])
        looked = self.chance.random() < 0.8
        if looked:
            await server.journal.look_for_dead(server.session)
        else:
            server.journal._gone.clear()
        found = await server.journal.take(server.session, apps, mine, apart, most)
        free = [
            row
            for row in self.rows.values()
            if row.open
            and (
                row.holder is None
                or row.id in mine
                or (looked and row.holder != server.token and not self.lives(row.holder))
            )
            and (
                (row.app in apps and row.state == "running"
                 and (row.code in apps.values() or not row.steps))
                or row.cancel
                or row.late
            )
            and row.id not in apart
        ][:most]  # fmt: skip
        for row in free:
            row.taken(server.token)
        assert [one.id for one in found] == [row.id for row in free]
        for one, row in zip(found, free, strict=True):
            assert (one.runs, one.deaths, one.cancel) == (row.runs, row.deaths, row.cancel)
            assert (one.state, one.left_s > 0) == (row.state, not row.late)
            assert await server.journal.request(one) == "{}"

    async def takes_one(self) -> None:
        server, row = self.server(), self.row()
        tenant = row.tenant if self.chance.random() < 0.9 else "alice"
        waits = self.chance.random() < 0.5  # for the death of its holder
        take = server.journal.take_from_dead if waits else server.journal.take_one
        found = await take(tenant, row.id)
        free = row.holder in (None, server.token) or not self.lives(row.holder)
        takes = tenant == row.tenant and row.state == "running" and free
        assert (found is not None) is takes
        if takes:
            row.taken(server.token)

    async def gives_back(self) -> None:
        server, apart = self.server(), [self.row().id]
        await server.journal.give_back(apart)
        for row in self.rows.values():
            if row.holder == server.token and row.id not in apart:
                row.holder = None

    async def releases(self) -> None:
        server, row = self.server(), self.row()
        await server.journal.release(row.id)
        if row.open and row.holder == server.token:
            row.holder, row.runs = None, row.runs - 1

    async def is_cancelled(self) -> None:
        row, tenant = self.row(), self.chance.choice(TENANTS)
        await self.server().journal.cancel(tenant, row.id)
        row.cancel = row.cancel or (row.open and row.tenant == tenant)

    async def is_given_up(self) -> None:
        server, row = self.server(), self.row()
        how = Ended(row.id, "cancelled", 0.0, '{"state": "cancelled"}', row.tenant)
        free = row.holder in (None, server.token) or not self.lives(row.holder)
        gone = row.state == "waiting" and free
        assert await server.journal.give_up(how) is gone
        if gone:
            row.close("cancelled", how.result)

    async def lived_on(self) -> None:
        server = self.server()
        if server.session is not None:
            lost = {self.row().id, self.row().id}
            await server.journal.alive(server.session, lost)
            for row in map(self.rows.__getitem__, lost):
                if row.open and row.holder not in (None, server.token):
                    row.deaths = max(0, row.deaths - 1)

    async def dies(self) -> None:
        server = self.server()
        if server.session is None:
            await server.journal.close()
            await server.begin()  # under another token
            return
        await server.die()
        alive = sum(one.session is not None for one in self.servers)
        async with asyncio.timeout(10):
            while self.seen("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
                            "mode = 'ExclusiveLock' AND database = (SELECT oid FROM pg_database "
                            "WHERE datname = current_database())") != [(alive,)]:  # fmt: skip
                await asyncio.sleep(0.005)

    # --- what is there ----------------------------------------------------------------------

    def seen(self, statement: str) -> list[tuple[Any, ...]]:
        return self.superuser.execute(statement).fetchall()

    def check(self) -> None:
        """Every row, step and question is as it has to be."""
        self.died += any(row.deaths for row in self.rows.values())
        columns = "id, tenant, state, holder, runs, deaths, cancel, ended IS NOT NULL"
        found = self.seen(f"SELECT {columns}, request IS NULL FROM teola_journal.queries")
        assert sorted(found) == sorted(
            (r.id, r.tenant, r.state, r.holder, r.runs, r.deaths, r.cancel, not r.open, not r.open)
            for r in self.rows.values()
        )
        steps = self.seen("SELECT query, key, value IS NULL FROM teola_journal.steps")
        assert sorted(steps) == sorted(
            (r.id, key, value is None) for r in self.rows.values() for key, value in r.steps.items()
        )
        asks = self.seen("SELECT query, id, answer IS NULL FROM teola_journal.asks")
        assert sorted(asks) == sorted(
            (r.id, name, text is None) for r in self.rows.values() for name, text in r.asks.items()
        )

    async def look(self) -> None:
        """What a server and a client are told is so, too."""
        server, tenant = self.server(), self.chance.choice(TENANTS)
        journal, row = server.journal, self.row()
        kept = await journal.find(tenant, row.id)
        assert (kept is not None) is (tenant == row.tenant)
        if kept is not None:
            assert (kept.state, kept.result, kept.runs) == (row.state, row.result, row.runs)
            assert not kept.unreadable
        state, most = self.chance.choice([None, "waiting", "ok"]), self.chance.choice([1, 100])
        listed = await journal.all(tenant, None, state, most, [row.id])
        mine = [one for one in self.rows.values() if one.tenant == tenant and one is not row]
        assert [one.id for one in listed] == [
            one.id for one in reversed(mine) if state in (None, one.state)
        ][:most]
        steps = await durable.steps_of(journal, row.tenant, row.id)
        expected: dict[str, str | None] = {**row.steps}
        for name, text in row.asks.items():
            if text is not None and expected.get(name) is None:
                expected[name] = json.dumps({"answer": text})
            expected[name + ASKED] = json.dumps(f"about {name}")
        assert steps == expected
        asks = await durable.asks_of(journal, row.tenant, row.id)
        assert {one.id: one.answered for one in asks} == {
            name: text is not None for name, text in row.asks.items()
        }
        unanswered = await durable.waiting_of(journal, tenant, row.app)
        assert sorted((one.query_id, one.id) for one in unanswered) == sorted(
            (one.id, name)
            for one in self.rows.values()
            if one.tenant == tenant and one.app == row.app
            for name, text in one.asks.items()
            if text is None
        )
        opened = await durable.open_of(journal, row.tenant, [row.id])
        names = [name for name, text in row.asks.items() if text is None]
        assert sorted(one["ask"] for one in opened.get(row.id) or ()) == sorted(names)
        answers = await durable.answers_of(journal, {row.id: row.tenant})
        assert sorted(answers) == sorted(
            (row.id, name, text) for name, text in row.asks.items() if text is not None
        )
        if server.session is not None:
            assert await journal.held(server.session) == {
                one.id: one.cancel for one in self.rows.values() if one.holder == server.token
            }

    async def run(self, events: int) -> None:
        for server in self.servers:
            await server.begin()
        with psycopg.connect(self.dsn, autocommit=True) as self.superuser:
            await self.accepts()
            often = [self.accepts, self.does, self.waits, self.is_answered, self.takes_over]
            seldom = [
                self.ends, self.gets_on, self.takes_one, self.gives_back, self.releases,
                self.is_cancelled, self.is_given_up, self.lived_on, self.dies, self.dies,
            ]  # fmt: skip
            for _ in range(events):
                event = self.chance.choice([*often, *often, *seldom])
                await event()
                self.check()
                if self.chance.random() < 0.2:
                    await self.look()
            assert self.died > 3
        for server in self.servers:
            await server.die()
            await server.journal.close()


def inquiry(query: str, name: str) -> Inquiry:
    return Inquiry(name, query, "ask", "c", "Send?", {"type": "string"}, f"about {name}")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose lock is free counts as dead; the database server was just started."""
    monkeypatch.setattr(journals, "LEASE_S", 0.0)
    monkeypatch.setattr(journals, "GRACE_S", 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("seed", range(3))
async def test_every_event_changes_what_it_says_and_nothing_else(dsn: str, seed: int) -> None:
    await World(dsn, seed).run(100)
