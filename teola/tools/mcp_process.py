"""The process of a server of tools: its three pipes, and its end with all that it started.

It is the leader of a session of its own, so that its group can be ended with it. A child that left
the group is found by a mark: a variable in the environment that the process got, which its
children inherit. On systems without /proc only the group is ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Final

from teola.threads import Threads

MARK: Final = "TEOLA_MCP_MARK"
"""The variable that marks what belongs to one process of ours."""
TAIL_BYTES: Final = 2_000
"""Bytes that are kept of the end of what a process writes to standard error."""
PIECE_BYTES: Final = 64 * 1024
"""Bytes that are read at once; twice as many wait at most."""
EXIT_S: Final = 2.0
"""How long a process may take to end, once its standard input is closed."""
TERMINATE_S: Final = 2.0
"""How long it and its children may take to end when they are told to."""
KILL_S: Final = 5.0
"""How long children are looked for and killed."""
_POLL_S: Final = 0.02
_PROC: Final = Path("/proc")

log = logging.getLogger(__name__)


class ServerProcess:
    """A process that runs.

    stdin, stdout: its standard streams, from our side.
    tail: the end of what it writes to standard error.
    """

    def __init__(
        self,
        process: Process,
        mark: str,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        tail: Tail,
        threads: Threads,
    ) -> None:
        self.stdin, self.stdout, self.tail = stdin, stdout, tail
        self._process, self._mark, self._threads = process, mark, threads

    async def end(self, at_once: bool = False) -> None:
        """End the process and what it started. at_once: without asking it first."""
        self.stdin.close()
        if not at_once:
            await self._ends_within(EXIT_S)
            # nothing is left as a rule, then this is one look
            over = asyncio.get_running_loop().time() + TERMINATE_S
            signalled = await self._signal(signal.SIGTERM)
            while signalled and asyncio.get_running_loop().time() < over:
                await asyncio.sleep(_POLL_S)
                signalled = await self._signal(0)
        await self._kill()
        if not await self._ends_within(KILL_S):
            log.warning("process %d of a tool server does not end", self._process.pid)

    async def _kill(self) -> None:
        """Until two looks in a row find nothing: what is found may just be starting a child."""
        over, clean = asyncio.get_running_loop().time() + KILL_S, 0
        while clean < 2 and asyncio.get_running_loop().time() < over:
            if await self._signal(signal.SIGKILL):
                clean = 0
                await asyncio.sleep(_POLL_S)
            else:
                clean += 1

    async def _ends_within(self, seconds: float) -> bool:
        # `asyncio.timeout` of Python 3.11.2 raises CancelledError where a task cleans up that
        # was cancelled, and the process would be left
        ending = asyncio.ensure_future(self._process.wait())
        await asyncio.wait({ending}, timeout=seconds)
        if not ending.done():
            ending.cancel()
            await asyncio.wait({ending})
        return self._process.returncode is not None

    async def _signal(self, number: int) -> int:
        """How many processes of the server got a signal."""
        reaped = self._process.returncode is not None
        work = partial(signal_marked, self._mark, self._process.pid, number, reaped)
        count: int = await self._threads.run(work)
        return count


class Tail(asyncio.Protocol):
    """The end of what is written."""

    def __init__(self) -> None:
        self._last = b""

    def data_received(self, data: bytes) -> None:
        self._last = (self._last + data)[-TAIL_BYTES:]

    @property
    def text(self) -> str:
        """What was written last."""
        return self._last.decode(errors="replace").strip()


@asynccontextmanager
async def started(
    command: Sequence[str], env: Mapping[str, str], cwd: str | None, threads: Threads
) -> AsyncIterator[ServerProcess]:
    """A process and its pipes. Whoever starts it ends it. Raises OSError, ValueError.

    The pipes are ours and not asyncio's: those can be closed only when every process that
    inherited them has ended.
    """
    mark, loop = secrets.token_hex(16), asyncio.get_running_loop()
    with ExitStack() as ours, ExitStack() as theirs:
        written, sink = _pipe(theirs, ours)
        source, printed = _pipe(ours, theirs)
        errors, complained = _pipe(ours, theirs)
        to_process, flow = await loop.connect_write_pipe(_Flow, sink)
        ours.callback(lambda: None if flow.closed else to_process.abort())
        stdout = asyncio.StreamReader(limit=PIECE_BYTES)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdout), source
        )
        ours.callback(transport.close)
        transport, tail = await loop.connect_read_pipe(Tail, errors)
        ours.callback(transport.close)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=written,
            stdout=printed,
            stderr=complained,
            env={**env, MARK: mark},
            cwd=cwd,
            start_new_session=True,
        )
        theirs.close()  # else its streams would not end with it
        stdin = asyncio.StreamWriter(to_process, flow, None, loop)
        yield ServerProcess(process, mark, stdin, stdout, tail, threads)


def _pipe(read_by: ExitStack, written_by: ExitStack) -> tuple[FileIO, FileIO]:
    """Both ends of a pipe, each closed with its stack."""
    reading, writing = os.pipe()
    source = read_by.enter_context(FileIO(reading, "rb"))
    return source, written_by.enter_context(FileIO(writing, "wb"))


class _Flow(asyncio.StreamReaderProtocol):
    """The flow control of a pipe that is written to."""

    def __init__(self) -> None:
        super().__init__(asyncio.StreamReader())
        self.closed = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        super().connection_lost(exc)


# --- what belongs to it; this blocks, so it runs in a thread -----------------------------------


def signal_marked(mark: str, group: int, number: int, reaped: bool) -> int:
    """Send a signal to what has the mark or is in the group, and count these processes.

    reaped: the leader of the group has ended and was waited for. The system may then give its
    number to a stranger, but not before the group is empty.
    """
    if not (_PROC / "self/environ").exists():
        return _signal_group(group, number)
    variable = f"{MARK}={mark}".encode()
    members = None if reaped and (_PROC / str(group)).exists() else group
    return sum(_signal_one(pid, variable, members, number) for pid in _pids())


def _pids() -> Iterator[int]:
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            yield int(entry.name)


def _signal_one(pid: int, variable: bytes, group: int | None, number: int) -> bool:
    if not _belongs(pid, variable, group):
        return False
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # looked at once more: the number may have gone to another process before it was opened
        if not _belongs(pid, variable, group):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:  # it has ended, or runs as somebody else
        return False
    finally:
        os.close(handle)
    return True


def _belongs(pid: int, variable: bytes, group: int | None) -> bool:
    """Whether a process that lives is marked, or in the group."""
    try:
        # the name of the program, in brackets, may hold anything; state, parent and group follow
        fields = (_PROC / f"{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):
            return False
        if group is not None and int(fields[2]) == group:
            return True
        return variable in (_PROC / f"{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return False


def _signal_group(group: int, number: int) -> int:
    try:
        os.killpg(group, number)
    except OSError:
        return 0
    return 1
