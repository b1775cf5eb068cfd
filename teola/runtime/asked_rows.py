"""AskedRows: a run of rows as both drivers know it: the rows of its open windows, and counts.

Nothing of a row enters a Store. A driver keeps a window's rows while it is open, gives them to the
instances as they are dispatched, and what comes back to whoever asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

from teola.engine import Usage
from teola.runtime.observe.trace import Trace
from teola.schedule.events import Cause, Finish, State
from teola.schedule.row_run import RowRun

WINDOW: Final = 2048
"""Rows of a window, about."""
NEAR: Final = WINDOW // 8
"""A window may be so much shorter or longer, to end where the first ordered column changes."""


class Opens(Protocol):
    """A row, as far as windows are cut by it; see teola.runtime.rows.Row."""

    @property
    def opens(self) -> bool: ...


def window_end(rows: Sequence[Opens], *, warming: bool = False) -> int:
    """How many of the rows that wait make the next window: it ends where one opens, if one does
    near its end. warming: one row, see RowRun."""
    waiting = len(rows)
    if warming:
        return min(waiting, 1)
    if waiting <= WINDOW:
        return waiting
    for k in range(NEAR):
        for at in (WINDOW + k, WINDOW - k):
            if at < waiting and rows[at].opens:
                return at
    return WINDOW


R = TypeVar("R")


class AskedRows(Generic[R]):
    """A run of rows in a driver. R: what a row is to it.

    shared: part of a prompt that is expected to be found, until rows have told. windows: the rows
    of each open window. asked: rows that were sent, each once; failed: that will
    not be answered; answered: that were; tries: that were sent, each as often as that.
    """

    def __init__(self, run: RowRun, trace: Trace, shared: float = 0.0) -> None:
        self.run, self.trace, self.shared = run, trace, shared
        self.windows: dict[int, list[R]] = {}
        self._sent: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self.asked = self.failed = self.answered = self.tries = 0
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0
        self.ended: Finish | None = None

    @property
    def id(self) -> str:
        """Id of its run."""
        return self.run.id

    def found_of(self, tokens: int) -> int:
        """How many of so many tokens of a row's prompt are found in a cache, on average."""
        if self.answered:
            return min(self.cached_tokens // self.answered, tokens - 1)
        return 0 if self.run.warming else min(int(self.shared * tokens), tokens - 1)

    def opened(self, rows: list[R]) -> None:
        """The next window has these rows; to be called before the run is told of it."""
        self.windows[len(self.run.plan)] = rows

    def sent(self, i: int, lo: int, hi: int) -> None:
        """Rows of window `i` go to an instance. They are sent in order, but for those that go
        again, so what lies before one that was sent was sent as well."""
        before = self._sent.get(i, 0)
        if hi > before:
            self.asked += hi - before
            self._sent[i] = hi
        self.tries += hi - lo

    def used(self, usage: Usage) -> None:
        """Count what was read and written for rows that were answered."""
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.completion_tokens += usage.completion_tokens

    def over(self, i: int, answered: int, failed: Sequence[tuple[int, Cause]]) -> list[R]:
        """So many rows of window `i` were answered, and these will not be; what those are. The last
        rows of a window take it with them."""
        self.answered += answered
        self.failed += len(failed)
        rows = self.windows[i]
        lost = [rows[row] for row, _ in failed]
        self._left[i] = rows_left = self._left.get(i, len(rows)) - answered - len(failed)
        if not rows_left:
            del self.windows[i], self._sent[i], self._left[i]
        return lost

    def finished(self, finish: Finish, now: float) -> None:
        """The run has ended."""
        self.ended = finish
        self.windows.clear()
        name, state = self.run.engine, "done" if finish.state is State.OK else finish.state.value
        counts = f"{self.asked} rows, {self.failed} failed, {self.tries} tries"
        self.trace.step(f"{name}: {counts}", self.run.began, now, state)
        usage = Usage(self.prompt_tokens, self.completion_tokens, self.cached_tokens)
        self.trace.used(usage, 0)
        self.trace.finish(finish.state.value, now)
