"""One life of a query, wherever it is lived: it begins, waits, is answered, goes on and ends.

Long because one life is told from its beginning to its end.
"""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from teola import App, Ask, Each, collections, component
from teola.errors import InputError, UnknownName
from teola.query import desk
from teola.query.journal import durable
from teola_engines.vectorstore import EmbeddedPostgres
from tests.query.conftest import Process
from tests.query.mail import FIRST, LOG
from tests.query.sides import PROGRAM, SERVER, TAKEN, Ended, Program, Server, Side
from tests.serve.conftest import soon
from tests.serve.databases import rows
from tests.serve.journal.conftest import shut

ROW = "SELECT state, holder FROM teola_journal.queries WHERE id = %s"
REST = """
SELECT (SELECT count(*) FROM teola_journal.steps), (SELECT count(*) FROM teola_journal.asks),
    (SELECT count(*) FROM teola_journal.files)
"""
CRASH = """
UPDATE teola_journal.queries SET state = 'running', holder = 4711 WHERE id = %s
"""
ANSWERED = "UPDATE teola_journal.asks SET answer = %s WHERE query = %s AND id = %s"


@component(outputs="length", pure=True)
def counted(topic: str) -> int:
    return len(topic)


def nothing_left(dsn: str) -> bool:
    """Whether no step, question or document of any query is kept."""
    return rows(dsn, REST) == [(0, 0, 0)]


def test_it_waits_is_answered_and_ends(kind: str, process: Process, dsn: str) -> None:
    with process(kind) as here:
        id = here.ask("mail", "tides")
        (asked,) = here.asks(id)
        assert (asked["ask"], asked["question"]) == ("first.ask", "Send?\nAbout tides.")
        assert rows(dsn, "SELECT state, left_s > 100 FROM teola_journal.queries") == [
            ("waiting", True)
        ]
        assert here.answer(id, "perhaps") == "invalid_input"
        assert here.answer(id, "yes", "other") == "unknown_name"
        assert here.answer(id, "yes") == TAKEN
        assert [one["ask"] for one in here.asks(id)] == ["second.ask"]
        assert here.answer(id, "yes", "first.ask") == "answered"
        assert here.answer(id, "quite") == TAKEN
        assert here.end(id) == Ended("ok", "yes quite: About tides.", "")
        assert here.answer(id, "quite") == "answered"
        assert here.asks(id) == []
    assert LOG == ["draft tides", "send yes"]
    assert rows(dsn, ROW, id) == [("ok", None)]
    assert nothing_left(dsn)


@pytest.mark.parametrize("second", [PROGRAM, SERVER])
def test_another_process_goes_on_and_nothing_is_done_twice(
    kind: str, second: str, process: Process, dsn: str
) -> None:
    """Also of the other kind: filed by a program and ended by a server, and the other way round."""
    with process(kind) as one:
        id = one.ask("mail", "tides")
        before = one.asks(id)
    with process(second) as other:
        assert other.asks(id) == before
        assert other.answer(id, "yes") == TAKEN
    with process(second) as third:
        assert third.answer(id, "quite") == TAKEN
        assert third.end(id) == Ended("ok", "yes quite: About tides.", "")
    assert LOG == ["draft tides", "send yes"]
    assert rows(dsn, ROW, id) == [("ok", None)]
    assert nothing_left(dsn)


@pytest.mark.parametrize("second", [PROGRAM, SERVER])
def test_of_two_answers_one_counts(kind: str, second: str, process: Process) -> None:
    with process(kind) as one, process(second) as other, ThreadPoolExecutor(2) as pool:
        id = one.ask("mail", "tides")
        assert one.answer(id, "perhaps") == "invalid_input"  # nor do both import jsonschema at once

        def say(side: Side) -> str:
            return side.answer(id, "yes", "first.ask")

        assert sorted(pool.map(say, (one, other))) == ["answered", TAKEN]
        assert other.answer(id, "quite") == TAKEN, "wherever it is, it goes on"
        assert other.end(id) == Ended("ok", "yes quite: About tides.", "")
    assert LOG == ["draft tides", "send yes"]


@pytest.mark.parametrize("second", [PROGRAM, SERVER])
def test_it_is_given_up(kind: str, second: str, process: Process, dsn: str, tmp_path: Path) -> None:
    """By the process that began it, or by another, with all that is kept of it."""
    file = tmp_path / "notes.txt"
    file.write_text("Mara keeps the lamp.")
    with process(kind) as one:
        ids = [one.ask("mail", "tides"), one.ask("read", "lamp", file)]
        one.cancel(ids[0])
        assert one.asks(ids[0]) == []
        assert one.answer(ids[0], "yes") in ("answered", "unknown_name")
    with process(second) as other:
        assert other.asks(ids[1])
        other.cancel(ids[1])
        assert other.asks(ids[1]) == []
        assert other.answer(ids[1], "yes", app="read") == "answered"
    assert [rows(dsn, ROW, id) for id in ids] == [[("cancelled", None)]] * 2
    assert nothing_left(dsn)


def test_another_version_leaves_it_as_it_was(kind: str, process: Process, dsn: str) -> None:
    with process(kind) as one:
        id = one.ask("mail", "tides")
    with process(PROGRAM, version="2") as other:
        assert other.answer(id, "yes") == "code_changed"
    with process(kind) as third:
        third.go_on(id)
        assert [one["ask"] for one in third.asks(id)] == ["second.ask"], "the answer is there"
    assert LOG == ["draft tides"]


def crashed(dsn: str, id: str) -> None:
    """What is left where a process dies that has just taken an answer."""
    rows(dsn, ANSWERED, json.dumps("yes"), id, "first.ask")
    rows(dsn, CRASH, id)


@pytest.mark.parametrize("second", [PROGRAM, SERVER])
def test_a_crash_loses_nothing(kind: str, second: str, process: Process, dsn: str) -> None:
    with process(kind) as one:
        id = one.ask("mail", "tides")
    crashed(dsn, id)
    with process(second) as other:
        other.go_on(id)
        assert [one["ask"] for one in other.asks(id)] == ["second.ask"]
        assert other.answer(id, "quite") == TAKEN
        assert other.end(id) == Ended("ok", "yes quite: About tides.", "")
    assert LOG == ["draft tides", "send yes"]


@pytest.mark.parametrize(
    ("column", "state", "told"),
    [
        ("deadline = now() - interval '1 hour'", "deadline", "the deadline passed while no"),
        ("cancel = true", "cancelled", "the query was cancelled"),
    ],
)
@pytest.mark.parametrize("second", [PROGRAM, SERVER])
def test_what_is_not_to_go_on_after_a_crash_ends(
    kind: str, second: str, column: str, state: str, told: str, process: Process, dsn: str
) -> None:
    with process(kind) as one:
        id = one.ask("mail", "tides")
    crashed(dsn, id)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"UPDATE teola_journal.queries SET {column}")  # type: ignore[arg-type]
    with process(second) as other:
        other.go_on(id)
        ended = other.end(id)
        assert (ended.state, ended.output) == (state, None)
        assert told in ended.error
    assert rows(dsn, ROW, id) == [(state, None)]
    assert nothing_left(dsn)
    assert LOG == ["draft tides"]


def test_who_asks_for_what_runs_here_waits_for_it(process: Process) -> None:
    """It is not begun again, which would stop it."""
    reached, go = threading.Event(), threading.Event()

    @component(outputs="sent")
    def hold(verdict: str) -> str:
        LOG.append("hold")
        reached.set()
        go.wait(30)
        return verdict

    inputs, outputs = {"topic": "text"}, {"sent": "sent"}
    app = App("held", FIRST >> hold, inputs={**inputs, "draft": "text"}, outputs=outputs)
    with process(PROGRAM, apps={"held": app}), ThreadPoolExecutor(2) as pool:
        id = app.run(topic="tides", draft="about").query_id
        first = pool.submit(app.resume, id, "yes")
        assert reached.wait(30)
        second = pool.submit(app.resume, id)
        try:
            with pytest.raises(TimeoutError):
                second.result(0.3)
        finally:
            go.set()
        assert first.result(30)["sent"] == second.result(30)["sent"] == "yes"
    assert LOG == ["hold"]


def test_two_who_go_on_with_it_at_once_begin_it_once(process: Process, dsn: str) -> None:
    with process(PROGRAM) as one:
        id = one.ask("mail", "tides")
        assert one.answer(id, "yes") == TAKEN
    rows(dsn, ANSWERED, json.dumps("quite"), id, "second.ask")
    rows(dsn, CRASH, id)
    with process(PROGRAM) as other, ThreadPoolExecutor(2) as pool:
        assert isinstance(other, Program)
        ends = list(pool.map(other.apps["mail"].resume, [id, id]))
        assert [one["sent"] for one in ends] == ["yes quite: About tides."] * 2
    assert LOG == ["draft tides", "send yes"]


def test_what_the_journal_cannot_keep_is_refused_and_not_waited_for(process: Process) -> None:
    inputs, outputs = {"topic": "any"}, {"said": "said"}
    app = App("odd", Ask("Well?", gives="said"), inputs=inputs, outputs=outputs)
    with process(PROGRAM, apps={"odd": app}):
        for topic in ({("a", "b"): 1}, {1: 1, "a": 1}, {"a": {1, 2}}):
            with pytest.raises(InputError, match="journal"):
                app.run(topic=topic)


@pytest.mark.parametrize("second", [PROGRAM, SERVER])
def test_how_it_failed_reads_the_same_everywhere(
    kind: str, second: str, process: Process, dsn: str
) -> None:
    with process(kind) as one:
        id = one.ask("mail", "tides")
    with process(second) as other:
        assert other.answer(id, "yes") == TAKEN
        assert other.answer(id, "fail") == TAKEN
        ended = other.end(id)
        assert (ended.state, ended.output) == ("failed", None)
        assert "no stamps" in ended.error
    with process(SERVER) as third:
        assert isinstance(third, Server)
        told = third.client.get(f"/v1/queries/{id}/events").text
        last = json.loads(told.rpartition("data: ")[2])["error"]
        assert (last["code"], last["retryable"], last["query_id"]) == ("failed", False, id)
        assert "no stamps" in last["message"]
        assert third.end(id).error == ended.error
    assert nothing_left(dsn)


@pytest.mark.parametrize("second", [PROGRAM, SERVER])
def test_its_documents_come_along(
    kind: str, second: str, process: Process, dsn: str, tmp_path: Path
) -> None:
    """They are where it began by the time it is answered no more."""
    file = tmp_path / "notes.txt"
    file.write_text("Mara keeps the lamp.")
    with process(kind) as one:
        id = one.ask("read", "lamp", file)
    file.unlink()
    with process(second) as other:
        assert other.answer(id, "yes", app="read") == TAKEN
        assert other.end(id) == Ended("ok", "yes: Mara keeps the lamp.", "")
    assert nothing_left(dsn)


KEY, OTHER = "a key that nobody guesses", "another key that is as long"


def test_it_lies_there_sealed(kind: str, process: Process, dsn: str) -> None:
    with process(kind, key=KEY) as one:
        id = one.ask("mail", "tides")
    kept: list[tuple[Any, ...]] = rows(dsn, "SELECT request FROM teola_journal.queries")
    kept += rows(dsn, "SELECT value FROM teola_journal.steps WHERE value IS NOT NULL")
    kept += rows(dsn, "SELECT told FROM teola_journal.asks")
    assert len(kept) == 3
    assert "tides" not in str(kept)
    with process(SERVER, key=OTHER) as other:
        assert other.answer(id, "yes") == "journal_unreadable"
    with process(kind, key=KEY) as third:
        assert third.answer(id, "yes") == TAKEN


def test_a_servers_defaults_let_each_take_five_thousand(process: Process) -> None:
    """What counts is how many primitives are in it at once, not in all."""
    each = Each(counted, over="topics", item="topic", gives={"all": "length"})
    app = App("many", each, inputs={"topics": "texts"}, outputs={"all": "all"})
    with process(SERVER, apps={"many": app}) as server:
        assert isinstance(server, Server)
        body = {"inputs": {"topics": ["x"] * 5_000}}
        found = server.client.post("/v1/apps/many/queries", json=body, timeout=120).json()
        assert (found["state"], found["outputs"]["all"]) == ("ok", [1] * 5_000)


def test_it_is_written_down_once_the_journal_is_there(
    process: Process, made: str, postgres: EmbeddedPostgres
) -> None:
    """Until then a program's query waits in memory, and says so."""
    shut(postgres, made, True)
    try:
        with process(PROGRAM) as here:
            assert isinstance(here, Program)
            waiting = here.apps["mail"].run(topic="tides")
            assert waiting.state == "waiting"
            assert "not in the journal yet" in waiting.notices[0]
            shut(postgres, made, False)
            soon(lambda: rows(made, ROW, waiting.query_id) == [("waiting", None)])
    finally:
        shut(postgres, made, False)
    with process(SERVER) as other:
        assert other.answer(waiting.query_id, "no") == TAKEN


def test_an_answer_that_comes_while_it_is_written_down_is_in_its_row(
    process: Process, made: str, postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has waited in memory until then."""
    writing, go, file = threading.Event(), threading.Event(), durable.file

    async def slowly(*given: Any) -> None:
        writing.set()
        await asyncio.to_thread(go.wait, 30)
        await file(*given)

    shut(postgres, made, True)
    try:
        with process(PROGRAM) as here, ThreadPoolExecutor(1) as pool:
            assert isinstance(here, Program)
            mail = here.apps["mail"]
            id = mail.run(topic="tides").query_id
            monkeypatch.setattr(durable, "file", slowly)
            shut(postgres, made, False)
            assert writing.wait(30)
            going = pool.submit(mail.resume, id, "yes")
            try:
                with pytest.raises(TimeoutError):
                    going.result(0.3)
            finally:
                go.set()
            assert going.result(30).notices == ()
            (ask,) = rows(made, "SELECT id FROM teola_journal.asks WHERE answer IS NULL")
            assert ask == ("second.ask",)
    finally:
        shut(postgres, made, False)


def test_a_tenants_queries_are_answered_for_that_tenant_only(process: Process) -> None:
    with process(PROGRAM) as here:
        assert isinstance(here, Program)
        mail = here.apps["mail"]
        id = mail.run(topic="tides", tenant="red").query_id
        with pytest.raises(UnknownName):
            mail.resume(id, "yes")
        with pytest.raises(UnknownName):
            mail.cancel(id)
        assert mail.waiting() == []
        assert mail.resume(id, "yes", tenant="red").state == "waiting"


def test_what_goes_on_later_replaces_nothing_newer(process: Process, tmp_path: Path) -> None:
    """Its documents count as asked for when it was, wherever it goes on."""
    file = tmp_path / "notes.txt"
    file.write_text("Mara keeps the lamp.")
    with process(PROGRAM) as one:
        assert isinstance(one, Program)
        asked = {"topic": "lamp", "documents": str(file), "collection": "c"}
        id = one.apps["read"].run(asked).query_id
    file.write_text("Jon keeps the lamp.")
    with process(PROGRAM) as other:
        assert isinstance(other, Program)
        done = collections.index(file, collection="c", runtime=other.apps["read"].home)
        assert done["replaced"] == ["notes.txt"]
        assert other.answer(id, "yes", app="read") == TAKEN
        assert other.end(id) == Ended("ok", "yes: Jon keeps the lamp.", "")


def test_a_query_inside_one_that_waits_holds_no_version(process: Process) -> None:
    with process(PROGRAM) as here:
        assert isinstance(here, Program)
        read = here.apps["read"]

        @component(outputs="answer")
        def around(topic: str) -> str:
            found = read.run(topic=topic, documents={"name": "a", "text": "Mara keeps the lamp."})
            return str(found.answer)

        outer = App("outer", around, inputs={"topic": "text"}, outputs={"answer": "answer"})
        outer.runtime = read.home
        id = outer.run(topic="lamp").query_id
        assert not read.home.host("vectorstore").engine._started.pins._pins  # type: ignore[attr-defined]
        assert outer.resume(id, "yes").answer == "yes: Mara keeps the lamp."


def test_who_waits_for_another_process_goes_on_when_that_dies(
    process: Process, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "LOOK_S", 0.1)
    with process(PROGRAM) as one:
        id = one.ask("mail", "tides")
    crashed(dsn, id)
    with psycopg.connect(dsn, autocommit=True) as alive, process(PROGRAM) as other:
        alive.execute("SELECT pg_advisory_lock(4711)")
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(other.go_on, id)
            with pytest.raises(TimeoutError):
                going.result(0.5)
            alive.close()
            going.result(30)
        assert [one["ask"] for one in other.asks(id)] == ["second.ask"]
    assert LOG == ["draft tides"]
