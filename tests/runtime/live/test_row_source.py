"""Rows as they are read and cut into windows, and answers as they are given: each in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Self

import pytest

from teola.errors import InputError
from teola.runtime.asked_rows import NEAR, WINDOW
from teola.runtime.live.row_source import AHEAD, AT_ONCE, BEHIND, AnswerSink, RowSource
from teola.runtime.rows import Row, RowAnswer

S = 20.0
"""Longer than anything here takes."""
WHOLE = WINDOW + NEAR
"""So many rows must wait for a window to be taken at once."""


async def until(there: Callable[[], bool]) -> None:
    """A thread has done what is waited for."""
    async with asyncio.timeout(S):
        while not there():
            await asyncio.sleep(0)


class Given:
    """An iterator whose rows are given by a test. asked: how often it was asked for one."""

    def __init__(self) -> None:
        self.coming = SimpleQueue[Any]()
        self.asked = self.given = 0
        self.closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self.asked += 1
        row = self.coming.get(timeout=S)
        if isinstance(row, BaseException):
            raise row
        return row

    def close(self) -> None:
        self.closed = True


class Bed:
    """A source whose rows a test gives. ready: how often it said that it is worth another try."""

    def __init__(self) -> None:
        self.rows, self.ready = Given(), 0
        self.source = RowSource(self.rows, asyncio.get_running_loop(), self.is_ready)

    def is_ready(self) -> None:
        self.ready += 1

    async def give(self, count: int) -> None:
        """So many rows come, and are read."""
        rows = self.rows
        for _ in range(count):
            rows.coming.put(Row(rows.given, "x"))
            rows.given += 1
        await until(lambda: rows.asked == rows.given + 1)
        await asyncio.sleep(0)

    async def end(self, error: BaseException) -> None:
        """They end, or break off."""
        self.rows.coming.put(error)
        await until(lambda: self.rows.closed)
        await asyncio.sleep(0)

    def take(self, **more: bool) -> list[int]:
        return [row.id for row in self.source.take(**more)]


def ids(lo: int, hi: int) -> list[int]:
    return list(range(lo, hi))


@pytest.mark.parametrize(
    ("waiting", "window"),
    [(1, 1), (NEAR, NEAR), (WINDOW, WINDOW), (WINDOW + 1, WINDOW), (WHOLE - 1, WINDOW)],
)
async def test_a_window_that_is_not_whole_is_taken_a_little_later(
    waiting: int, window: int
) -> None:
    bed = Bed()
    await bed.give(waiting)
    assert (bed.take(), bed.take(), bed.ready) == ([], [], 0)
    await until(lambda: bed.ready == 1)
    assert bed.take() == ids(0, window)
    assert bed.take() == [], "what is left waits anew, also if there is something"
    assert not bed.source.ended
    await bed.end(StopIteration())


async def test_a_whole_window_is_taken_at_once_and_a_row_that_warms_alone() -> None:
    bed = Bed()
    await bed.give(WHOLE + 1)
    assert bed.take(warming=True) == [0]
    assert bed.take() == ids(1, WINDOW + 1)
    assert bed.take() == []
    await bed.end(StopIteration())
    assert not bed.source.ended
    assert bed.take() == ids(WINDOW + 1, WHOLE + 1)
    assert bed.source.ended
    assert bed.take() == []


async def test_who_found_nothing_is_told_once_when_something_is_there() -> None:
    bed = Bed()
    assert bed.take() == bed.take(warming=True) == []
    await bed.give(1)
    assert bed.ready == 1
    await bed.give(2)
    assert bed.ready == 1, "nobody has looked since"
    assert bed.take(warming=True) == [0]
    assert bed.take() == []
    await bed.give(WHOLE - 3)
    assert bed.ready <= 2, "at most by the clock"
    before = bed.ready
    await bed.give(1)
    if before == 1:
        assert bed.ready == 2, "it is whole"
    assert bed.take() == ids(1, WINDOW + 1)
    await bed.end(StopIteration())


async def test_the_end_is_told_to_who_looked_and_what_came_is_taken_before_it() -> None:
    bed = Bed()
    assert bed.take() == []
    await bed.end(StopIteration())
    assert (bed.ready, bed.take(), bed.source.ended, bed.source.error) == (1, [], True, None)


async def test_of_rows_that_break_off_those_before_it_need_not_be_taken() -> None:
    bed, error = Bed(), OSError("the disk is gone")
    await bed.give(3)
    await bed.end(error)
    assert (bed.source.error, bed.source.ended) == (error, True)


@pytest.mark.parametrize("row", ["x" * 300, None, ("id", "text")])
async def test_what_is_no_row_is_refused_in_a_short_sentence(row: Any) -> None:
    bed = Bed()
    bed.rows.coming.put(row)
    await until(lambda: bed.rows.closed)
    error = bed.source.error
    assert type(error) is InputError
    assert str(error) == f"rows must be teola.runtime.rows.Row, not {row!r}"[:200]


async def test_rows_that_are_put_back_come_first_and_in_their_order() -> None:
    bed = Bed()
    await bed.give(WHOLE)
    window = bed.source.take()
    bed.source.put_back(window[5:])
    bed.source.put_back([])
    await bed.end(StopIteration())
    assert bed.take() == ids(5, WINDOW + 5)
    assert bed.take() == ids(WINDOW + 5, WHOLE)
    window = [Row(7, ""), Row(8, "")]
    bed.source.put_back(window)
    assert not bed.source.ended
    assert bed.take() == [7, 8]


async def test_so_many_rows_are_read_ahead_and_no_more() -> None:
    bed = Bed()
    rows = bed.rows
    for k in range(AHEAD + WINDOW + 9):
        rows.coming.put(Row(k, ""))
    taken = 0
    for _ in range(2):
        await until(lambda: len(bed.source._buffer) == AHEAD)
        assert rows.asked == taken + AHEAD, "the next one is not asked for"
        taken += len(bed.take())
        assert taken <= 2 * WINDOW
        if taken == 2 * WINDOW:
            break
    await until(lambda: rows.coming.empty())
    bed.source.close()
    await bed.end(StopIteration())


async def test_who_wants_no_more_rows_is_told_nothing_and_their_iterator_is_closed() -> None:
    """Whether it waits for a row, or for room."""
    bed = Bed()
    assert bed.take() == []
    bed.source.close()
    bed.rows.coming.put(Row(0, ""))
    await until(lambda: bed.rows.closed)
    await asyncio.sleep(0)
    assert (bed.rows.asked, bed.ready) == (1, 0)
    full = Bed()
    for k in range(AHEAD):
        full.rows.coming.put(Row(k, ""))
    await until(lambda: len(full.source._buffer) == AHEAD)
    full.source.close()
    await until(lambda: full.rows.closed)
    assert full.rows.asked == AHEAD


# --- answers ----------------------------------------------------------------------------------


class Heard:
    """Somebody whose first call waits to be let go on. sizes: of what was given."""

    def __init__(self) -> None:
        self.begun, self.goes_on, self.over = (threading.Event() for _ in range(3))
        self.sizes = list[int]()
        self.drained = 0
        self.sink = AnswerSink(self.hear, self.drain, self.broke)

    def hear(self, answers: Sequence[RowAnswer]) -> None:
        self.begun.set()
        self.goes_on.wait(S)
        self.sizes.append(len(answers))

    def drain(self) -> None:
        self.drained += 1

    def broke(self, error: Exception) -> None:
        raise AssertionError("nothing breaks")

    def put(self, count: int) -> None:
        self.sink.put([RowAnswer(0, "", None)] * count)

    def end(self) -> list[int]:
        """All that was given, call by call."""
        self.goes_on.set()
        self.sink.end(self.over.set)
        assert self.over.wait(S)
        return self.sizes


@pytest.mark.parametrize(
    ("waiting", "given"),
    [
        ([], []),
        ([1, 2, 3], [6]),
        ([AT_ONCE - 1, 1, 1], [AT_ONCE, 1]),
        ([AT_ONCE - 1, 9, 1], [AT_ONCE + 8, 1]),
        ([AT_ONCE, 1], [AT_ONCE, 1]),
        ([3000, 3000, 3000, 3000], [9000, 3000]),
    ],
)
def test_answers_that_wait_are_given_together_as_far_as_they_go(
    waiting: list[int], given: list[int]
) -> None:
    heard = Heard()
    heard.put(1)
    assert heard.begun.wait(S)
    for count in waiting:
        heard.put(count)
    assert heard.end() == [1, *given]
    assert heard.drained == 0


@pytest.mark.parametrize(
    ("count", "looks", "full", "drained"),
    [(BEHIND - 1, 1, False, 0), (BEHIND, 1, True, 1), (BEHIND, 3, True, 1), (BEHIND, 0, True, 0)],
)
def test_who_found_too_many_waiting_is_told_once_when_there_are_few(
    count: int, looks: int, full: bool, drained: int
) -> None:
    heard = Heard()
    heard.put(1)
    assert heard.begun.wait(S)
    heard.put(count - 1)
    assert [heard.sink.full() for _ in range(looks)] == [full] * looks
    assert sum(heard.end()) == count
    assert heard.drained == drained
    assert not heard.sink.full()
