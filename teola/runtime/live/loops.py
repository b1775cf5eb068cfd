"""The event loop of a runtime that serves: uvloop's where it is installed, else asyncio's.

uvloop passes bytes on in half the time. Its clock stands still within a turn and counts whole
milliseconds, which traces could not be read with, so it is given asyncio's.
"""

from __future__ import annotations

import asyncio
from time import monotonic


def quick() -> asyncio.AbstractEventLoop:
    """A fresh loop."""
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop()

    class Steady(uvloop.Loop):
        def time(self) -> float:
            return monotonic()

    return Steady()
