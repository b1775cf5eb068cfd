"""A statement that did not end within its limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from teola.errors import ToolError

Wanted = Callable[[], bool]
"""Whether anybody still waits for a statement."""
LOOK_S: Final = 0.1
"""Seconds between looks at whether anybody still waits."""
Limit = Literal["time", "memory", "size"]
"""The limit: seconds; bytes of its process; bytes of one value."""


class StatementStopped(ToolError):
    """The statement was stopped by a limit: it is wrong for that, and nothing else has failed.

    seconds: that it ran. peak_bytes: most memory of the process that it ran in, 0 where that is not
    known.
    """

    def __init__(
        self, message: str, limit: Limit, seconds: float = 0.0, peak_bytes: int = 0
    ) -> None:
        super().__init__(message)
        self.limit, self.seconds, self.peak_bytes = limit, seconds, peak_bytes
