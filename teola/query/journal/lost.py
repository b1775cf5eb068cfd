"""Errors of the journal."""

from __future__ import annotations

from typing import Final

from teola.errors import TeolaError

AWAY: Final = (
    "background queries cannot be taken or looked up now: the database of the journal is away; "
    "try again soon, or ask with mode sync or stream"
)
UNREADABLE_CODE: Final = "journal_unreadable"
UNREADABLE: Final = (
    "what the journal has of query {id} cannot be opened (another server.journal_key, or it was "
    "changed there); DELETE gives the query up"
)


class JournalLost(TeolaError):
    """Nothing can be done with background queries: the database of their journal is away."""


class JournalUnreadable(TeolaError):
    """What the journal has of one query cannot be opened; the others are as they were."""


class Postponed(TeolaError):
    """A query was interrupted here; it has not ended, and goes on under its id."""


class Answered(TeolaError):
    """Somebody has answered before, or nobody asks any more."""
