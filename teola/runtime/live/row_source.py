"""Where the rows of a run come from and where their answers go: each in a thread of its own.

    caller's iterator ──thread──▶ rows that wait (bounded) ──loop──▶ windows
    caller's function ◀──thread── answers that wait        ◀──loop── rows that ended

The iterator may block, and so may the function: rows are read as far as there is room for them, and
no window is taken while too many answers wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from teola.errors import InputError
from teola.runtime.asked_rows import NEAR, WINDOW, window_end
from teola.runtime.rows import OnAnswers, Row, RowAnswer

AHEAD: Final = 2 * WINDOW
"""Rows that are read ahead."""
BEHIND: Final = 4 * WINDOW
"""Answers that may wait before no further window is taken."""
SOON_S: Final = 0.005
"""How long a window waits to be full, where rows come slowly."""
AT_ONCE: Final = 8192
"""Answers that are given at once, at most."""


class RowSource:
    """Reads rows in a thread, until it is closed. ready: called on the loop when `take` is to be
    tried again, after it gave nothing."""

    def __init__(
        self, rows: Iterator[Row], loop: asyncio.AbstractEventLoop, ready: Callable[[], None]
    ) -> None:
        self._rows, self._loop, self._ready = rows, loop, ready
        self._buffer: deque[Row] = deque()
        self._room = threading.Condition()
        self._tell_at = 0
        """Tell when so many rows wait (0: nobody asks)."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._over = self._ended = False
        self.error: Exception | None = None
        """Why the iterator stopped, if that was no end."""
        threading.Thread(target=self._read, name="teola-rows", daemon=True).start()

    # --- its thread -------------------------------------------------------------------------

    def _read(self) -> None:
        buffer = self._buffer
        try:
            for row in self._rows:
                if type(row) is not Row:
                    raise InputError(f"rows must be teola.runtime.rows.Row, not {row!r}"[:200])
                buffer.append(row)
                waiting = len(buffer)
                if 0 < self._tell_at <= waiting:
                    self._tell()
                if waiting >= AHEAD:
                    self._wait_for_room()
                if self._over:
                    break
        except Exception as error:  # noqa: BLE001 - anybody's iterator; its run fails with that
            self.error = error
        finally:
            self._ended = True
            self._tell()
            close = getattr(self._rows, "close", None)
            if close is not None:
                close()

    def _wait_for_room(self) -> None:
        with self._room:
            while len(self._buffer) >= AHEAD and not self._over:
                self._room.wait()

    def _tell(self) -> None:
        self._tell_at = 0
        if not (self._over or self._loop.is_closed()):
            self._loop.call_soon_threadsafe(self._told)

    # --- the loop ---------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether all rows have been taken, or there will be no more for another reason."""
        return self._ended and (not self._buffer or self.error is not None)

    def take(self, *, warming: bool = False) -> list[Row]:
        """The next window; empty if all were taken, or it is to be tried again once `ready` is
        called. warming: it has one row."""
        waiting = len(self._buffer)
        whole = waiting >= (1 if warming else WINDOW + NEAR)
        if whole or self._ended or (self._due and waiting):
            self._due = False
            end = window_end(self._buffer, warming=warming)
            rows = [self._buffer.popleft() for _ in range(end)]
            with self._room:
                self._room.notify()
            return rows
        if not waiting:
            self._due = False
            self._ask(1)
        elif self._timer is None:
            self._ask(WINDOW + NEAR)
            self._timer = self._loop.call_later(SOON_S, self._is_due)
        return []

    def put_back(self, rows: list[Row]) -> None:
        """Put rows back that were taken too early: they come first in the next window."""
        self._buffer.extendleft(reversed(rows))

    def _ask(self, rows: int) -> None:
        self._tell_at = rows
        if len(self._buffer) >= rows or self._ended:  # it came meanwhile
            self._loop.call_soon(self._told)

    def _is_due(self) -> None:
        self._timer, self._due = None, True
        self._told()

    def _told(self) -> None:
        if not self._over:
            self._ready()

    def close(self) -> None:
        """Nobody wants more rows."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        with self._room:
            self._room.notify()


class AnswerSink:
    """Gives answers to whoever asked, in a thread. drained: called there when few wait again, after
    `full` was asked in vain. broke: called there with what the function raised, once."""

    def __init__(
        self,
        on_answers: OnAnswers,
        drained: Callable[[], None],
        broke: Callable[[Exception], None],
    ) -> None:
        self._on_answers, self._drained, self._broke = on_answers, drained, broke
        self._waiting: SimpleQueue[Sequence[RowAnswer] | Callable[[], None]] = SimpleQueue()
        self._count = 0
        self._given = 0
        self._held = False
        threading.Thread(target=self._give, name="teola-answers", daemon=True).start()

    def put(self, answers: Sequence[RowAnswer]) -> None:
        """More of them."""
        self._count += len(answers)
        self._waiting.put(answers)

    def end(self, then: Callable[[], None]) -> None:
        """There will be no more: call `then` when all are given."""
        self._waiting.put(then)

    def full(self) -> bool:
        """Whether so many wait that no more rows should be asked; then `drained` tells."""
        self._held = True
        full = self._count - self._given >= BEHIND
        self._held = full
        return full

    def _give(self) -> None:
        broken = False
        while True:
            first = self._waiting.get()
            if callable(first):
                first()
                return
            answers, then = list(first), None
            while len(answers) < AT_ONCE:
                try:
                    following = self._waiting.get_nowait()
                except Empty:
                    break
                if callable(following):
                    then = following
                    break
                answers += following
            try:
                if not broken:
                    self._on_answers(answers)
            except Exception as error:  # noqa: BLE001 - the caller's function: its run ends
                broken = True
                self._broke(error)
            self._given += len(answers)
            if self._held and self._count - self._given < BEHIND:
                self._held = False
                self._drained()
            if then is not None:
                then()
                return
