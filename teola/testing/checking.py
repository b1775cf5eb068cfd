"""What the checks share: how they fail, and how they run what is async."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class ContractBroken(AssertionError):
    """What was checked breaks its contract; the message says which promise, and in which case."""


def finished(work: Coroutine[Any, Any, T]) -> T:
    """What comes of `work`, on an event loop of its own; also where one runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
