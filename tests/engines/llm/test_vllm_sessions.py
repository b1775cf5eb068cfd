"""Which sessions stay open beside the calls that run, and who closes them."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from teola.errors import EngineUnavailable
from teola_engines.llm.vllm_process import VLLMLimits
from teola_engines.llm.vllm_sessions import Session, SessionLease, Sessions

SLOTS, TOKENS = 4, 100
LONG_S = 1e6


class Process:
    """A vLLM that notes which sessions it was told to end."""

    def __init__(self, tokens: int = TOKENS) -> None:
        self.limits = VLLMLimits(1000, SLOTS, 16, tokens)
        self.dead: EngineUnavailable | None = None
        self.closed: list[int] = []

    def close(self, id: int, *, abort: bool) -> None:
        assert abort
        self.closed.append(id)


def parked(sessions: Sessions, process: Any, *sizes: int) -> list[SessionLease]:
    """Idle sessions with so many tokens, whose ids count from 0."""
    opened = [Session(process, id, "salt", tuple(range(size))) for id, size in enumerate(sizes)]
    return [sessions.park(session) for session in opened]


async def test_as_many_sessions_are_open_as_may_be_those_that_are_opened_included() -> None:
    sessions, process = Sessions(3, LONG_S), Process()
    leases = parked(sessions, process, 10)

    def fails() -> None:
        with sessions.running(process, 1, opening=True):  # type: ignore[arg-type]
            assert not sessions.available
            raise OSError("broke")

    with sessions.running(process, 1, opening=True):  # type: ignore[arg-type]
        assert sessions.available
        with pytest.raises(OSError, match="broke"):
            fails()
        assert sessions.available
        with sessions.running(process, 1):  # type: ignore[arg-type]
            assert sessions.available, "not each call becomes a session"
    assert (sessions.idle, sessions.idle_tokens, process.closed) == (1, 10, [])
    del leases


@pytest.mark.parametrize(("calls", "closed"), [(1, []), (2, [0]), (3, [0, 1]), (5, [0, 1, 2])])
async def test_the_oldest_give_way_to_calls_that_need_their_slots(
    calls: int, closed: list[int]
) -> None:
    sessions, process = Sessions(SLOTS, LONG_S), Process()
    leases = parked(sessions, process, 1, 1, 1)
    held = [sessions.running(process, 1) for _ in range(calls)]  # type: ignore[arg-type]
    for each in held:
        each.__enter__()
    assert process.closed == closed
    for each in held:
        each.__exit__(None, None, None)
    with sessions.running(process, 1):  # type: ignore[arg-type]
        assert process.closed == closed, "what has ended needs no slot"
    del leases


@pytest.mark.parametrize(
    ("needed", "tokens", "closed"),
    [(40, TOKENS, []), (41, TOKENS, [0]), (61, TOKENS, [0, 1]), (1000, TOKENS, [0, 1, 2]),
     (1000, 0, [])],
)  # fmt: skip
async def test_the_oldest_give_way_to_calls_that_need_their_tokens(
    needed: int, tokens: int, closed: list[int]
) -> None:
    """Not where it is not known how many there are."""
    sessions, process = Sessions(SLOTS, LONG_S), Process(tokens)
    leases = parked(sessions, process, 20, 30, 10)
    with sessions.running(process, needed):  # type: ignore[arg-type]
        assert process.closed == closed
    with sessions.running(process, 40):  # type: ignore[arg-type]
        assert process.closed == closed
    del leases


async def test_a_session_goes_on_once_and_is_no_longer_idle_then() -> None:
    sessions, process = Sessions(SLOTS, LONG_S), Process()
    first, second = parked(sessions, process, 10, 20)
    taken = sessions.take(first)
    assert taken is not None
    assert (taken.id, taken.timer, sessions.idle) == (0, None, 1)
    assert sessions.take(first) is None
    for other in (None, "no lease", 7):
        assert sessions.take(other) is None
    sessions.release(first)
    assert process.closed == []
    sessions.release(second)
    sessions.release(second)
    assert (process.closed, sessions.idle) == ([1], 0)


async def test_a_session_of_a_vllm_that_died_is_gone() -> None:
    sessions, process = Sessions(SLOTS, LONG_S), Process()
    first, second = parked(sessions, process, 10, 20)
    process.dead = EngineUnavailable("died")
    assert sessions.take(first) is None
    sessions.release(second)
    assert (process.closed, sessions.idle) == ([], 0)


async def test_who_held_a_session_before_has_no_say_in_it() -> None:
    """A lease that is dropped closes its session, unless that was parked again."""
    sessions, process = Sessions(SLOTS, LONG_S), Process()
    (first,) = parked(sessions, process, 10)
    session = sessions.take(first)
    assert session is not None
    second = sessions.park(session)
    del first
    gc.collect()
    await asyncio.sleep(0)
    assert (process.closed, sessions.idle) == ([], 1)
    del second
    gc.collect()
    await asyncio.sleep(0)
    assert (process.closed, sessions.idle) == ([0], 0)


async def test_a_session_waits_so_long_and_each_time_anew() -> None:
    sessions, process = Sessions(SLOTS, LONG_S), Process()
    (first,) = parked(sessions, process, 10)
    session = sessions.take(first)
    assert session is not None
    second = sessions.park(session)
    now = asyncio.get_running_loop().time()
    assert session.timer is not None
    assert session.timer.when() == pytest.approx(now + LONG_S, abs=5)
    impatient = Sessions(SLOTS, 0.0)
    leases = parked(impatient, process, 10, 10)
    while impatient.idle:
        await asyncio.sleep(0)
    assert (process.closed, sessions.idle) == ([0, 1], 1)
    sessions.close_all()
    assert (process.closed, sessions.idle) == ([0, 1, 0], 0)
    del leases, second
