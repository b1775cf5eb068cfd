"""Python's search for garbage, while a simulation runs.

What a simulated query is made of goes with its last reference: there are no cycles in it. Yet each
new object counts, so at Python's default the search would take a tenth of the time. It is not left
out, because an error that a query failed with holds on to those who raised it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG: Final = 100_000
"""New objects before the next search, at least."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let Python search for garbage less often meanwhile."""
    young, *older = gc.get_threshold()
    if young:  # else somebody wants no search at all
        gc.set_threshold(max(young, YOUNG), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
