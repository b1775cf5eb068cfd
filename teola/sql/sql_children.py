"""A few processes that read files of databases, for all of this process.

    ask ─▶ a child that is idle, or a new one that has started ─▶ its answer
                     │ no answer in time, or it has died
                     ▼
           killed; that is the statement's error, and the next one gets another child

A child is used again by whoever asks next, whatever file it asks. At most `MOST` run at a time;
further statements wait for one.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import Any, Final

from teola.confinement import environment
from teola.errors import QueryCancelled, ToolError
from teola.sql import sql_child
from teola.sql.sql_child import GRACE_S, HEADER_BYTES, request_of
from teola.sql.sql_rows import LookupLimits, Rows
from teola.sql.sql_schema import Schema
from teola.sql.stopped import LOOK_S, StatementStopped, Wanted

MOST: Final = 8
"""Children at a time."""
KILL_S: Final = 0.3
"""Seconds after a child should have ended by itself, when it is killed."""
START_S: Final = 20.0
"""Seconds that a new child gets for its imports, on a busy machine."""


class _Child:
    """A process that runs statements on files. memory_bytes: its limit."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self.fresh = True
        self.peak_bytes = 0
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-P", sql_child.__file__, str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
        )

    def alive(self) -> bool:
        return self._process.poll() is None

    def ready(self, wanted: Wanted | None) -> bool:
        """Wait until it has started; whether it has. Raises QueryCancelled."""
        if self.fresh:
            self.fresh = self._message(START_S, wanted) is None
        return not self.fresh

    def ask(self, message: bytes, seconds: float, wanted: Wanted | None) -> bytes | None:
        """The child's answer; None: it has died, or had to be killed. Raises QueryCancelled."""
        assert self._process.stdin is not None
        try:
            view = memoryview(message)
            while view:
                view = view[self._process.stdin.write(view) or 0 :]
        except OSError:
            return None
        return self._message(seconds + GRACE_S + KILL_S, wanted)

    def _message(self, seconds: float, wanted: Wanted | None) -> bytes | None:
        """What it says within so many seconds; None: nothing, and it has ended."""
        assert self._process.stdout is not None
        out, until = self._process.stdout.fileno(), monotonic() + seconds
        received, length = bytearray(), HEADER_BYTES
        while len(received) < length:
            if not select.select([out], [], [], LOOK_S)[0]:
                self._look()
                if wanted is not None and not wanted():
                    self.end()
                    raise QueryCancelled("nobody waits for this statement any more")
                if monotonic() > until:
                    self.end()
                    return None
                continue
            piece = os.read(out, 1 << 20)
            if not piece:
                return None
            received += piece
            if length == HEADER_BYTES and len(received) >= HEADER_BYTES:
                length += int.from_bytes(received[:HEADER_BYTES])
        return bytes(memoryview(received)[HEADER_BYTES:])

    def _look(self) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{self._process.pid}/status").read_text()
            peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
            self.peak_bytes = max(self.peak_bytes, peak)

    def end(self) -> int:
        """Kill it and return how it ended, as Popen tells it. It may be repeated."""
        self._process.kill()
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return status


class SqlChildren:
    """See the module. Thread-safe."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.forget()

    def forget(self) -> None:
        """Begin anew without children: a process that was forked must not use its parent's."""
        self._free = threading.BoundedSemaphore(self._most)
        self._idle: list[_Child] = []
        self._lock = threading.Lock()

    def read(
        self,
        dialect: str,
        path: str,
        sql: str,
        limits: LookupLimits,
        schema: Schema | None = None,
        wanted: Wanted | None = None,
    ) -> Rows:
        """Rows of one statement on a file. wanted: asked now and then whether anybody still waits.
        Raises ToolError, StatementStopped, and QueryCancelled where nobody does."""
        answer = self.ask(
            "read", limits, mentioned(schema, sql), wanted, dialect=dialect, path=path, sql=sql
        )
        names = ("columns", "rows", "notes", "truncated", "peak_bytes")
        return Rows(limits, **{name: answer[name] for name in names})

    def ask(
        self,
        work: str,
        limits: LookupLimits,
        schema: Schema | None = None,
        wanted: Wanted | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """The answer to any of `file_requests`. Raises as `read` does."""
        message = request_of(work, limits, schema, **more)
        while not self._free.acquire(timeout=LOOK_S):
            if wanted is not None and not wanted():
                raise QueryCancelled("nobody waits for this statement any more")
        try:
            return self._asked(message, limits, wanted)
        finally:
            self._free.release()

    def close(self) -> None:
        """End the children that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def _asked(self, message: bytes, limits: LookupLimits, wanted: Wanted | None) -> dict[str, Any]:
        child, text = self._child(limits.memory_bytes), None
        begun = monotonic()
        try:
            if child.ready(wanted):
                begun = monotonic()  # a start, which may take long, is no statement's time
                text = child.ask(message, limits.seconds, wanted)
        except BaseException:
            child.end()
            raise
        seconds = monotonic() - begun
        if text is None:
            raise _death(child, limits, seconds)
        answer: dict[str, Any] = json.loads(text)
        del text
        if answer.get("limit") == "memory":
            child.end()
        else:
            with self._lock:
                self._idle.append(child)
        if limit := answer.get("limit"):
            raise StatementStopped(answer["error"], limit, seconds, answer["peak_bytes"])
        if "error" in answer:
            raise ToolError(answer["error"])
        return answer

    def _child(self, memory_bytes: int) -> _Child:
        with self._lock:
            dead = [child for child in self._idle if not child.alive()]
            same = [c for c in self._idle if c not in dead and c.memory_bytes == memory_bytes]
            chosen = same[-1] if same else None
            # Those with another limit go, so that there are never more than may run.
            others = [] if same else [c for c in self._idle if c not in dead]
            self._idle = [c for c in self._idle if c not in dead and c is not chosen]
            if others:
                self._idle.remove(others[0])
        for child in [*dead, *others[:1]]:
            child.end()
        return chosen or _Child(memory_bytes)


def mentioned(schema: Schema | None, sql: str) -> Schema | None:
    """The part of a schema that a statement can name: the rest need not travel. A name with a
    double quote in it may be written in another way, so it always goes along."""
    if schema is None or len(schema.tables) <= 1:
        return schema
    text = sql.lower()
    tables = {
        name: None
        for name in schema.tables
        if '"' in name or name.rpartition(".")[2].lower() in text
    }
    private = frozenset(p for p in schema.private if p.rpartition(".")[0] in tables)
    return Schema(tables, private)


def _death(child: _Child, limits: LookupLimits, seconds: float) -> StatementStopped:
    """The error for a child that gave no answer."""
    status = child.end()
    if seconds >= limits.seconds or status == -signal.SIGALRM:
        return StatementStopped(limits.late, "time", seconds, child.peak_bytes)
    return StatementStopped(
        f"its process ended without an answer, most likely for want of memory "
        f"({limits.memory_bytes // 2**20:,} MiB): ask for less",
        "memory",
        seconds,
        child.peak_bytes,
    )


children: Final = SqlChildren()
"""The children of this process."""
atexit.register(children.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=children.forget)
