"""Python's search for garbage, while queries are simulated or rows are asked.

What a simulated query or a row is made of goes with its last reference: there are no cycles in it.
Yet each new object counts, so at Python's default the search would take a tenth of the time of a
simulation, and a fifth of that of rows. It is not left out, because an error that a query failed
with holds on to those who raised it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG: Final = 100_000
"""New objects before the next search, at least."""

_LOCK: Final = threading.Lock()
_before: list[tuple[int, int, int]] = []
"""What was set before the first of those that are inside came, once for each of them."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let Python search for garbage less often, until all that are inside have left."""
    with _LOCK:
        before = _before[0] if _before else gc.get_threshold()
        _before.append(before)
        young, *older = before
        seldom = (max(young, YOUNG) if young else 0, *older)  # 0: somebody wants no search at all
        gc.set_threshold(*seldom)
    try:
        yield
    finally:
        with _LOCK:
            _before.pop()
            if not _before and gc.get_threshold() == seldom:  # nobody else has set it meanwhile
                gc.set_threshold(*before)
