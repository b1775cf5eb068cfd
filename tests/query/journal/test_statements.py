"""What is asked of the journal's tables: which rows each statement meets, and what becomes of them.

Long because each statement has its case here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teola.errors import UnknownName
from teola.graph import Inquiry
from teola.query.journal import durable, statements
from teola.query.journal.durable import Filed, JournalSteps
from teola.query.journal.journal import FORGET_AT_ONCE, GRACE_S, LEASE_S, LOOK, Journal
from teola.query.journal.lost import Answered, JournalLost
from teola.query.journal.query_rows import Asked, Ended
from tests.query.journal.sqlite_journal import Database, journal_beside

CHANNEL = statements.JOURNAL_CHANNEL
ENDED = Ended("q", "ok", 0.5, "{}", "t")


def put(database: Database, id: str = "q", **columns: Any) -> str:
    """A row."""
    known = {"id": id, "tenant": "t", "app": "mail", "request": "{}", "deadline": 2000.0, **columns}
    names, places = ", ".join(known), ", ".join("?" * len(known))
    database._sqlite.execute(f"INSERT INTO queries ({names}) VALUES ({places})", [*known.values()])
    return id


def have(database: Database, id: str = "q") -> None:
    """Let it have a file, a step and a question."""
    for statement in (
        "INSERT INTO files VALUES ('t', ?, 0, 0, x'00')",
        "INSERT INTO steps VALUES ('t', ?, 'k', NULL)",
        "INSERT INTO asks (tenant, query, id, told) VALUES ('t', ?, 'a', '{}')",
    ):
        database._sqlite.execute(statement, (id,))


def row(database: Database, columns: str, id: str = "q") -> Any:
    found = database._sqlite.execute(f"SELECT {columns} FROM queries WHERE id = ?", (id,))
    values = found.fetchone()
    return values[0] if values is not None and len(values) == 1 else values


def left(database: Database) -> list[str]:
    """Tables that still have something."""
    tables = ("files", "steps", "asks")
    return [t for t in tables if database._sqlite.execute(f"SELECT 1 FROM {t}").fetchone()]


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    yield made
    made._sqlite.close()


@pytest.fixture
def journal(database: Database) -> Journal:
    return journal_beside(database)


# --- whose they are ---------------------------------------------------------------------------


async def test_what_a_client_leads_to_names_its_tenant(
    database: Database, journal: Journal
) -> None:
    """And stands in a transaction that sees no other's rows; another tenant's are never met."""
    put(database, state="waiting", left_s=1.0)
    have(database)
    assert await journal.find("u", "q") is None
    assert await journal.known("u", "key", None) is None
    assert await journal.all("u", None, None, 9, []) == []
    await journal.cancel("u", "q")
    assert not await journal.give_up(replace(ENDED, tenant="u"))
    assert await journal.take_one("u", "q") is None
    assert await durable.open_of(journal, "u", ["q"]) == {}
    assert await durable.waiting_of(journal, "u", "mail") == []
    assert {tenant for tenant, _ in database.ran} == {"u"}
    assert row(database, "state, cancel, ended") == ("waiting", 0, None)
    given = database.run(statements.ANSWER, ('"x"', "u", "q", "a"))
    assert given.rowcount == 0


# --- accepted and known -----------------------------------------------------------------------


async def test_what_is_accepted_stands_where_it_belongs(
    database: Database, journal: Journal, tmp_path: Path
) -> None:
    (file := tmp_path / "a").write_bytes(b"body")
    asked = Asked("q", "t", "mail", "request", 7.5, 60.0, "code", [file], "key", "digest")
    assert await journal.accept(asked) is None
    columns = "tenant, key, digest, app, request, created, deadline, holder, code, seal, state"
    assert row(database, columns) == (
        "t", "key", "digest", "mail", "request", 7.5, 1060.0, journal.token, "code", None,
        "running",
    )  # fmt: skip
    pieces = database._sqlite.execute("SELECT * FROM files").fetchall()
    assert pieces == [("t", "q", 0, 0, b"body")]
    before = await journal.accept(replace(asked, id="other", request="else", files=[]))
    assert before is not None
    assert (before.id, before.digest, before.app) == ("q", "digest", "mail")
    assert row(database, "id", "other") is None
    for id, more in (("a", {"tenant": "u"}), ("b", {"key": "k"}), ("c", {"key": None}), ("d", {
        "key": None})):  # fmt: skip
        assert await journal.accept(replace(asked, id=id, files=[], **more)) is None
        assert row(database, "runs, deaths", id) == (1, 0)


async def test_what_is_known_of_a_query_is_told_and_of_a_list_how_each_stands(
    database: Database, journal: Journal
) -> None:
    """The newest first, and of many as many as are asked for."""
    made = {"key": "k", "digest": "d", "created": 5.0, "runs": 3}
    put(database, "a", **made)
    put(database, "b", created=9.0, state="waiting", left_s=1.0)
    put(database, "c", created=7.0, state="ok", ended=8.0, latency_s=0.5, result="{}", app="read")
    put(database, "d", created=6.0, tenant="u")
    found = await journal.find("t", "c")
    assert found is not None
    assert (found.created, found.latency_s, found.result, found.state) == (7.0, 0.5, "{}", "ok")
    by_key = await journal.known("t", "k", "d")
    assert by_key is not None
    assert (by_key.id, by_key.runs, by_key.latency_s) == ("a", 3, None)

    async def ids(app: str | None, state: str | None, most: int, apart: Sequence[str]) -> list[str]:
        listed = await journal.all("t", app, state, most, apart)
        assert {(one.result, one.digest, one.problem) for one in listed} <= {(None, None, None)}
        return [one.id for one in listed]

    assert await ids(None, None, 9, []) == ["b", "c", "a"]
    assert await ids(None, None, 2, []) == ["b", "c"]
    assert await ids(None, None, 2, ["b"]) == ["c", "a"]
    assert await ids("mail", None, 9, []) == ["b", "a"]
    assert await ids(None, "ok", 9, []) == ["c"]
    assert await ids("mail", "ok", 9, []) == []


# --- ended ------------------------------------------------------------------------------------


async def test_its_holder_ends_a_query_once_with_all_that_it_had(
    database: Database, journal: Journal
) -> None:
    other = journal_beside(database)
    put(database, holder=journal.token)
    put(database, "stays", holder=journal.token)
    have(database)
    have(database, "stays")
    assert not await other.end(ENDED)
    assert row(database, "ended") is None
    assert await journal.end(ENDED)
    columns = "state, latency_s, result, ended, request, holder"
    assert row(database, columns) == ("ok", 0.5, "{}", 1000.0, None, None)
    assert database.told == [(CHANNEL, "q")]
    assert not await journal.end(replace(ENDED, state="failed"))
    assert row(database, "state") == "ok"
    assert await journal.held(database) == {"stays": False}  # type: ignore[arg-type]
    for table in ("files", "steps", "asks"):
        kept = database._sqlite.execute(f"SELECT query FROM {table}").fetchall()
        assert kept == [("stays",)]


@pytest.mark.parametrize(
    ("columns", "alive", "given_up"),
    [
        ({"holder": None}, (), True),
        ({"holder": 4711}, (), True),
        ({"holder": 4711}, (4711,), False),
        ({"holder": None, "state": "running"}, (), False),
        ({"holder": None, "state": "ok", "ended": 1.0}, (), False),
    ],
)
async def test_what_waits_is_given_up_where_nobody_alive_holds_it(
    database: Database, journal: Journal, columns: Any, alive: Sequence[int], given_up: bool
) -> None:
    put(database, **{"state": "waiting", "left_s": 1.0, **columns})
    have(database)
    database.alive |= {*alive}
    assert await journal.give_up(replace(ENDED, state="cancelled")) is given_up
    if given_up:
        told = "state, latency_s, result, ended, request, holder"
        assert row(database, told) == ("cancelled", 0.0, "{}", 1000.0, None, None)
    assert left(database) == ([] if given_up else ["files", "steps", "asks"])
    assert database.told == [(CHANNEL, "q")] * given_up


async def test_who_holds_a_query_itself_may_give_it_up(
    database: Database, journal: Journal
) -> None:
    put(database, state="waiting", holder=journal.token)
    assert journal.token in database.alive
    assert await journal.give_up(ENDED)


@pytest.mark.parametrize("most", [1, 2, 3, FORGET_AT_ONCE])
async def test_the_oldest_that_ended_longer_ago_than_is_kept_are_forgotten(
    database: Database, most: int
) -> None:
    for id, ended in (("a", 899.0), ("b", 700.0), ("c", 900.0), ("d", 800.0)):
        put(database, id, state="ok", ended=ended)
        have(database, id)
    put(database, "runs")
    assert database.run(statements.FORGET, (100.0, most)).rowcount == min(most, 3)
    gone = [id for id in ("b", "d", "a") if row(database, "id", id) is None]
    assert gone == ["b", "d", "a"][:most]
    assert row(database, "id", "c") == "c"
    assert left(database), "with a query goes what is its own"
    kept = database._sqlite.execute("SELECT count(*) FROM files").fetchone()
    assert kept == (4 - len(gone),)


# --- held, given back, taken ------------------------------------------------------------------


async def test_a_query_that_is_to_be_cancelled_is_so_for_whoever_holds_it(
    database: Database, journal: Journal
) -> None:
    put(database, holder=journal.token)
    put(database, "other", holder=4711)
    put(database, "done", state="ok", ended=1.0)
    for id in ("q", "done"):
        await journal.cancel("t", id)
    assert await journal.held(database) == {"q": True}  # type: ignore[arg-type]
    assert row(database, "cancel", "done") == 0
    assert database.told == [(CHANNEL, LOOK)] * 2


async def test_what_is_given_back_is_nobodys_but_for_some(
    database: Database, journal: Journal
) -> None:
    for id in ("a", "b", "c"):
        put(database, id, holder=journal.token)
    put(database, "other", holder=4711)
    await journal.give_back(["a"])
    assert [row(database, "holder", id) for id in ("a", "b", "c", "other")] == [
        journal.token, None, None, 4711,
    ]  # fmt: skip
    assert database.told == [(CHANNEL, LOOK)]
    await journal.give_back(["a"])
    assert database.told == [(CHANNEL, LOOK)], "there was nothing"


async def test_what_is_released_was_not_begun_by_who_held_it(
    database: Database, journal: Journal
) -> None:
    put(database, holder=journal.token, runs=3)
    put(database, "other", holder=4711, runs=3)
    for id in ("q", "other"):
        await journal.release(id)
        await journal.release(id)
    assert row(database, "holder, runs") == (None, 2)
    assert row(database, "holder, runs", "other") == (4711, 3)


async def test_a_death_is_taken_back_from_what_others_took_meanwhile(
    database: Database, journal: Journal
) -> None:
    mine = journal.token
    for id, holder, deaths in (("a", 4711, 2), ("b", 4711, 0), ("c", mine, 2), ("d", 1, 2)):
        put(database, id, holder=holder, deaths=deaths)
    put(database, "nobodys", holder=None, deaths=2)
    await journal.alive(database, ["a", "b", "c", "nobodys"])  # type: ignore[arg-type]
    told = {id: row(database, "deaths", id) for id in ("a", "b", "c", "d", "nobodys")}
    assert told == {"a": 1, "b": 0, "c": 2, "d": 2, "nobodys": 2}


@pytest.mark.parametrize("way", ["gets on", "step", "waits"])
async def test_what_gets_on_here_is_not_what_servers_die_of(
    database: Database, journal: Journal, way: str
) -> None:
    put(database, holder=journal.token, deaths=2)
    put(database, "other", holder=4711, deaths=2)
    if way == "gets on":
        await journal.gets_on("q")
        await journal.gets_on("other")
    elif way == "step":
        await JournalSteps(journal, "t", "q").begun("k")
        with pytest.raises(JournalLost, match="is not this server's any more"):
            await JournalSteps(journal, "t", "other").begun("k")
    else:
        await durable.wait(journal, "t", "q", [], 1.0, 2.0)
        await durable.wait(journal, "t", "other", [], 1.0, 2.0)
    assert [row(database, "deaths", id) for id in ("q", "other")] == [0, 2]


async def test_who_has_lost_a_query_asks_nothing_for_it_and_lets_it_run(
    database: Database, journal: Journal
) -> None:
    put(database, holder=4711)
    await durable.wait(journal, "t", "q", [inquiry("a")], 1.0, 2.0)
    assert row(database, "state, left_s, deadline") == ("running", None, 2000.0)
    assert await durable.asks_of(journal, "t", "q") == []


@pytest.mark.parametrize(("up_s", "found"), [(LEASE_S, []), (LEASE_S + 0.1, [4711])])
async def test_nobody_is_looked_for_before_all_could_have_shown_that_they_live(
    database: Database, journal: Journal, up_s: float, found: list[int]
) -> None:
    for id, holder in (("a", 4711), ("b", 4712), ("c", journal.token), ("d", 4711)):
        put(database, id, holder=holder)
    put(database, "nobodys", holder=None)
    put(database, "done", state="ok", ended=1.0)
    database.alive.add(4712)
    database.alive.discard(journal.token)
    database.started = database.now - up_s
    await journal.look_for_dead(database)  # type: ignore[arg-type]
    assert [*journal._gone] == found


TAKEN = {"holder": None, "app": "mail", "code": "c", "created": 5.0}
"""A row that is taken."""


@pytest.mark.parametrize(
    ("columns", "step", "taken"),
    [
        ({}, False, True),
        ({"holder": 4711}, False, True),  # it is dead
        ({"holder": 4712}, False, False),  # it lives
        ({"holder": 4713}, False, False),  # it has not been silent for long
        ({"app": "read"}, False, False),
        ({"app": "read", "cancel": 1}, False, True),
        ({"app": "read", "deadline": 1000.0}, False, True),
        ({"app": "read", "deadline": 1000.1}, False, False),
        ({"state": "waiting"}, False, False),
        ({"state": "waiting", "cancel": 1}, False, True),
        ({"state": "waiting", "deadline": 1000.0}, False, True),
        ({"code": "d"}, False, True),
        ({"code": "d"}, True, False),
        ({"code": None}, True, True),
        ({"code": "d", "cancel": 1}, True, True),
        ({"code": "d", "deadline": 999.0}, True, True),
        ({"id": "apart"}, False, False),
        ({"id": "apart", "cancel": 1}, False, False),
        ({"id": "unreadable"}, False, False),
        ({"id": "unreadable", "cancel": 1}, False, True),
        ({"id": "unreadable", "deadline": 1000.0}, False, True),
        ({"state": "ok", "ended": 1.0}, False, False),
    ],
)
async def test_a_server_takes_what_nobody_runs_and_it_can_run_or_end(
    database: Database, journal: Journal, columns: dict[str, Any], step: bool, taken: bool
) -> None:
    id = put(database, **{**TAKEN, **columns})
    if step:
        have(database, id)
    database.alive.add(4712)
    values: Any = {"gone": [4711, 4712], "apps": ["mail"], "codes": ["c"], "most": 9, "mine": []}
    values |= {"me": journal.token, "apart": ["apart"], "unreadable": ["unreadable"]}
    found = await database.run(statements.TAKE, values).fetchall()
    assert [one[0] for one in found] == [id] * taken
    if taken:
        died = columns.get("holder") == 4711
        assert row(database, "holder, runs, deaths", id) == (journal.token, 2, died)


async def test_of_many_the_oldest_are_taken_with_all_that_is_known_of_them(
    database: Database, journal: Journal
) -> None:
    """Also what is its own but does not run here, which is no death."""
    for k, id in enumerate("dbca"):
        put(database, id, **{**TAKEN, "created": float(k)})
    put(database, "mine", **{**TAKEN, "holder": journal.token, "created": 9.0})
    values: Any = {"apps": {"mail": "c"}, "apart": [], "mine": []}
    taken = await journal.take(database, most=3, **values)  # type: ignore[arg-type]
    assert [one.id for one in taken] == ["d", "b", "c"]
    one = taken[1]
    assert (one.tenant, one.app, one.request, one.created) == ("t", "mail", "{}", 1.0)
    assert (one.left_s, one.runs, one.deaths, one.cancel) == (1000.0, 2, 0, False)
    assert (one.state, one.code) == ("running", "c")
    rest = await journal.take(database, most=9, **{**values, "mine": ["mine"]})  # type: ignore[arg-type]
    assert [one.id for one in rest] == ["a", "mine"]
    assert row(database, "holder, runs, deaths", "mine") == (journal.token, 2, 0)


@pytest.mark.parametrize(
    ("columns", "gone", "taken"),
    [
        ({"holder": None}, None, True),
        ({"holder": None}, [], True),
        ({"holder": 4711}, None, True),
        ({"holder": 4711}, [4711], True),
        ({"holder": 4711}, [], False),
        ({"holder": 4712}, None, False),
        ({"holder": 4712}, [4712], False),
        ({"holder": "me"}, [], True),
        ({"state": "waiting"}, None, False),
        ({"state": "ok", "ended": 1.0}, None, False),
        ({"tenant": "u"}, None, False),
        ({"id": "other"}, None, False),
    ],
)
async def test_one_query_is_taken_from_nobody_who_lives(
    database: Database, journal: Journal, columns: dict[str, Any], gone: Any, taken: bool
) -> None:
    holder = columns.get("holder")
    if holder == "me":
        columns = {**columns, "holder": journal.token}
    put(database, **{"deaths": 1, **columns})
    database.alive.add(4712)
    found = await journal.take_in(database, "t", "q", gone)  # type: ignore[arg-type]
    assert (found is not None) is taken
    if found is not None:
        assert (found.id, found.runs, found.deaths) == ("q", 2, 1 + (holder == 4711))
        assert found.left_s == 1000.0
        assert row(database, "holder, runs") == (journal.token, 2)


async def test_a_dead_servers_query_is_taken_once_it_was_silent_for_long_enough(
    database: Database, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(database, holder=4711)
    assert await journal.take_from_dead("t", "q") is None
    journal._gone[4711] -= GRACE_S
    found = await journal.take_from_dead("t", "q")
    assert found is not None
    assert found.id == "q"


# --- what waits, is asked and answered --------------------------------------------------------


def inquiry(id: str) -> Inquiry:
    return Inquiry(id, "q", "ask", "mail", f"{id}?", {"type": "boolean"})


async def filed(journal: Journal, *asks: str, **more: Any) -> None:
    given = {"left_s": 30.0, "wait_s": 500.0, "code": "c", **more}
    what = Filed("q", "t", "mail", "{}", 7.5, **given)
    steps = {"done": '{"gives": 1}', "begun": None}
    await durable.file(journal, what, steps, map(inquiry, asks))


async def test_what_waits_is_filed_with_all_that_was_done_and_asked(
    database: Database, journal: Journal, tmp_path: Path
) -> None:
    (file := tmp_path / "a").write_bytes(b"body")
    await filed(journal, "a", "b", holder=7, files=[file])
    columns = "tenant, app, request, created, deadline, code, state, left_s, holder, seal, runs"
    assert row(database, columns) == (
        "t", "mail", "{}", 7.5, 1500.0, "c", "waiting", 30.0, 7, None, 1,
    )  # fmt: skip
    steps = database._sqlite.execute("SELECT * FROM steps ORDER BY key DESC").fetchall()
    assert steps == [("t", "q", "done", '{"gives": 1}'), ("t", "q", "begun", None)]
    assert database._sqlite.execute("SELECT tenant, query, id FROM asks").fetchall() == [
        ("t", "q", "a"), ("t", "q", "b"),
    ]  # fmt: skip
    assert [one.id for one in await durable.asks_of(journal, "t", "q")] == ["a", "b"]
    assert [one.id for one in await durable.waiting_of(journal, "t", "mail")] == ["a", "b"]
    assert await durable.waiting_of(journal, "t", "read") == []


async def test_questions_come_in_the_order_in_which_they_were_asked(
    database: Database, journal: Journal
) -> None:
    put(database, holder=journal.token)
    for now, asks in ((1000.0, ["b", "d"]), (1001.0, ["a"]), (1001.0, ["b"])):
        database.now = now
        await durable.wait(journal, "t", "q", map(inquiry, asks), 3.0, 4.0)
    expected = ["b", "d", "a"]
    assert [one.id for one in await durable.asks_of(journal, "t", "q")] == expected
    assert [one.id for one in await durable.waiting_of(journal, "t", "mail")] == expected
    (found,) = (await durable.open_of(journal, "t", ["q", "r"])).values()
    assert found is not None
    assert [one["ask"] for one in found] == expected


async def test_a_query_waits_as_long_as_none_of_its_questions_is_answered(
    database: Database, journal: Journal
) -> None:
    """What it has left stands still, and its deadline is that of the answer."""
    put(database, holder=journal.token)
    await durable.wait(journal, "t", "q", [inquiry("a")], 30.0, 500.0)
    assert row(database, "state, left_s, deadline") == ("waiting", 30.0, 1500.0)
    assert database.told == [(CHANNEL, "q")]
    database.now = 1100.0
    await durable.answer(journal, "t", "q", "a", True, takes=False)
    assert row(database, "state, deadline") == ("running", 1130.0)
    await durable.wait(journal, "t", "q", [inquiry("a")], 10.0, 500.0)
    assert row(database, "state") == "running", "there is an answer already"
    await durable.wait(journal, "t", "q", [inquiry("b")], 10.0, 500.0)
    assert row(database, "state, left_s, deadline") == ("waiting", 10.0, 1600.0)


async def test_each_question_is_answered_once_and_time_goes_on_with_the_first_answer(
    database: Database, journal: Journal
) -> None:
    await filed(journal, "a", "b")
    database.now = 1010.0
    assert await durable.answer(journal, "t", "q", "a", True, takes=False) == ("a", None)
    assert row(database, "state, deadline") == ("running", 1040.0)
    assert await durable.answers_of(journal, {"q": "t"}) == [("q", "a", True)]
    late = database.run(statements.ANSWER, ("false", "t", "q", "a"))
    assert late.rowcount == 0, "who came at the same moment has come too late"
    database.now = 1020.0
    with pytest.raises(Answered):
        await durable.answer(journal, "t", "q", "a", False, takes=False)
    with pytest.raises(UnknownName):
        await durable.answer(journal, "t", "q", "c", False, takes=False)
    assert await durable.answer(journal, "t", "q", None, False, takes=False) == ("b", None)
    assert row(database, "deadline") == 1040.0
    assert database.told == [(CHANNEL, LOOK)] * 2
    answers = await durable.answers_of(journal, {"q": "t", "r": "t"})
    assert answers == [("q", "a", True), ("q", "b", False)]
    assert await durable.answers_of(journal, {"r": "t"}) == []
    assert await durable.open_of(journal, "t", ["q"]) == {}
    assert await durable.waiting_of(journal, "t", "mail") == []
    steps = await durable.steps_of(journal, "t", "q")
    assert (steps["a"], steps["b"], steps["begun"]) == (
        '{"answer": true}', '{"answer": false}', None,
    )  # fmt: skip


async def test_who_answers_may_take_the_query_along(database: Database, journal: Journal) -> None:
    await filed(journal, "a")
    ask, taken = await durable.answer(journal, "t", "q", None, True, takes=True)
    assert ask == "a"
    assert taken is not None
    assert (taken.id, taken.runs, taken.left_s) == ("q", 2, 30.0)
    assert row(database, "holder") == journal.token
    assert database.told == [(CHANNEL, "q")]


async def test_a_step_is_written_by_its_holder_and_its_end_in_its_place(
    database: Database, journal: Journal
) -> None:
    put(database, holder=journal.token)
    steps = JournalSteps(journal, "t", "q")
    every = "SELECT * FROM steps"
    await steps.begun("k")
    assert database._sqlite.execute(every).fetchall() == [("t", "q", "k", None)]
    await steps.done("k", "1")
    assert database._sqlite.execute(every).fetchall() == [("t", "q", "k", "1")]
    await journal.end(ENDED)
    with pytest.raises(JournalLost):
        await steps.done("k", "2")
    assert database._sqlite.execute(every).fetchall() == []


# --- sealing ----------------------------------------------------------------------------------


def test_that_sealing_has_begun_is_noted_before_it_is_done_and_not_after(
    database: Database,
) -> None:
    assert database.run(statements.SEALED)._rows == [(None,)]
    for statement, note, said in (
        (statements.BEGIN_SEALING, "begun", "begun"),
        (statements.BEGIN_SEALING, "again", "begun"),
        (statements.NOTE_SEALED, "done", "done"),
        (statements.BEGIN_SEALING, "again", "done"),
        (statements.NOTE_SEALED, "later", "later"),
    ):
        database.run(statement, (note,))
        assert database.run(statements.SEALED)._rows == [(said,)]


def test_what_is_to_be_sealed_comes_by_ids_and_once(database: Database) -> None:
    for id, seal in (("a", None), ("b", "x"), ("c", None), ("d", None)):
        put(database, id, seal=seal)

    def ids(last: str, again: bool, most: int = 9) -> str:
        return "".join(id for (id,) in database.run(statements.TO_SEAL, (last, again, most))._rows)

    assert [ids("", False), ids("a", False), ids("", True), ids("b", True)] == [
        "acd", "cd", "abcd", "cd",
    ]  # fmt: skip
    assert [ids("", False, 2), ids("c", False, 2)] == ["ac", "d"]


def test_what_is_sealed_is_that_of_one_query_and_one_place(database: Database) -> None:
    for id in ("q", "r"):
        put(database, id, digest="d", result="r", problem="p", state="ok", ended=1.0)
        have(database, id)
    database.run(statements.SEAL_QUERY, ("D", "Q", "R", "P", "S", "q"))
    database.run(statements.SEAL_STEP, ("V", "q", "k"))
    database.run(statements.SEAL_ASK, ("T", "A", "q", "a"))
    database.run(statements.SEAL_PIECE, (b"B", "q", 0, 0))
    columns = "digest, request, result, problem, seal"
    assert row(database, columns) == ("D", "Q", "R", "P", "S")
    assert row(database, columns, "r") == ("d", "{}", "r", "p", None)
    for statement, sealed, plain in (
        (statements.STEPS, [("k", "V")], [("k", None)]),
        (statements.UNSEALED_ASKS, [("a", "T", "A")], [("a", "{}", None)]),
        (statements.PIECES, [(0, 0, b"B")], [(0, 0, b"\0")]),
        (statements.PLACES, [(0, 0)], [(0, 0)]),
        (statements.COUNT_ASKS, [(1,)], [(1,)]),
        (statements.IS_THERE, [("q",)], [("r",)]),
    ):
        assert database.run(statement, ("q",))._rows == sealed
        assert database.run(statement, ("r",))._rows == plain
    assert database.run(statements.ONE_PIECE, ("q", 0, 0))._rows == [(b"B",)]
    assert database.run(statements.ONE_PIECE, ("q", 0, 1))._rows == []
    unsealed = database.run(statements.UNSEALED_QUERY, ("q",))._rows
    assert unsealed == [("t", "mail", None, "D", "Q", "R", "P", "S")]


def test_pieces_of_documents_come_in_their_order(database: Database) -> None:
    put(database)
    for number, piece in ((1, 0), (0, 1), (0, 0), (0, 10), (0, 2)):
        body = f"{number}/{piece}".encode()
        database.run(statements.PIECE, ("t", "q", number, piece, body))
    found = [body for _, _, body in database.run(statements.PIECES, ("q",))._rows]
    assert found == [b"0/0", b"0/1", b"0/2", b"0/10", b"1/0"]
