"""Queries inside queries: an app that a component runs belongs to the query around it.

It shares that query's runtime (unless it has one of its own), tenant, limits and the time that is
left, is listed in its trace, and ends with the component's call at the latest. While a call waits
for queries inside, it leaves its place on its engine to others, which may be theirs; so any number
of calls may wait side by side.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from teola.engine import QueryContext
from teola.errors import InputError, Overloaded, QueryCancelled
from teola.graph import Spends
from teola.run_secrets import OF_NONE, Secrets
from teola.runtime.live.kept_answers import KeptAnswers
from teola.runtime.live.people import People
from teola.runtime.live.steps import Steps
from teola.runtime.observe.kept_values import ValueRoom
from teola.runtime.observe.trace import Trace
from teola.runtime.tally import MOST_PARTS
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan
from teola.tools.named_tools import ToolsByName

DEEPEST: Final = 16
"""Queries inside each other. An app that runs itself ends here and not where memory does."""

InstancePlace = tuple[str, int]
Spender = tuple[Spends, str]
"""A run of an agent, and the key of a part of it."""


class RuntimeLike(Protocol):
    """A Runtime, as far as the queries that run in it need to know it."""

    max_queries: int
    tools: ToolsByName


@dataclass(frozen=True, slots=True)
class Terms:
    """What a query leaves to those inside it.

    runtime: where it runs; None: nowhere that they could run as well.
    most_primitives: size that its p-graph may have.
    most_bytes: size of what its engines compute for it that may be held at once.
    most_parts: that it may grow.
    depth: number of queries around it.
    people: who is asked what it asks.
    steps: what has been done of it before, and is not to be done again.
    secrets: that its tools may know by name.
    spender: the agent that called it, if one did.
    values: how much is kept of its values for people (None: nothing).
    around: the run of the query around it.
    answers: of its calls of LLMs, for equal ones (None: they are not kept).
    shares_s: for how long other queries of the tenant may have them (0: they may not).
    """

    runtime: RuntimeLike | None = None
    most_primitives: float = inf
    most_bytes: float = inf
    most_parts: float = MOST_PARTS
    depth: int = 0
    people: People | None = None
    steps: Steps | None = None
    secrets: Secrets = OF_NONE
    spender: Spender | None = None
    values: ValueRoom | None = None
    around: GraphRun | None = None
    answers: KeptAnswers | None = None
    shares_s: float = 0.0


class Around(Protocol):
    """A query, as far as those inside it need to know it; see LiveQuery."""

    id: str
    context: QueryContext
    terms: Terms
    plan: Plan
    run: GraphRun
    trace: Trace
    streams: bool
    callers: set[Caller]

    @property
    def spender(self) -> Spender | None:
        """The agent that it is a part of, if it is one's."""
        ...

    def tell(self, text: str) -> None:
        """A piece of its answer, for its watcher."""
        ...


_INNER: Final = threading.Lock()
"""Held while the queries inside a try change; one for all, because few tries have any."""


class Caller:
    """A try of primitive `i` of `query`, while its code runs. place: engine and instance that it
    runs on (None: on none). lend: is told 1 when it begins to wait for queries inside it, and -1
    when it waits no more. Its methods may be called from any thread, but `tell` only from the
    loop's."""

    __slots__ = ("_i", "_inner", "_lend", "_place", "_query", "told")

    def __init__(
        self,
        query: Around,
        i: int,
        lend: Callable[[InstancePlace | None, int], None],
        place: InstancePlace | None = None,
    ) -> None:
        self._query: Around | None = query  # until its end: what outlives it may hold a caller
        self._i, self._lend, self._place = i, lend, place
        self.told = False
        """Whether some of its text has left for the client, so that there can be no further try."""
        self._inner: frozenset[asyncio.Task[object]] = frozenset()

    @property
    def query(self) -> Around:
        """Raises QueryCancelled if nobody waits for this try any more."""
        query = self._query
        if query is None:
            raise QueryCancelled("the component that asks for this is not waited for any more")
        return query

    @property
    def position(self) -> int:
        """Position of the primitive."""
        return self._i

    @property
    def over(self) -> bool:
        """Whether nobody waits for this try any more."""
        return self._query is None

    @property
    def primitive(self) -> str:
        """Id of the primitive. Raises QueryCancelled."""
        return self.query.plan.ids[self._i]

    @property
    def shown(self) -> bool:
        """Whether its text goes to the query's watcher as it comes."""
        query = self._query
        return query is not None and query.streams and query.run.answers(self._i)

    def tell(self, text: str) -> None:
        """A piece of its text, for the watcher."""
        query = self._query
        if text and query is not None:
            self.told = True
            query.tell(text)

    def enter(self, task: asyncio.Task[object], app: str) -> None:
        """A query of `app` begins inside, in this task. Raises QueryCancelled, Overloaded,
        InputError."""
        query = self.query
        if query.terms.depth >= DEEPEST:
            raise InputError(
                f"application {app!r} would be in {DEEPEST + 1} queries inside each other; "
                "one that runs itself needs an end"
            )
        most = query.terms.runtime.max_queries if query.terms.runtime else inf
        with _INNER:
            if len(self._inner) >= most:
                raise Overloaded(
                    f"{self.primitive.partition('.')[0]!r} already runs {most} queries inside; let "
                    "it wait for some of them first"
                )
            self._inner |= {task}
            query.callers.add(self)
            first = len(self._inner) == 1
        if first:
            self._lend(self._place, 1)
        if self.over:
            _cancel(task)

    def leave(self, task: asyncio.Task[object]) -> None:
        """The query inside that ran in this task has ended."""
        with _INNER:
            self._inner -= {task}
            last = not self._inner
        if last:
            self._lend(self._place, -1)

    def end(self) -> None:
        """The try has ended: so do the queries that it left behind."""
        query, self._query = self._query, None
        if query is None:
            return
        with _INNER:
            left = list(self._inner)
            query.callers.discard(self)
        for task in left:
            task.get_loop().call_soon_threadsafe(_cancel, task)


def _cancel(task: asyncio.Task[object]) -> None:
    if not task.cancelling():  # a second time would interrupt its cleaning up
        task.cancel()


calling: Final[ContextVar[Caller | None]] = ContextVar("teola_calling", default=None)
"""The primitive whose code runs here. Every task that works for a query sets it anew, as it does
`working_for`; a batch of several queries has no caller."""
