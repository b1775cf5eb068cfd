"""Board: the queries of a server, those that run and the last that ended, with what they tell.

Everything happens on the runtime's loop, on which the server runs as well, so nothing is locked and
no query changes threads on its way.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from teola.app import App
from teola.errors import Overloaded, QueryCancelled, TeolaError
from teola.job import Job
from teola.result import Result
from teola.runtime.live_query import Progress, Token
from teola.serve.problems import Draining, problem_of

KEPT: Final = 512
"""Queries that have ended and can still be looked at."""


class Event(NamedTuple):
    """What clients are told. kind: primitive, token, done or error; data: JSON of one line."""

    kind: str
    data: str


@dataclass(slots=True, eq=False)
class Entry:
    """One query. events: all so far, numbered from 1. result: once it has ended. first_token_s:
    how long after its request the first token of its answer came."""

    job: Job
    mode: str
    created: float
    events: list[Event] = field(default_factory=list)
    result: Result | None = None
    task: asyncio.Task[None] | None = None
    first_token_s: float | None = None
    _waiting: dict[asyncio.Future[None], int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def state(self) -> str:
        """running, or how it ended."""
        return self.result.state if self.result else "running"

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add an event and wake whoever waits for it."""
        self.events.append(Event(kind, json.dumps(data, ensure_ascii=False, default=str)))
        known = len(self.events)
        for waiter, after in self._waiting.items():
            if known > after and not waiter.done():
                waiter.set_result(None)

    def watch(self, event: Token | Progress) -> None:
        """What the query's watcher is told."""
        if isinstance(event, Token):
            if self.first_token_s is None:
                self.first_token_s = time.time() - self.created
            self.tell("token", event._asdict())
        else:
            self.tell("primitive", event._asdict())

    async def changed(self, after: int) -> None:
        """Wait until there are more than `after` events."""
        if len(self.events) > after:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = after
        try:
            await waiter
        finally:
            del self._waiting[waiter]

    def cancel(self) -> None:
        """Ask it to end."""
        if self.task is not None:
            self.task.cancel()

    async def ended(self) -> Result:
        """Its result, whatever it is; leaving off waiting does not cancel it."""
        assert self.task is not None
        with suppress(asyncio.CancelledError):
            await asyncio.shield(self.task)
        if self.result is None:  # it was the caller who was cancelled
            raise asyncio.CancelledError
        return self.result

    def summary(self) -> dict[str, Any]:
        """For lists."""
        job = self.job
        found = {
            "query_id": self.id,
            "app": job.app.name,
            "mode": self.mode,
            "state": self.state,
            "created": round(self.created, 3),
        }
        if self.result:
            found["latency_s"] = round(self.result.latency_s, 6)
        return found


class Board:
    """See the module. most: queries at once, most_of_tenant: of one tenant;
    more are refused with Overloaded. on_end: is told
    every query that has ended."""

    def __init__(self, most: int, most_of_tenant: int | None = None) -> None:
        self.most, self.most_of_tenant, self.draining = most, most_of_tenant, False
        self.of_tenant: Counter[str] = Counter()
        self.on_end: Callable[[Entry], None] = lambda entry: None
        self.running: dict[str, Entry] = {}
        self.past: OrderedDict[str, Entry] = OrderedDict()

    def start(
        self,
        app: App,
        given: dict[str, Any],
        *,
        mode: str,
        overrides: Mapping[str, Any],
        passes: str | None,
        deadline_s: float,
        tenant: str,
        cleanup: Callable[[], None] = lambda: None,
    ) -> Entry:
        """Begin a query; cleanup: called when it has ended. Raises InputError, Overloaded."""
        if self.draining:
            raise Draining("this server is about to stop; ask another")
        if len(self.running) >= self.most:
            raise Overloaded(f"{self.most} queries are already running; try again in a moment")
        if self.most_of_tenant is not None and self.of_tenant[tenant] >= self.most_of_tenant:
            raise Overloaded(
                f"{self.most_of_tenant} of your queries are already running; try again in a moment"
            )
        job = app.job(given, overrides, passes, deadline_s, tenant)
        entry = Entry(job, mode, time.time())
        job.watcher = entry.watch
        self.running[job.id] = entry
        self.of_tenant[tenant] += 1
        entry.task = asyncio.get_running_loop().create_task(self._run(entry, cleanup))
        return entry

    async def _run(self, entry: Entry, cleanup: Callable[[], None]) -> None:
        job = entry.job
        try:
            result = await job.run()
        except asyncio.CancelledError:
            result = self._without(job, "cancelled", QueryCancelled("the query was cancelled"))
        except TeolaError as error:
            result = self._without(job, "failed", error)
        except Exception as error:  # noqa: BLE001 - the server's edge: a bug ends one query only
            result = self._without(job, "failed", TeolaError(f"{type(error).__name__}: {error}"))
        cleanup()
        job.given = {}  # documents may be large, and nobody asks for them again
        entry.result = result
        del self.running[job.id]
        self.of_tenant[job.tenant] -= 1
        if not self.of_tenant[job.tenant]:
            del self.of_tenant[job.tenant]
        self.past[job.id] = entry
        if len(self.past) > KEPT:
            self.past.popitem(last=False)
        self.on_end(entry)
        if result.state in ("ok", "partial"):
            entry.tell("done", result.to_json())
        else:
            entry.tell("error", problem_of(result).body())

    def _without(self, job: Job, state: str, error: TeolaError) -> Result:
        trace = job.trace
        if trace is not None and trace.finished is None:
            trace.finish(state, asyncio.get_running_loop().time())
        latency = trace.latency_s if trace else 0.0
        return Result(job.app.name, job.id, state, {}, latency, error=error, trace=trace)

    def find(self, id: str, tenant: str) -> Entry | None:
        """The query `id` if it is this tenant's."""
        entry = self.running.get(id) or self.past.get(id)
        return entry if entry and entry.job.tenant == tenant else None

    def all(self, tenant: str) -> list[Entry]:
        """This tenant's queries, the newest first."""
        every = [*self.past.values(), *self.running.values()]
        mine = [entry for entry in every if entry.job.tenant == tenant]
        return sorted(mine, key=lambda entry: entry.created, reverse=True)

    async def drain(self, limit_s: float) -> None:
        """Take nothing more, let what runs end for `limit_s`, then cancel it."""
        self.draining = True
        tasks = {entry.task for entry in self.running.values() if entry.task}
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
