"""Which of vLLM's sequence slots and KV blocks idle sessions may hold.

A session is a sequence in vLLM whose prompt is not complete yet. Idle, it computes nothing, but it
holds a slot (one of `max_num_seqs`) and its KV blocks, and vLLM takes neither away. So their number
is bounded, and the oldest is closed as soon as something that runs could use its room: its blocks
stay in the prefix cache until they are needed, so closing costs little.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from .vllm_process import VLLMProcess


@dataclass(slots=True, eq=False)
class Session:
    """An open session. ids: the tokens that it has computed. salt: whose prefix cache it fills.

    turn: how often it was parked; who held it in an earlier turn has no say in it any more.
    """

    process: VLLMProcess
    id: int
    salt: str
    ids: tuple[int, ...] = ()
    turn: int = 0
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class SessionLease:
    """What a sequence handle holds: its session is closed when it is released. Garbage is released
    too, as a net."""

    __slots__ = ("__weakref__", "session")

    def __init__(self, session: Session) -> None:
        self.session: Session | None = session


class Sessions:
    """The idle sessions of one engine, and what its running calls need. Use from one event loop.

    limit: sessions open at once. idle_s: an idle session is closed after this.
    """

    def __init__(self, limit: int, idle_s: float) -> None:
        self.limit, self._idle_s = limit, idle_s
        self._idle: OrderedDict[int, Session] = OrderedDict()
        self._opening = 0
        self._calls = 0
        self._call_tokens = 0

    @property
    def idle(self) -> int:
        """Sessions that wait to be continued."""
        return len(self._idle)

    @property
    def idle_tokens(self) -> int:
        """Tokens of KV that idle sessions hold and would give up."""
        return sum(len(session.ids) for session in self._idle.values())

    @property
    def available(self) -> bool:
        """Whether one more session may be opened."""
        return len(self._idle) + self._opening < self.limit

    @contextmanager
    def running(
        self, process: VLLMProcess, tokens: int, *, opening: bool = False
    ) -> Iterator[None]:
        """While a call runs that needs `tokens` of KV and a slot; opening: to become a session."""
        self._calls += 1
        self._call_tokens += tokens
        self._opening += opening
        try:
            self._make_room(process)
            yield
        finally:
            self._calls -= 1
            self._call_tokens -= tokens
            self._opening -= opening

    def _make_room(self, process: VLLMProcess) -> None:
        """Close the oldest idle sessions while what runs could use their slots or blocks."""
        slots, tokens = process.limits.max_num_seqs, process.limits.kv_tokens
        while self._idle and (
            self._calls + len(self._idle) > slots
            or self._call_tokens + self.idle_tokens > tokens > 0
        ):
            self.close(next(iter(self._idle.values())))

    def park(self, session: Session) -> SessionLease:
        """Keep a session, whose call has ended, until it is continued or closed."""
        loop = asyncio.get_running_loop()
        self._idle[session.id] = session
        session.turn += 1
        session.timer = loop.call_later(self._idle_s, self.close, session)
        lease = SessionLease(session)
        forgotten = (loop, self._abandon, session, session.turn)
        weakref.finalize(lease, _from_any_thread, *forgotten).atexit = False
        self._make_room(session.process)
        return lease

    def _abandon(self, session: Session, turn: int) -> None:
        """The lease of that turn is gone."""
        if session.turn == turn:
            self.close(session)

    def take(self, lease: object) -> Session | None:
        """The session of a lease, for its only continuation; None: continued or closed already."""
        if not isinstance(lease, SessionLease) or lease.session is None:
            return None
        session, lease.session = lease.session, None
        return session if self._forget(session) else None

    def release(self, lease: object) -> None:
        """Close the session of a lease, if it is still idle."""
        if session := self.take(lease):
            session.process.close(session.id, abort=True)

    def close(self, session: Session) -> None:
        """Close a session, if it is still idle."""
        if self._forget(session):
            session.process.close(session.id, abort=True)

    def close_all(self) -> None:
        """Close all idle sessions."""
        for session in list(self._idle.values()):
            self.close(session)

    def _forget(self, session: Session) -> bool:
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None
        found = self._idle.get(session.id) is session
        if found:
            del self._idle[session.id]
        return found and session.process.dead is None


def _from_any_thread(
    loop: asyncio.AbstractEventLoop,
    abandon: Callable[[Session, int], None],
    session: Session,
    turn: int,
) -> None:
    """A finalizer runs wherever the last reference goes, perhaps after the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(abandon, session, turn)
