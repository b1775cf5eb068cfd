"""What a server remembers of queries, and how many it takes, against lists; without a server."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from teola.errors import Overloaded
from teola.query.event_log import MOST_EVENTS
from teola.runtime.observe.demand import Demand
from teola.serve import board as boards
from teola.serve.admission.admission import Admission, Lanes
from teola.serve.board import Board
from teola.serve.problems import Draining
from tests.planted import catches, edited


def entry_of(n: int, tenant: str = "us", *, bytes: int = 0) -> Any:
    job = SimpleNamespace(tenant=tenant)
    return SimpleNamespace(
        id=f"q{n}", job=job, bytes=bytes, created=n, given_back=False,
        events=SimpleNamespace(nbytes=0), question=None, ticket=None, paused=False,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_the_last_queries_are_remembered_within_bounds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "KEPT", 5)
    monkeypatch.setattr(boards, "KEPT_BYTES", 100)
    chance, board, kept = Random(seed), Board(10), list[Any]()
    ended: list[Any] = []
    board.on_end = ended.append
    for n in range(60):
        entry = entry_of(n, chance.choice("ab"), bytes=chance.choice([0, 10, 20, 50, 99, 150]))
        entry.events.nbytes = chance.choice([0, 1])
        size = entry.bytes + entry.events.nbytes
        entry.given_back = chance.random() < 0.2
        board.of_tenant[entry.job.tenant] += 1
        board._ended(entry, SimpleNamespace(trace=None, state="ok"))  # type: ignore[arg-type]
        assert (entry.bytes, board.of_tenant) == (size, {})
        if entry.given_back:
            continue
        kept.append(entry)
        while len(kept) > 5 or (len(kept) > 1 and sum(one.bytes for one in kept) > 100):
            del kept[0]
        assert [*board.past.values()] == kept
        assert board.past_bytes == sum(one.bytes for one in kept)
        assert ended[-1] is entry
        for tenant in "ab":
            mine = [one for one in reversed(kept) if one.job.tenant == tenant]
            assert board.all(tenant) == mine
            for one in kept:
                assert board.find(one.id, tenant) is (one if one in mine else None)


@pytest.mark.parametrize("events", [0, 1, 7, 4_096, 10_000])
def test_of_each_query_as_many_events_are_held_as_was_said(events: int) -> None:
    assert Board(10, events=events).desk.options.events == events
    assert Board(10).desk.options.events == MOST_EVENTS


@catches(
    "paused-and-ended",
    "a query that ends while it waits for people takes a place that it did not have",
    edited(Board._ended, "self._pause(entry, False)", "pass"),
)
@catches(
    "paused-for-ever",
    "a query that was answered brings no work",
    edited(Board._pause, "if entry.paused is waits:", "if entry.paused or not waits:"),
)
@catches(
    "paused-twice",
    "a query that waits again before anybody heard that it goes on gives up two places",
    edited(Board._pause, "if entry.paused is waits:", "if False:"),
)
async def test_who_waits_for_people_has_no_place_in_admission() -> None:
    """Even if it ends while it waits, as one that is cancelled does."""
    board = Board(100)
    planned = Demand(1.0, {"llm": 1.0})
    board.admission = door = Admission(lambda engine: Lanes(1.0), lambda kind: planned, 3.0)
    app = SimpleNamespace(name="app")
    for n in range(4):
        board.check(app, 0, "us")  # type: ignore[arg-type]
        entry = board.running[f"q{n}"] = entry_of(n)
        entry.ticket = door.take("app", 0, "us", 0.0)
        for _ in range(2):
            board._pause(entry, True)
    board.check(app, 0, "us")  # type: ignore[arg-type]
    assert (door.running, board.waiting) == (0, 4)
    for entry in board.running.values():
        for _ in range(2):
            board._pause(entry, False)
    with pytest.raises(Overloaded):
        board.check(app, 0, "us")  # type: ignore[arg-type]
    assert (door.running, board.waiting) == (4, 0)
    for n in range(4):
        entry = board.running[f"q{n}"]
        if n < 2:
            board._pause(entry, True)
        board.of_tenant["us"] += 1
        del board.running[entry.id]
        board._ended(entry, SimpleNamespace(trace=None, state="cancelled"))  # type: ignore[arg-type]
        assert (door.running, board.waiting) == (3 - n, 0)


def test_as_many_run_as_may_and_who_waits_for_people_takes_no_room() -> None:
    board = Board(3, most_of_tenant=2)
    for n, waits in enumerate((None, False, True, True, None)):
        board._check_room("us")
        board.running[f"q{n}"] = entry_of(n)
        if waits is not None:
            board._pause(board.running[f"q{n}"], waits)
    assert board.waiting == 2
    with pytest.raises(Overloaded, match="3 queries are already running"):
        board._check_room("us")
    del board.running["q0"]
    board.of_tenant["us"] = 1
    board._check_room("us")
    board.of_tenant["us"] = 2
    with pytest.raises(Overloaded, match="2 of your queries are already running"):
        board._check_room("us")
    board._check_room("them")
    board.draining = True
    with pytest.raises(Draining):
        board._check_room("them")
