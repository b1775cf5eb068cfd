"""What a live query is besides its run: who waits for it, what it tells, how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from teola.engine import Life, QueryContext
from teola.errors import QueryFailed, reason_of
from teola.graph import QUERY, AggregateParams, Aggregation, GrowParams, Growth, Primitive
from teola.graph.ops import DECODES
from teola.runtime.driver import Query
from teola.runtime.growing import Place, Tally, part_run, part_trace
from teola.runtime.live.nesting import Caller, Terms
from teola.runtime.observe.trace import Trace
from teola.runtime.store import Store
from teola.schedule.events import Cause, State
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import CHOOSES, Plan


class Token(NamedTuple):
    """A piece of the final answer."""

    text: str


class Progress(NamedTuple):
    """A slice of a primitive was sent to its engine (`started`) or came back (`finished`)."""

    primitive: str
    op: str
    engine: str
    state: str
    items: int


Watcher = Callable[[Token | Progress], None]


@dataclass(slots=True)
class Ending:
    """How a query ended. outputs: by name (absent ones None). missing: failed optional parts, and
    why in `reasons`."""

    state: State
    outputs: dict[str, Any]
    error: Exception | None
    missing: tuple[str, ...]
    trace: Trace
    failed: Primitive | None
    reasons: Mapping[str, str] = field(default_factory=dict)


class LiveQuery(Query):
    """A query with what a live one needs. streams: its watcher is told tokens as they come. terms:
    what it leaves to queries inside it. callers: tries that have begun some. deciding: asynchronous
    tests of Conditions. tokens: of prompts, with what stands before, by the primitives that were
    measured. cut: primitives that lead a call whose last try had all the tokens that it
    might have. done: None of a part, whose end is told to what it is a part of."""

    def __init__(
        self,
        context: QueryContext,
        plan: Plan,
        store: Store,
        run: GraphRun,
        trace: Trace,
        done: asyncio.Future[Ending] | None,
        watcher: Watcher | None,
        streams: bool,
        terms: Terms,
        tally: Tally | None = None,
        place: Place | None = None,
    ) -> None:
        super().__init__(context.query_id, plan, store, run, trace, tally, place)
        self.terms = terms
        self.callers: set[Caller] = set()
        self.deciding: set[asyncio.Task[None]] = set()
        self.context, self.done, self.watcher = context, done, watcher
        self.timer: asyncio.TimerHandle | None = None
        self.streams, self.streamed = streams and watcher is not None, False
        self.cut: set[int] = set()
        self.tokens: dict[int, int] = {}

    def tell(self, text: str) -> None:
        """A piece of its answer, for its watcher."""
        self.streamed = True
        if self.place is not None:
            cast("LiveQuery", self.place.growing.query).tell(text)
            return
        if self.watcher and self.run.state is None:
            self.watcher(Token(text))

    def watch(self, i: int, items: int, state: str) -> None:
        """Tell its watcher that a slice of primitive `i` was sent or came back."""
        if self.watcher:
            p = self.plan.primitives[i]
            items = items if p.batchable else 1
            self.watcher(Progress(p.id, p.op.value, p.engine, state, items))

    def failed(
        self, i: int, lo: int, error: Exception, now: float, *, again: bool = False
    ) -> Cause:
        """A slice of primitive `i` failed. again: another try may help."""
        if self.run.state is None:
            self.trace.failed(i, lo, now, error)
        return Cause(error, again)

    def left_alone(self) -> None:
        """It has ended: so do the queries that its components began, and its tests."""
        self.context.life.over = True
        if self.timer:
            self.timer.cancel()
        for caller in list(self.callers):
            caller.end()
        for task in self.deciding:  # in the next turn: they have all begun by then
            task.get_loop().call_soon(task.cancel)

    def wrote(self) -> Iterator[int]:
        """The decodings whose text is an output now: where one of several parts is chosen, the one
        that was. To be asked when the query has ended."""
        plan, frontier = self.plan, list(self.plan.graph.outputs.values())
        while frontier:
            ref = frontier.pop()
            if ref.producer == QUERY:
                continue
            i = plan.index[ref.producer]
            p = plan.primitives[i]
            if p.op in DECODES and ref.port == "text":
                yield i
            elif isinstance(p.params, AggregateParams) and p.params.mode in CHOOSES:
                parts = [part for part in p.refs() if self.run.delivered(part)]
                frontier += parts[:1] if p.params.mode is Aggregation.FIRST else parts[-1:]

    def tell_whole(self, outputs: Mapping[str, Any]) -> None:
        """Pass on the answer's text if none of it went out as it came: the watcher is not to have
        it in pieces, or the call that would have streamed was skipped, and another text stands."""
        if self.watcher is None or self.streamed:
            return
        for name, ref in self.plan.graph.outputs.items():
            text = outputs[name]
            if ref.producer and isinstance(text, str):
                self.watcher(Token(text))
                return


def describe(error: Exception, failed: Primitive) -> QueryFailed:
    """The error that a caller sees when a primitive has failed: its component and what it says, of
    which all lines but the first are indented."""
    told = f"component {failed.component!r}, {failed.op.value}: {reason_of(error)}"
    failure = QueryFailed(told)
    failure.component, failure.__cause__ = failed.component, error
    return failure


def growth_of(query: LiveQuery, i: int) -> Growth:
    """How primitive `i` grows, by the values that it reads."""
    params = query.plan.primitives[i].params
    assert isinstance(params, GrowParams)
    return params.grower.growth(query.store.resolve(i))


def part_of(around: LiveQuery, id: str, plan: Plan, place: Place, now: float) -> LiveQuery:
    """A query for a part of the query `around`, for the same watcher and until the same time."""
    trace = part_trace(around, id, plan, place, now)
    context = replace(around.context, query_id=id, life=Life())
    answers = place.grow.answers and around.streams and around.run.answers(place.growing.i)
    store, run = Store(plan, place.grow.inputs), part_run(around, id, plan, place)
    watcher, terms, tally = around.watcher, around.terms, around.tally
    return LiveQuery(context, plan, store, run, trace, None, watcher, answers, terms, tally, place)
