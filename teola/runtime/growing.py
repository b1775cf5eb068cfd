"""Parts of queries in flight: begun as their primitives grow, and told to them when they end.

A part runs as a query inside the one that it belongs to, with a plan that all parts of its template
share: beginning one costs what the part costs, however long the query already is. It shares the
query's tenant, time, limits and fate; its calls are in the same queues as anybody's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Generic, Protocol, TypeVar

from teola.errors import QueryFailed
from teola.graph import Grow, GrowParams, Growth
from teola.runtime.observe.trace import Parent, Trace
from teola.runtime.store import Store
from teola.schedule.events import Cancelled, Cause, Completed, Failed, RunEvent, State
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan

MOST_PARTS: Final = 10_000
"""Parts of one query, if nobody says otherwise."""
DEEPEST: Final = 16
"""Parts inside each other."""


@dataclass(slots=True)
class Tally:
    """What a query may still grow, with all its parts: their number, their primitives and the
    tokens of their calls."""

    parts: float = MOST_PARTS
    primitives: float = inf
    tokens: float = inf


@dataclass(slots=True, eq=False)
class Growing:
    """A primitive that grows. waiting: parts that are not begun, because enough run. over: it has
    ended, whatever is still told."""

    query: Grown
    i: int
    growth: Growth
    at_once: int
    open: dict[str, Grown] = field(default_factory=dict)
    waiting: deque[Grow] = field(default_factory=deque)
    over: bool = False


@dataclass(slots=True)
class Place:
    """Where a part belongs."""

    growing: Growing
    key: str
    depth: int
    grow: Grow


class Grown(Protocol):
    """A query, as far as its growth needs to know it. growing: its primitives that grow. tally:
    what it may still grow. place: of a part."""

    id: str
    plan: Plan
    run: GraphRun
    store: Store
    trace: Trace
    growing: dict[int, Growing]
    tally: Tally
    place: Place | None


G = TypeVar("G", bound=Grown)
Query = TypeVar("Query", bound=Grown)


class Grows(Protocol[G]):
    """A driver, as far as growth needs it."""

    def begin(self, query: G, now: float) -> None:
        """Start a query."""
        ...

    def tell(self, run: str, event: RunEvent, now: float) -> None:
        """Give the core an event of a run."""
        ...

    def made_part(self, around: Any, id: str, plan: Plan, place: Place, now: float) -> G:
        """A query for a part of the query `around`."""
        ...


class Parts(Generic[Query]):
    """Those of one driver's queries."""

    def __init__(self, driver: Grows[Query]) -> None:
        self._driver = driver

    def begin(self, query: Query, i: int, growth: Growth, now: float) -> None:
        """Primitive `i` grows from now on."""
        params = query.plan.primitives[i].params
        assert isinstance(params, GrowParams)
        growing = query.growing[i] = Growing(query, i, growth, params.grower.at_once)
        self._follow(growing, growth.begin, now)

    def told(self, part: Query, port: str, item: Any, now: float) -> None:
        """An item of a part's list is there."""
        if part.place is not None and not part.place.growing.over:
            growing, key = part.place.growing, part.place.key
            self._follow(growing, lambda: growing.growth.told(key, port, item), now)

    def ended(
        self,
        part: Query,
        state: State,
        outputs: Mapping[str, Any],
        error: Exception | None,
        now: float,
    ) -> None:
        """A part has ended."""
        place = part.place
        assert place is not None
        growing, key = place.growing, place.key
        growing.open.pop(key, None)
        if growing.over:
            return
        tally = growing.query.tally
        tally.tokens -= part.trace.prompt_tokens + part.trace.completion_tokens
        if state in (State.OK, State.PARTIAL):
            self._follow(growing, lambda: growing.growth.ended(key, outputs), now)
        else:
            cause = error or QueryFailed(f"part {key!r} ended as {state.value}")
            self._follow(growing, lambda: growing.growth.failed(key, cause), now)

    def dropped(self, query: Query, i: int, now: float) -> None:
        """Primitive `i` is skipped after all."""
        growing = query.growing.pop(i, None)
        if growing is not None:
            self._stop(growing, now)

    def over(self, query: Query, now: float) -> None:
        """A query has ended: so do the parts that still run."""
        while query.growing:
            self._stop(query.growing.popitem()[1], now)

    def _stop(self, growing: Growing, now: float) -> None:
        growing.over = True
        growing.waiting.clear()
        for part in [*growing.open.values()]:
            self._driver.tell(part.id, Cancelled(), now)

    def _follow(self, growing: Growing, step: Callable[[], Sequence[Grow]], now: float) -> None:
        """What follows from a step of its growth."""
        try:
            growing.waiting += step()
            while growing.waiting and len(growing.open) < growing.at_once and not growing.over:
                self._start(growing, growing.waiting.popleft(), now)
            if growing.over or growing.open or growing.waiting:
                return
            result = growing.growth.result()
        except Exception as error:  # noqa: BLE001 - the developer's own code may raise anything
            self._fail(growing, error, now)
            return
        query, i = growing.query, growing.i
        query.growing.pop(i, None)
        growing.over = True
        query.trace.ended(i, 0, now)
        self._driver.tell(query.id, Completed(i, query.store.put(i, result)), now)

    def _fail(self, growing: Growing, error: Exception, now: float) -> None:
        query, i = growing.query, growing.i
        query.growing.pop(i, None)
        self._stop(growing, now)
        query.trace.failed(i, 0, now, error)
        self._driver.tell(query.id, Failed(i, Cause(error)), now)

    def _start(self, growing: Growing, grow: Grow, now: float) -> None:
        """Begin a part. Raises QueryFailed where it would be one too many."""
        query, i = growing.query, growing.i
        p, tally = query.plan.primitives[i], query.tally
        params, parts = p.params, query.plan.parts
        assert isinstance(params, GrowParams)
        assert parts is not None
        body = params.grower.bodies[grow.body]
        sizes = {name: len(value) for name, value in grow.inputs.items() if type(value) is list}
        plan = parts(body, sizes)
        depth = 1 + (query.place.depth if query.place is not None else 0)
        tally.parts -= 1
        tally.primitives -= len(plan)
        _check(p.component, tally, depth)
        place = Place(growing, grow.key, depth, grow)
        id = f"{query.id}/{p.component}/{grow.key}"
        if grow.key in growing.open:
            raise QueryFailed(f"{p.component!r} has two parts called {grow.key!r}")
        part = growing.open[grow.key] = self._driver.made_part(query, id, plan, place, now)
        self._driver.begin(part, now)


def _check(component: str, tally: Tally, depth: int) -> None:
    for what, left, way in (
        ("parts", tally.parts, "give it fewer items or turns"),
        ("primitives", tally.primitives, "give it fewer items or turns"),
        ("tokens", tally.tokens, "give it fewer turns, or shorter texts"),
        ("parts inside each other", DEEPEST - depth, "one that contains itself needs an end"),
    ):
        if left < 0:
            raise QueryFailed(f"{component!r} grows to more {what} than this query may have; {way}")


def part_trace(around: Grown, id: str, plan: Plan, place: Place, now: float) -> Trace:
    """For a part: its own, in that of the query around it."""
    trace = Trace(id, around.trace.app, plan, now)
    trace.parent = Parent(around.id, around.plan.ids[place.growing.i])
    around.trace.inner.append(trace)
    return trace


def part_run(around: Grown, id: str, plan: Plan, place: Place) -> GraphRun:
    """For a part: the run of its plan, for the same tenant, application and program."""
    run = around.run
    behind_s = run.behind_s + around.plan.specs[place.growing.i].estimate.rest_s
    return GraphRun(
        id, plan, tenant=run.tenant, app=run.app, program=run.program, behind_s=behind_s
    )


def told_port(query: Grown, head: int) -> str:
    """What the items of the list that the call led by `head` writes are called by what the query
    is a part of; "" if nobody is to be told of them."""
    if query.place is None:
        return ""
    for port in query.place.grow.tells:
        i = query.plan.index[query.plan.graph.outputs[port].producer]
        if query.plan.head[i] == head:
            return port
    return ""
