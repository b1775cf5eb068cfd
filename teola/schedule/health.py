"""When an instance that fails is left alone, and how it comes back: a circuit breaker, sans I/O.

    healthy ──5 failures in a row, or its connection is lost──▶ ejected for 30 s x times (<= 300 s)
       ▲                                                            │
       ╰── 100 % after 30 s ── 50 % after 15 s ── 10 % ◀─ success ─ half-open: one probe
                                 (any failure: ejected again)

Errors of the caller never count; the queue decides which do.
"""

from __future__ import annotations

from typing import Final

FAILURES: Final = 5
EJECTION_S: Final = 30.0
LONGEST_S: Final = 300.0
RAMP: Final = ((0.0, 0.1), (15.0, 0.5), (30.0, 1.0))
"""(seconds since the probe succeeded, share of the instance's capacity that is used)."""


class Health:
    """State of one instance. Times in seconds, on the driver's clock."""

    __slots__ = ("_until", "ejections", "failures", "ramp")

    def __init__(self) -> None:
        self.failures = 0
        """In a row."""
        self.ejections = 0
        """Without a quiet `LONGEST_S` between them."""
        self.ramp: float | None = None
        """When its probe succeeded."""
        self._until: float | None = None

    def ejected(self, now: float) -> bool:
        """Whether nothing may be sent to it."""
        return self._until is not None and now < self._until

    def half_open(self, now: float) -> bool:
        """Whether one probe may be sent to it."""
        return self._until is not None and now >= self._until

    def share(self, now: float) -> float:
        """The share of its capacity that may be used (1: healthy), if it is neither of the
        above."""
        if self.ramp is None:
            return 1.0
        return [share for after, share in RAMP if now >= self.ramp + after][-1]

    def well(self, now: float) -> bool:
        """Whether all of its capacity may be used."""
        return self._until is None and self.share(now) >= 1.0

    def failed(self, now: float, *, lost: bool) -> float | None:
        """A request failed there; lost: so did the connection. When it is ejected: until when."""
        self.failures += 1
        weak = self.half_open(now) or self.share(now) < 1.0
        if self.ejected(now) or not (lost or weak or self.failures >= FAILURES):
            return None
        quiet = self.ramp is not None and now > self.ramp + LONGEST_S
        self.ejections = 1 if quiet else self.ejections + 1
        self.failures, self.ramp = 0, None
        self._until = now + min(LONGEST_S, EJECTION_S * self.ejections)
        return self._until

    def succeeded(self, now: float) -> tuple[float, ...]:
        """A request succeeded there; when its share grows, if this was its probe."""
        self.failures = 0
        if not self.half_open(now):
            return ()
        self._until, self.ramp = None, now
        return tuple(now + after for after, _ in RAMP[1:])

    def reset(self) -> None:
        """It was replaced by a fresh one."""
        self.failures, self.ramp, self._until = 0, None, None
