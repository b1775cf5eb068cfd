"""How long a database may be silent, in a time that goes on when a test says so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from teola.query.journal.patience import Patience


class Line:
    """A connection, as far as it is broken: its socket, and the other end of it."""

    def __init__(self) -> None:
        self.here, self.there = socket.socketpair()
        self.there.setblocking(False)
        self.closed = False

    def fileno(self) -> int:
        return self.here.fileno()

    @property
    def broken(self) -> bool:
        """Whether the other end has heard that nothing will come any more."""
        try:
            return self.there.recv(1) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.closed = True
        self.here.close()
        self.there.close()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)

    async def goes(self, by_s: float) -> None:
        self.now += by_s
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_a_connection_is_broken_that_takes_too_long_and_who_waits_is_told_why(
    line: Any, clock: Clock
) -> None:
    reset = OSError("it is gone")

    async def work() -> None:
        with Patience(2.5).watching(line):
            await clock.goes(2.25)
            assert not line.broken
            await clock.goes(0.25)
            assert line.broken
            raise reset

    with pytest.raises(TimeoutError, match=r"^PostgreSQL took more than 2.5 s$") as raised:
        await work()
    assert raised.value.__cause__ is reset
    assert line.here.fileno() >= 0, "closing it is its owner's"


async def test_each_part_may_take_as_long_again(line: Any, clock: Clock) -> None:
    with Patience(2.0).watching(line) as patience:
        for _ in range(3):
            await clock.goes(1.5)
            patience.renew()
        await clock.goes(1.5)
        assert not line.broken
        await clock.goes(0.5)
        assert line.broken


async def test_what_is_over_is_not_watched_any_more(line: Any, clock: Clock) -> None:
    """Neither by the clock nor for who wants to leave; what goes wrong later is its own."""
    patience = Patience(2.0)
    patience.renew()  # there is nothing to watch
    patience.leave()
    await clock.goes(3.0)
    for _ in range(2):
        with patience.watching(line):
            await clock.goes(1.5)
    patience.renew()
    patience.leave()
    await clock.goes(9.0)
    assert not line.broken
    with pytest.raises(ZeroDivisionError), patience.watching(line):
        raise ZeroDivisionError


async def test_who_leaves_breaks_it_at_once(line: Any, clock: Clock) -> None:
    def work() -> None:
        with Patience(2.0).watching(line) as patience:
            patience.leave()
            assert line.broken
            raise OSError("it is gone")

    with pytest.raises(TimeoutError):
        work()


@pytest.mark.parametrize("error", [None, asyncio.CancelledError(), KeyboardInterrupt()])
async def test_what_came_to_its_end_or_was_cancelled_is_so_also_when_it_was_too_late(
    error: BaseException | None, line: Any, clock: Clock
) -> None:
    caught: BaseException | None = None
    try:
        with Patience(2.0).watching(line):
            await clock.goes(2.0)
            if error is not None:
                raise error
    except (asyncio.CancelledError, KeyboardInterrupt) as raised:
        caught = raised
    assert caught is error
    assert line.broken


async def test_a_connection_that_is_closed_already_is_let_be(line: Any, clock: Clock) -> None:
    with Patience(2.0).watching(line):
        line.close()
        await clock.goes(2.0)
    other = Line()
    other.there.close()
    with Patience(2.0).watching(other):  # type: ignore[arg-type]
        await clock.goes(2.0)
    other.close()
