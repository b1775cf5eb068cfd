"""Processors: engines that share them slow each other down.

While k of them work, one does its work at 1 / (1 + crowding x (k - 1)) of its speed alone
(EngineProfile.crowding, learned by teola.learning.at_work). Whenever one begins or ends, all that
are at work get another end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """The simulation. now: virtual seconds."""

    now: float

    def at(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call it at that time."""
        ...


class Share:
    """Work of a `worker`. left: seconds of it, alone, as it was last counted. call: when it is
    done."""

    __slots__ = ("_host", "arguments", "call", "crowding", "left", "speed", "version", "worker")

    def __init__(
        self,
        host: Processors,
        worker: object,
        seconds: float,
        crowding: float,
        call: Callable[..., None],
        arguments: tuple[Any, ...],
    ) -> None:
        self._host, self.worker, self.left, self.crowding = host, worker, seconds, crowding
        self.call, self.arguments = call, arguments
        self.speed, self.version = 1.0, 0

    def seconds_left(self) -> float:
        """Seconds of it that are to be done now, alone."""
        self._host.count()
        return self.left

    def stop(self) -> None:
        """It is not worked on any more, and nobody is called."""
        self._host.end(self)


class Processors:
    """The processors of one machine. O(jobs at work) whenever one begins or ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[Share, None] = {}
        self._at = 0.0

    def begin(
        self,
        worker: object,
        seconds: float,
        crowding: float,
        call: Callable[..., None],
        *arguments: Any,
    ) -> Share:
        """A worker does so many seconds of work, alone, from now on; `call` when it is done."""
        self.count()
        job = Share(self, worker, seconds, crowding, call, arguments)
        self._jobs[job] = None
        self._plan()
        return job

    def end(self, job: Share) -> None:
        """It is not worked on any more, and nobody is called."""
        if job in self._jobs:
            self.count()
            del self._jobs[job]
            job.version += 1
            self._plan()

    def gone(self, worker: object) -> None:
        """It has died with all that it did."""
        for job in [job for job in self._jobs if job.worker is worker]:
            self.end(job)

    def count(self) -> None:
        """Take what was done since the last time from what is left."""
        passed, self._at = self._clock.now - self._at, self._clock.now
        if passed:
            for job in self._jobs:
                job.left -= passed * job.speed

    def _plan(self) -> None:
        others, now = len(self._jobs) - 1, self._clock.now
        for job in self._jobs:
            job.speed = 1.0 / (1.0 + job.crowding * others)
            job.version += 1
            self._clock.at(now + max(0.0, job.left) / job.speed, self._due, job, job.version)

    def _due(self, job: Share, version: int) -> None:
        if version == job.version:
            self.end(job)
            job.call(*job.arguments)
