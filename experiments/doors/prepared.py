"""The value that tools return next. `teola serve` loads the file of the applications once for each
of them, so what they share is here."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

from experiments.doors import beat
from experiments.doors.contents import BY_NAME

BEATS: Final = "DOORS_BEATS"
"""Variable of the environment: the file that the heartbeat writes to."""
LONG: Final = "7 MB"
"""A text that is no content, but what references refer to."""


class Prepared:
    """value: see the module."""

    def __init__(self) -> None:
        self.value: Any = None
        self._beats: beat.Beats | None = None

    async def make(self, name: str) -> None:
        """Make a content of the kind `value` in a thread; any other name drops what there is. The
        first time begins the heartbeat of this loop."""
        if self._beats is None and BEATS in os.environ:
            self._beats = beat.Beats(Path(os.environ[BEATS]))
            beat.start(asyncio.get_running_loop(), self._beats)
        self.value = None
        if ("value", name) in BY_NAME:
            self.value = await asyncio.to_thread(BY_NAME["value", name].make)
        elif name == LONG:
            self.value = "x" * 7_000_000


PREPARED: Final = Prepared()
