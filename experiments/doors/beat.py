"""A heartbeat on an event loop: every 5 ms, and how long it ever was overdue.

It writes to a file that the measuring process maps, so asking for the figure does not disturb the
loop. As a program it is the control: `python -m experiments.doors.beat FILE` beats on a loop that
does nothing else.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
from pathlib import Path
from time import monotonic
from typing import Final

EVERY_S: Final = 0.005
LAYOUT: Final = struct.Struct("dd")
"""The longest gap in seconds, and how often the heart has beaten."""


class Beats:
    """The figures of one heart, as both processes see them."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(LAYOUT.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), LAYOUT.size)

    @property
    def gap_s(self) -> float:
        """The longest time between two beats, less the 5 ms that are meant to lie there."""
        return float(LAYOUT.unpack(self._shared[:])[0])

    @property
    def count(self) -> int:
        return int(LAYOUT.unpack(self._shared[:])[1])

    def write(self, gap_s: float, count: int) -> None:
        self._shared[:] = LAYOUT.pack(gap_s, count)

    def reset(self) -> None:
        """Forget the longest gap."""
        self.write(0.0, self.count)


def start(loop: asyncio.AbstractEventLoop, beats: Beats) -> None:
    """Beat on this loop from now on. Called on it."""
    last = monotonic()

    def beat() -> None:
        nonlocal last
        now = monotonic()
        gap_s, last = now - last - EVERY_S, now
        beats.write(max(gap_s, beats.gap_s), beats.count + 1)
        loop.call_later(EVERY_S, beat)

    loop.call_later(EVERY_S, beat)


async def _control(path: Path) -> None:
    start(asyncio.get_running_loop(), Beats(path))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_control(Path(sys.argv[1])))
