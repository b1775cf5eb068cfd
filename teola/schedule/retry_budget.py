"""How much of an engine's work may be tried again.

What was on an instance that is gone is no retry in that sense: it adds nothing to what the engine
had to do (docs/decisions/0036-deaths-outside-the-budget.md).
"""

from __future__ import annotations

from typing import Final

from teola.policies.work import Work
from teola.schedule.events import Cause

RETRY_BUDGET: Final = 0.1
RETRY_FLOOR: Final = 10
"""Retries may be 10 % of an engine's requests, and always at least this many."""


class RetryBudget:
    """requests, retries: so far. budgeted: retries that count against the budget."""

    def __init__(self) -> None:
        self.requests = self.retries = self.budgeted = 0

    @property
    def affordable(self) -> bool:
        """Whether the budget has room for one more."""
        return self.budgeted < max(RETRY_FLOOR, RETRY_BUDGET * self.requests)

    def may_retry(self, work: Work, cause: Cause) -> bool:
        """Whether what failed for this reason may be tried again."""
        return (
            cause.retryable
            and not work.streamed
            and work.tries < work.spec.retries + work.excused
            and (cause.lost or self.affordable)
        )

    def count(self, cause: Cause) -> None:
        """What failed for this reason is tried again."""
        self.retries += 1
        self.budgeted += not cause.lost
