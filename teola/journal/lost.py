"""Errors of the journal."""

from __future__ import annotations

from typing import Final

from teola.errors import TeolaError

AWAY: Final = (
    "background queries cannot be taken or looked up now: the database of the journal is away; "
    "try again soon, or ask with mode sync or stream"
)


class JournalLost(TeolaError):
    """Nothing can be done with background queries: the database of their journal is away."""


class OtherKey(JournalLost):
    """What stands in the journal was sealed with another key."""


class Answered(TeolaError):
    """Somebody has answered before, or nobody asks any more."""
