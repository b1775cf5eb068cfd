"""A real model that remembers every handle that it gave, so that no finaliser ever releases one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from teola.engine import Call, Delta, QueryContext, SequenceHandle, TextPart
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role
from teola.runtime.hosts.process import ProcessEngine
from teola_engines.llm import TransformersModel

ENDLESS = 500
"""Tokens of an answer that goes on until it is cancelled."""


class KeptModel(TransformersModel):
    """given: all handles. wrongs: releases of what a call was reading."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.given: list[SequenceHandle] = []
        self.wrongs: list[str] = []
        self._read: list[Any] = []

    async def prefill(self, call: Call) -> SequenceHandle:
        self._read.append(call.prefix and call.prefix.state)
        try:
            self.given.append(await super().prefill(call))
            return self.given[-1]
        finally:
            self._read.remove(call.prefix and call.prefix.state)

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        self._read.append(call.prefix and call.prefix.state)
        try:
            async with aclosing(super().generate(call)) as deltas:  # type: ignore[type-var]
                async for delta in deltas:
                    yield delta
                    if call.decode.max_tokens >= ENDLESS:
                        await asyncio.Event().wait()
        finally:
            self._read.remove(call.prefix and call.prefix.state)

    def release(self, handle: SequenceHandle) -> None:
        if any(state is handle.state for state in self._read):
            self.wrongs.append("released while it was read")
        super().release(handle)

    async def pages(self) -> int:
        """Blocks of KV that are held, once all that was asked for is done."""
        assert not self.wrongs, self.wrongs
        parts = (TextPart(Role.QUESTION, "done"),)
        async for _ in super().generate(Call(QueryContext(""), parts, DecodeParams(max_tokens=1))):
            pass
        assert self.kv is not None
        self.kv.check()
        return self.kv.blocks - self.kv.available


class KeptFar(ProcessEngine):
    """The same in a child process; here every handle is remembered, too."""

    def __init__(self, *recipe: Any) -> None:
        super().__init__(*recipe)
        self.given: list[SequenceHandle] = []

    async def prefill(self, call: Call) -> SequenceHandle:
        self.given.append(await super().prefill(call))
        return self.given[-1]

    async def pages(self) -> int:
        found: int = await self.call("pages")
        return found
