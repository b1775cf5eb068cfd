"""Small steps run where they are asked for: on the event loop, and not in a thread.

A step takes microseconds, and the way into a thread and back takes longer, most of all where other
threads compute. So a step runs at once as long as what it is given is small, and in a thread where
it might hold up others, such as for a result of a thousand rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

SMALL: Final = 20_000
"""Characters of texts, with ITEM for each value, that a step may have on the event loop."""
ITEM: Final = 10


def inline(step: Callable[..., Any]) -> Callable[..., Any]:
    """The same step as an async function, which runs at once where its inputs are small."""

    @wraps(step)
    async def run(**inputs: Any) -> Any:
        if left_of(SMALL, inputs) >= 0:
            return step(**inputs)
        return await asyncio.to_thread(step, **inputs)

    return run


def left_of(room: int, value: Any) -> int:
    """What is left of `room` after a value; below 0: it does not fit, and nobody looked further."""
    room -= ITEM
    if isinstance(value, str):
        return room - len(value)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            room = left_of(room - len(key), inner)
            if room < 0:
                break
    elif isinstance(value, (list, tuple)):
        if ITEM * len(value) > room:
            return -1
        for inner in value:
            room = left_of(room, inner)
            if room < 0:
                break
    return room
