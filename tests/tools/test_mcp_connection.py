"""The life of a connection to a tool server, without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anyio import CancelScope

from teola.errors import EngineUnavailable
from teola.tools.mcp_connection import McpConnection


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_asked_while_it_closes_is_refused_at_once() -> None:
    """Else it would begin the connection anew, and nobody would end that."""
    begun, ends, opened = asyncio.Event(), asyncio.Event(), list[int]()

    @asynccontextmanager
    async def stubborn() -> AsyncIterator[Any]:
        opened.append(1)
        begun.set()
        try:
            await asyncio.Event().wait()
            yield
        finally:
            with CancelScope(shield=True):
                await ends.wait()

    connection = McpConnection("odd", stubborn, 60.0)
    asked = [asyncio.create_task(connection.tools())]
    await begun.wait()
    closing = asyncio.create_task(connection.close())
    await settled()
    asked.append(asyncio.create_task(connection.call("x", {})))
    await settled()
    assert (asked[1].done(), closing.done()) == (True, False)
    ends.set()
    await closing
    asked.append(asyncio.create_task(connection.tools()))
    for one in asked:
        with pytest.raises(EngineUnavailable, match="'odd' is closed"):
            await one
    assert opened == [1]
