"""What a journal knows without its database: who waits for news, and what can be read of a row."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teola.query.journal import journal as module
from teola.query.journal.journal import GRACE_S, Given, Journal, piece_place
from teola.query.journal.lost import JournalUnreadable
from teola.query.journal.query_rows import Kept, Taken
from teola.query.journal.sealing import MARK, Seal, request_place

KEY, OTHER = "a key that nobody guesses", "another key that is as long"


def journal(key: str | None = None, *, required: bool = False) -> Journal:
    made = Journal(Given(""), 1.0, Seal(key))
    made.seal.required = required
    return made


# --- news -------------------------------------------------------------------------------------


def test_who_waits_for_a_query_hears_of_it_and_of_what_concerns_everybody() -> None:
    made = journal()
    with made.hearing("a") as first, made.hearing("a") as second, made.hearing("b") as other:
        made.wake("c")
        assert not any(event.is_set() for event in (first, second, other))
        made.wake("a")
        assert [event.is_set() for event in (first, second, other)] == [True, True, False]
        first.clear()
        second.clear()
        made.wake()
        assert all(event.is_set() for event in (first, second, other))


def test_who_has_left_hears_nothing_and_takes_nobody_along() -> None:
    made = journal()
    with made.hearing("a") as stays:
        with pytest.raises(KeyError), made.hearing("a") as leaves:
            raise KeyError("it breaks off")
        made.wake("a")
        assert (stays.is_set(), leaves.is_set()) == (True, False)
    stays.clear()
    made.wake("a")
    made.wake()
    assert not stays.is_set()
    assert made._waiting == {}, "nothing is kept of queries that nobody waits for"


def test_what_cannot_be_read_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    made = journal()
    with caplog.at_level(logging.INFO, "teola"):
        for id in ("a", "b", "a"):
            made.lay_aside(id, JournalUnreadable(f"{id} cannot be opened"))
    assert made.unreadable == {"a", "b"}
    assert [record.getMessage() for record in caplog.records] == [
        f"query {id} is left as it is: {id} cannot be opened" for id in "ab"
    ]
    record: Any = caplog.records[0]
    assert (record.levelname, record.event) == ("ERROR", "journal_unreadable")
    assert record.fields == {"query_id": "a", "error": "a cannot be opened"}


# --- rows -------------------------------------------------------------------------------------


def kept(key: str | None, **more: Any) -> Kept:
    """A row that has ended, as a server with this key has left it."""
    row = Kept("q", "alice", "mail", "ok", 1.0, 1, 0.5, None, None, None)
    own = Seal(key).of("alice", "q")
    for name in ("result", "problem"):
        if name in more:
            more[name] = own.close(name, more[name])
    return replace(row, seal=own.close("query", "") if key else None, **more)


def test_a_row_is_marked_where_there_is_a_key_so_that_only_its_own_opens() -> None:
    made = journal(KEY)
    mark = made.mark("alice", "q")
    assert mark is not None
    assert mark.startswith(MARK)
    assert Seal(KEY).of("alice", "q").open("query", mark) == ""
    for other in (
        Seal(OTHER).of("alice", "q"),
        Seal(KEY).of("bob", "q"),
        Seal(KEY).of("alice", "r"),
    ):
        with pytest.raises(JournalUnreadable):
            other.open("query", mark)
    assert journal().mark("alice", "q") is None


@pytest.mark.parametrize(
    ("key", "required", "written_with", "readable"),
    [
        (None, False, None, True),
        (None, True, None, False),
        (None, False, KEY, False),
        (KEY, False, None, True),
        (KEY, True, None, False),
        (KEY, False, KEY, True),
        (KEY, True, KEY, True),
        (KEY, False, OTHER, False),
        (KEY, True, OTHER, False),
    ],
)
async def test_a_row_can_be_read_with_the_key_that_sealed_it(
    key: str | None, required: bool, written_with: str | None, readable: bool
) -> None:
    made = journal(key, required=required)
    row = kept(written_with, result='{"a": 1}', problem="{}")
    assert made._readable(row) is readable
    read = await made._in_plain(row)
    if readable:
        assert (read.result, read.problem, read.unreadable) == ('{"a": 1}', "{}", False)
    else:
        assert (read.result, read.problem, read.unreadable) == (None, None, True)
    assert (read.id, read.state, read.latency_s, read.seal) == ("q", "ok", 0.5, row.seal)


@pytest.mark.parametrize(
    ("state", "readable"), [("running", False), ("waiting", False), ("ok", True)]
)
def test_a_query_that_could_not_go_on_here_is_unreadable_until_it_has_ended(
    state: str, readable: bool
) -> None:
    made = journal(KEY)
    row = replace(kept(KEY), state=state)
    assert made._readable(row)
    made.unreadable.add("q")
    assert made._readable(row) is readable
    assert made._readable(replace(row, id="r", seal=made.mark("alice", "r")))


@pytest.mark.parametrize("name", ["result", "problem"])
async def test_of_a_row_with_one_value_that_was_changed_nothing_is_told(name: str) -> None:
    made = journal(KEY)
    row = kept(KEY, result="{}", problem="{}")
    changed = await made._in_plain(replace(row, **{name: row.seal}))
    assert (changed.unreadable, changed.result, changed.problem) == (True, None, None)
    alone = await made._in_plain(replace(row, **{name: None}))
    assert not alone.unreadable
    assert {alone.result, alone.problem} == {"{}", None}
    assert getattr(alone, name) is None


@pytest.mark.parametrize("code", ["", "one"])
async def test_a_request_opens_for_its_application_and_version(code: str) -> None:
    made, asks = journal(KEY), json.dumps({"inputs": {}})
    own = made.seal.of("alice", "q")
    sealed = own.close(request_place("mail", code), asks)
    row = Taken("q", "alice", "mail", sealed, 1.0, 5.0, 1, 0, False, "running", code)
    assert await made.request(row) == asks
    assert await made.request(replace(row, request=None)) == ""
    for other in ({"app": "read"}, {"code": "two"}, {"tenant": "bob"}, {"id": "r"}):
        with pytest.raises(JournalUnreadable):
            await made.request(replace(row, **other))  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [None, KEY])
def test_pieces_of_a_document_are_put_behind_each_other_where_it_is_still_wanted(
    key: str | None, tmp_path: Path
) -> None:
    """Each opens in its own place; a file that is gone is not made again."""
    path, own = tmp_path / "one", Seal(key).of("alice", "q")
    pieces = [b"first ", b"", b"second"]
    sealed = [own.close_piece(piece_place(3, k), body) for k, body in enumerate(pieces)]
    with pytest.raises(FileNotFoundError):
        module._append(path, own, piece_place(3, 0), sealed[0])
    path.touch()
    for k, body in enumerate(sealed):
        module._append(path, own, piece_place(3, k), body)
    assert path.read_bytes() == b"first second"
    assert [piece_place(0, 1), piece_place(12, 3)] == ["files/0/1", "files/12/3"]
    if key is not None:
        with pytest.raises(JournalUnreadable):
            module._append(path, own, piece_place(3, 1), sealed[0])
        assert path.read_bytes() == b"first second"


async def test_a_server_is_taken_over_from_that_was_silent_for_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    made = journal()
    assert made._long_gone() == []
    made._gone = {1: now - GRACE_S, 2: now - GRACE_S + 0.01, 3: now - 9.0, 4: now}
    assert made._long_gone() == [1, 3]
