"""Python's search for garbage, while queries run or rows are asked.

What a query or a row is made of goes with its last reference: there are no cycles in it. Yet each
new object counts, so at Python's default the search would take a tenth of the time of a simulation
or a live query, and a fifth of that of rows. It is not left out, because an error that a query
failed with holds on to those who raised it, and clients and functions of live queries leave cycles
of their own.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG: Final = 100_000
"""New objects before the next search, at least: of simulations and rows."""
LIVE: Final = 10_000
"""The same of live queries, whose functions may leave large things in cycles."""

_LOCK: Final = threading.Lock()
_inside: list[int] = []
"""Of those that are inside, how many new objects each wants."""
_before: tuple[int, int, int] = gc.get_threshold()
"""What was set before the first of them came."""
_set: tuple[int, int, int] = _before
"""What was set for them last."""


@contextmanager
def seldom_collecting(young: int = YOUNG) -> Iterator[None]:
    """Let Python search for garbage less often, as long as anybody is inside: after as many new
    objects as whoever wants most."""
    with _LOCK:
        _wants(young)
    try:
        yield
    finally:
        with _LOCK:
            _leaves(young)


def _wants(young: int) -> None:
    global _before
    if not _inside:
        _before = gc.get_threshold()
    _inside.append(young)
    _set_threshold()


def _leaves(young: int) -> None:
    _inside.remove(young)
    if gc.get_threshold() != _set:
        return  # somebody else has set it meanwhile
    if _inside:
        _set_threshold()
    else:
        gc.set_threshold(*_before)


def _set_threshold() -> None:
    global _set
    young, middle, old = _before
    # 0: somebody wants no search at all.
    _set = (max(young, *_inside) if young else 0, middle, old)
    gc.set_threshold(*_set)
