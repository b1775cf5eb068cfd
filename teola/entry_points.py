"""What installed packages offer: the entry points of the groups `teola.*`."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points


def offered(group: str) -> dict[str, EntryPoint]:
    """Entry points of the group, by name."""
    return {point.name: point for point in _on(tuple(sys.path)).select(group=group)}


@cache
def _on(path: tuple[str, ...]) -> EntryPoints:
    """Entry points of all packages on `path`; looking through them takes tens of milliseconds."""
    return entry_points()  # type: ignore[return-value]  # typed as of Python 3.9
