"""A queue in made-up time whose instances are servers that refuse."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from teola.errors import EngineAway, EngineBusy
from teola.graph import Op
from teola.learning import Learner
from teola.policies.work import UNKNOWN
from teola.runtime.queue_setup import queue_of
from teola.schedule.events import (
    AbortRequest,
    CallEnded,
    Cause,
    Dispatch,
    Failed,
    FirstToken,
    FirstTokenLate,
    LimitsTold,
    SetTimer,
    Tell,
    Timer,
    Waits,
)
from teola.schedule.instances import Limits
from teola.schedule.overdue import Overdue
from teola.schedule.quota import Refusal
from tests.recording import work

ANSWER = 9
"""Tokens of each."""


class Server:
    """Takes `at_once` calls of `call_s` seconds, and `per_minute` in any minute. tokens: in any
    minute; an answer takes all that it may have until it has ended (reserves: or only what it is).
    after_s: what its refusals say. away, hangs: from when to when it is not there, and gives no
    token."""

    def __init__(
        self,
        at_once: int = 1000,
        call_s: float = 1.0,
        per_minute: int | None = None,
        after_s: float | None = None,
        away: tuple[float, float] = (0.0, 0.0),
        hangs: tuple[float, float] = (0.0, 0.0),
        tokens: int | None = None,
        reserves: bool = True,
    ) -> None:
        self.reserves = reserves
        self.at_once, self.call_s, self.per_minute = at_once, call_s, per_minute
        self.after_s, self.away, self.hangs = after_s, away, hangs
        self.running = self.calls = 0
        self.begun: deque[float] = deque()
        self.tokens, self.drawn = tokens, deque[list[float]]()  # [when, how many]

    def left(self, now: float) -> float:
        """Tokens of this minute."""
        while self.drawn and self.drawn[0][0] <= now - 60:
            self.drawn.popleft()
        return (self.tokens or 0) - sum(tokens for _, tokens in self.drawn)

    def reset_s(self, now: float) -> float:
        """In how many seconds all of it is there again."""
        return self.drawn[-1][0] + 60 - now if self.drawn else 0.0

    def refuses(self, now: float, tokens: int = 0) -> Cause | None:
        self.calls += 1
        while self.begun and self.begun[0] <= now - 60:
            self.begun.popleft()
        if self.away[0] <= now < self.away[1]:
            return Cause(EngineAway("refused"), True, refused=Refusal("away"))
        full = self.per_minute is not None and len(self.begun) >= self.per_minute
        if self.running >= self.at_once or full:
            after_s = self.after_s
            if full and after_s is None:
                after_s = self.begun[0] + 60 - now
            error = EngineBusy("full", after_s=after_s)
            return Cause(error, True, refused=Refusal("busy", after_s))
        if self.tokens is not None and self.left(now) < tokens:
            after_s = self.drawn[0][0] + 60 - now
            return Cause(
                EngineBusy("full", after_s=after_s), True, refused=Refusal("busy", after_s)
            )
        return None


class Refusing:
    """Calls come, are sent, refused or answered. ok, failed: of those that ended; waits: what the
    queue told; objective_s: until when each is wanted, from when it comes."""

    def __init__(
        self,
        *servers: Server,
        router: str = "least_loaded",
        most: int = 64,
        tokens: int = 1,
        learner: Learner | None = None,
        batching: str = "fifo",
        independent: bool = False,
        answer: int = 0,
    ) -> None:
        limit = Limits(100_000, most, 1, continuous=True, independent=independent)
        limits = [limit] * len(servers)
        self.queue = queue_of("e", limits, None, batching, routing=router, learner=learner)
        self.queue.overdue = Overdue()
        self.learner, self.tokens, self.answer = learner, tokens, answer
        self.begun: list[tuple[float, int]] = []
        """When calls were sent, and where to."""
        self.took: list[float] = []
        """Seconds from being asked to the end, of those that ended."""
        self.servers = servers
        self.on_end: Callable[[], Any] | None = None
        self.objective_s, self.estimate = inf, UNKNOWN
        self.same: bytes | None = None
        self.now = 0.0
        self.ok: list[tuple[float, int]] = []
        self.failed: list[tuple[float, Cause]] = []
        self.waits: list[Waits] = []
        self.aborted: list[tuple[float, int]] = []
        self.late: list[FirstTokenLate] = []
        self._order, self._heap = count(), list[tuple[float, int, Callable[[], Any]]]()

    def at(self, when: float, do: Callable[[], Any]) -> None:
        heappush(self._heap, (when, next(self._order), do))

    def comes(self, number: int, when: float = 0.0, *, every: float = 0.0) -> None:
        for k in range(number):
            self.at(when + k * every, lambda: self.submit())

    def submit(self, members: tuple[int, ...] = (9,)) -> list[Any]:
        k = next(self._order)
        self.queue.submit(
            work(
                k,
                run=f"q{k}",
                arrival=self.now,
                op=Op.PREFILLING,
                lane=None,
                cuttable=False,
                retries=2,
                members=members,
                total=self.tokens,
                expected_output=ANSWER if self.answer else 0,
                most_output=self.answer,
                finish_by=self.now + self.objective_s,
                same=self.same,
                estimate=self.estimate,
            ),
            self.now,
        )
        return []

    def run(self, until: float) -> None:
        """Everything until then."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, do = heappop(self._heap)
            self._perform(do())
            self._perform(self.queue.dispatch(self.now))
            self.queue.instances.validate(self.now)
        self.now = until

    @property
    def calls(self) -> list[int]:
        return [server.calls for server in self.servers]

    def _perform(self, commands: Any) -> None:
        for command in commands or ():
            if isinstance(command, Dispatch):
                for work_, _, _ in command.slices:
                    self._take(command, work_)
            elif isinstance(command, SetTimer):
                self.at(command.at, lambda: self.queue.woken(Timer("e"), self.now))
            elif isinstance(command, Waits):
                self.waits.append(command)
            elif isinstance(command, Tell) and isinstance(command.event, Failed):
                self.failed.append((self.now, command.event.cause))
            elif isinstance(command, FirstTokenLate):
                self.late.append(command)
            elif isinstance(command, AbortRequest):
                self.aborted.append((self.now, command.instance))

    def _take(self, sent: Dispatch, taken: Any) -> None:
        server, i = self.servers[sent.instance], taken.primitive
        self.begun.append((self.now, sent.instance))
        takes = self.tokens + (self.answer if server.reserves else ANSWER)
        cause = server.refuses(self.now, takes)
        event = CallEnded("e", sent.batch, taken.run, i, cause or {"text": 1}, None, ANSWER)
        if cause is not None:
            self.at(self.now + 0.01, lambda: self.queue.call_ended(event, self.now))
            return
        server.running += 1
        server.begun.append(self.now)
        if server.hangs[0] <= self.now < server.hangs[1]:
            server.running -= 1
            return
        drawn = [self.now, float(takes)]
        if server.tokens is not None:
            server.drawn.append(drawn)
            left, ago_s = round(server.left(self.now)), server.call_s / 2
            of = {"ago_s": ago_s, "tokens_limit": server.tokens}
            told = LimitsTold("e", sent.instance, None, left, 0.0, server.reset_s(self.now), **of)
            self.at(self.now + server.call_s / 2, lambda: self.queue.limits_told(told, self.now))
        first = FirstToken("e", sent.instance, taken.run, i)
        self.at(self.now + server.call_s / 2, lambda: self.queue.first_token(first, self.now))

        def ends() -> Any:
            server.running -= 1
            drawn[1] = self.tokens + ANSWER
            self.ok.append((self.now, sent.instance))
            self.took.append(self.now - taken.arrival)
            found = self.queue.call_ended(event, self.now)
            if self.learner is not None:
                self.learner.publish(self.now)
            if self.on_end is not None:
                self.on_end()
            return found

        self.at(self.now + server.call_s, ends)
