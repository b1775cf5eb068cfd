"""People: whom one query asks, with all that runs inside it, and whether it waits for them.

A query waits once nothing else in it can run. Then its deadlines stand still, until an answer comes
or people have had as long as they may.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from teola.engine import QueryContext
from teola.errors import InputError, QueryFailed, UnknownName
from teola.graph import GrowParams, Inquiry, WaitParams
from teola.schedule.graph_run import RUNNING, GraphRun
from teola.schedule.plan import Plan

DAY_S: Final = 86_400.0
LOOK_S: Final = 0.02
"""After an event, when it is looked whether a query waits: what follows at once has begun then."""


class Within(Protocol):
    """A try of a primitive that waits for queries inside it."""

    @property
    def position(self) -> int: ...


class AsksPeople(Protocol):
    """A live query, as far as it is asked whether it waits; see LiveQuery."""

    plan: Plan
    run: GraphRun
    context: QueryContext
    asking: dict[int, str]

    @property
    def callers(self) -> Collection[Within]: ...

    def postpone(self, by_s: float) -> None:
        """Its deadline is so much later."""
        ...

    def stand_still(self) -> None:
        """Its deadline does not come while it waits."""
        ...


@dataclass(slots=True, eq=False)
class Open:
    """A question that is open. then: what its answer leads to. fail: what follows if there is none.
    late: when there was none in time."""

    inquiry: Inquiry
    query: AsksPeople
    then: Callable[[Any], None]
    fail: Callable[[Exception], None]
    late: asyncio.TimerHandle


class People:
    """See the module.

    root: id of the query that clients know.
    open: questions, by id.
    queries: all that ask through this and run.
    busy: steps of theirs that are in no graph, such as reading documents.
    on_ask: is told of each question.
    on_wait: is told True when nothing else can run, and False when something can again.
    pauses: what queries let go then, by id.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.open: dict[str, Open] = {}
        self.queries: set[AsksPeople] = set()
        self.busy = 0
        self.on_ask: Callable[[Inquiry], None] = lambda inquiry: None
        self.on_wait: Callable[[bool], None] = lambda waits: None
        self.pauses: dict[str, Callable[[], None]] = {}
        self.left_s = 0.0
        """What it has of its own time when it goes on."""
        self._since: float | None = None
        self._look: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether nothing can go on before somebody answers."""
        return self._since is not None

    @property
    def wait_s(self) -> float:
        """Seconds that people have left for what is open."""
        now = asyncio.get_running_loop().time()
        return min(one.late.when() for one in self.open.values()) - now

    @property
    def inquiries(self) -> tuple[Inquiry, ...]:
        """What is open, in the order in which it was asked."""
        return tuple(one.inquiry for one in self.open.values())

    def ask(
        self,
        inquiry: Inquiry,
        query: AsksPeople,
        wait_s: float,
        then: Callable[[Any], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Ask a question; `then` is called with the answer, `fail` when there was none in time."""
        unanswered = QueryFailed(f"nobody answered {inquiry.id!r} within {_long(wait_s)}")
        timer = asyncio.get_running_loop().call_later(wait_s, self.give_up, inquiry.id, unanswered)
        self.open[inquiry.id] = Open(inquiry, query, then, fail, timer)
        self.on_ask(inquiry)
        self.changed()

    def answer(self, id: str | None, answer: Any) -> None:
        """Answer a question (None: the only one that is open), and go on. Raises InputError for an
        answer that does not fit, and UnknownName for what nobody asks (any more)."""
        found = self.checked(id, answer)
        self._close(found.inquiry.id)
        self._go_on()
        found.then(answer)

    def checked(self, id: str | None, answer: Any) -> Open:
        """The question that `answer` answers. Raises as `answer`."""
        schemas = {name: one.inquiry.schema for name, one in self.open.items()}
        return self.open[chosen(schemas, id, answer)]

    def give_up(self, id: str, error: Exception) -> None:
        """Whoever is asked fails to answer: so does what asks."""
        found = self.open.get(id)
        if found is not None:
            self._close(id)
            self._go_on()
            found.fail(error)

    def withdraw(self, query: AsksPeople, i: int) -> None:
        """Nobody wants to know any more what primitive `i` asks."""
        id = query.asking.pop(i, None)
        if id is not None:
            self._close(id)

    def left(self, query: AsksPeople) -> None:
        """A query has ended: so have its questions."""
        self.queries.discard(query)
        for id in query.asking.values():
            self._close(id)
        query.asking.clear()
        if self._look is not None and not self.queries:
            self._look.cancel()
            self._look = None

    def changed(self) -> bool:
        """Something happened: look soon whether the query waits now. Whether anything is open."""
        if self.open and self._look is None and not self.waits:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._looked)
        return bool(self.open)

    def _looked(self) -> None:
        self._look = None
        if not self.open or self.busy or not all(map(_waits, self.queries)):
            return
        self._since = now = asyncio.get_running_loop().time()
        self.left_s = min(query.context.deadline for query in self.queries) - now
        for query in self.queries:
            query.stand_still()
        for let_go in self.pauses.values():
            let_go()
        self.on_wait(True)

    def _go_on(self) -> None:
        if self._since is None:
            return
        waited, self._since = asyncio.get_running_loop().time() - self._since, None
        for query in self.queries:
            query.postpone(waited)
        self.on_wait(False)

    def _close(self, id: str) -> None:
        found = self.open.pop(id, None)
        if found is not None:
            found.late.cancel()


def _waits(query: AsksPeople) -> bool:
    """Whether all that runs of a query waits for people, or for what waits for them."""
    within = {caller.position for caller in query.callers}
    for i, status in enumerate(query.run.status):
        if status != RUNNING or i in query.asking or i in within:
            continue
        if type(query.plan.primitives[i].params) not in (GrowParams, WaitParams):
            return False
    return True


def chosen(schemas: Mapping[str, Mapping[str, Any]], id: str | None, answer: Any) -> str:
    """Which of the open questions is answered, of which the answers have these schemas (None: the
    only one). Raises InputError, UnknownName."""
    if id is None:
        if len(schemas) != 1:
            named = ", ".join(map(repr, schemas)) or "nothing is open"
            raise InputError(f"say which question is answered: {named}")
        (id,) = schemas
    if id not in schemas:
        raise UnknownName("question", id, schemas)
    check_answer(answer, schemas[id])
    return id


def check_answer(answer: Any, schema: Mapping[str, Any]) -> None:
    """Raise InputError for an answer that is no JSON value, or does not fit what was asked for."""
    from teola.validators import best_match, validator_for

    try:
        json.dumps(answer, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"the answer is no JSON value: {error}") from None
    validator = validator_for(schema)(schema)
    mismatch = best_match(validator.iter_errors(answer))
    if mismatch is not None:
        where = f" at {mismatch.json_path}" if mismatch.json_path != "$" else ""
        raise InputError(f"the answer does not fit the question{where}: {mismatch.message}")


def _long(seconds: float) -> str:
    return f"{seconds / DAY_S:g} days" if seconds >= DAY_S else f"{seconds:g} s"
