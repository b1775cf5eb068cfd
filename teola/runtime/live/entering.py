"""Tasks that are entered at once: what needs not wait has ended when its task is there.

A task of asyncio makes its first step in a later turn of the loop, which costs more than most
functions do. From Python 3.12 on `eager_start` takes that step at once; before, the step is caught
on its way to the loop and taken here. Either way it is a real task, in a context of its own:
`asyncio.timeout`, `TaskGroup`, anyio and cancellation work inside.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

if sys.version_info >= (3, 12):

    def entered(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], context: Context
    ) -> asyncio.Task[None]:
        """A task of this loop, which runs now, that has made its first step."""
        return asyncio.Task(work, loop=loop, context=context, eager_start=True)

else:

    class _Catcher(threading.local):
        """Where the loop of this thread would be asked for a step, takes it down."""

        def __init__(self) -> None:
            self.steps: list[Callable[[], object]] = []

        def catch(self, step: Callable[[], object], *, context: Context) -> None:
            self.steps.append(step)

    _CATCHER = _Catcher()

    def entered(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], context: Context
    ) -> asyncio.Task[None]:
        """A task of this loop, which runs now, that has made its first step."""
        loop.call_soon = _CATCHER.catch  # type: ignore[assignment, method-assign]
        try:
            task = asyncio.Task(work, loop=loop, context=context)
        finally:
            del loop.call_soon
        step = _CATCHER.steps.pop()
        around = asyncio.current_task(loop)
        if around is None:
            context.run(step)
            return task
        _leave_task(loop, around)
        try:
            context.run(step)
        finally:
            _enter_task(loop, around)
        return task
