"""What simulated servers do to their callers besides dying: they refuse, are away, hang, turn slow.

refuses   from when to when: calls beyond `at_once` are refused; away: as by nobody
hangs     what it has, and what comes, goes on when it is over
slow      everything takes `factor` times as long
"""

from __future__ import annotations

from dataclasses import dataclass

from teola.errors import EngineAway, EngineBusy
from teola.schedule.events import Cause
from teola.schedule.quota import Refusal


@dataclass(slots=True)
class Trouble:
    """The trouble of one instance: until when it lasts, and what it is."""

    refuses_until: float = 0.0
    at_once: int = 0
    after_s: float | None = None
    away: bool = False
    hangs_until: float = 0.0
    slow_until: float = 0.0
    factor: float = 1.0

    def refusal(self, in_flight: int, now: float) -> Cause | None:
        """Why it does not take a call, with which so many are in flight; None: it does."""
        if now >= self.refuses_until or in_flight <= self.at_once:
            return None
        if self.away:
            return Cause(EngineAway("nobody is there"), True, refused=Refusal("away"))
        error = EngineBusy("it takes no more calls now", after_s=self.after_s)
        return Cause(error, True, refused=Refusal("busy", self.after_s))

    def stretch(self, now: float) -> float:
        """How many times as long what begins now takes."""
        return self.factor if now < self.slow_until else 1.0
