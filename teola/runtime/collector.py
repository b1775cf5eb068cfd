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
from collections import Counter
from functools import cache
from typing import Final

YOUNG: Final = 100_000
"""New objects before the next search, at least: of simulations and rows."""
LIVE: Final = 10_000
"""The same of live queries, whose functions may leave large things in cycles."""

_LOCK: Final = threading.Lock()
_inside: Counter[int] = Counter()
"""How many are inside, by how many new objects they want."""
_before: tuple[int, int, int] = gc.get_threshold()
"""What was set before the first of them came."""
_set: tuple[int, int, int] = _before
"""What was set for them last."""


class SeldomCollecting:
    """A context, which any number may be in: they hold nothing of their own for it."""

    __slots__ = ("_young",)

    def __init__(self, young: int) -> None:
        self._young = young

    def __enter__(self) -> None:
        """Somebody is inside."""
        with _LOCK:
            _wants(self._young)

    def __exit__(self, *error: object) -> None:
        """They have left."""
        with _LOCK:
            _leaves(self._young)


@cache
def seldom_collecting(young: int = YOUNG) -> SeldomCollecting:
    """Let Python search for garbage less often, as long as anybody is inside: after as many new
    objects as whoever wants most."""
    return SeldomCollecting(young)


def _wants(young: int) -> None:
    global _before
    if not _inside:
        _before = gc.get_threshold()
    _inside[young] += 1
    _set_threshold()


def _leaves(young: int) -> None:
    _inside[young] -= 1
    if not _inside[young]:
        del _inside[young]
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
