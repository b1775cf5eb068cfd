"""The far end of an engine's process: each call is answered once, and nothing of it is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from multiprocessing import Pipe
from typing import Any, cast

import pytest

from teola.runtime.hosts.child import Child
from teola.runtime.hosts.server import STREAMS, EngineServer

STREAM = sorted(STREAMS)[0]


class Odd:
    """Answers, fails and hangs, at once or in time."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def plain(self, value: Any) -> Any:
        return value

    def wrong(self, value: Any) -> Any:
        raise ValueError(value)

    async def later(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    async def broken(self, value: Any) -> Any:
        await asyncio.sleep(0)
        raise ValueError(value)

    async def hang(self, value: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(value)

    async def stream(self, value: Any) -> AsyncIterator[Any]:
        for item in range(3):
            if item == value:
                await self.hang(value)
            yield item


setattr(Odd, STREAM, Odd.stream)


@pytest.mark.parametrize(
    ("method", "value", "kinds", "ends"),
    [
        ("plain", 1, ["value"], True),
        ("wrong", 1, ["error"], True),
        ("later", 1, ["value"], True),
        ("broken", 1, ["error"], True),
        ("missing", 1, ["error"], True),
        ("plain", lambda: None, ["error"], True),  # which cannot be sent
        ("hang", 1, [], False),
        (STREAM, 9, ["item", "item", "item", "end"], True),
        (STREAM, 2, ["item", "item"], False),
    ],
)
async def test_a_call_is_answered_once_and_forgotten(
    method: str, value: Any, kinds: list[str], ends: bool
) -> None:
    near, far = Pipe()
    with near, far:
        child = Child(cast(EngineServer, Odd()), far)
        for id in (7, 8):
            child.handle((id, method, (value,)))
        await settled()
        assert (not child._tasks) is ends
        for id in (7, 8, 8, 9):
            child.handle((id, "cancel", ()))
        await settled()
        assert not child._tasks
        told = list[tuple[int, str]]()
        while near.poll():
            id, kind, _ = near.recv()
            told.append((id, kind))
        for id in (7, 8):
            assert [kind for one, kind in told if one == id] == kinds


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
