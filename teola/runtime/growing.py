"""Parts of queries in flight: begun as their primitives grow, and told to them when they end.

A part runs as a query inside the one that it belongs to, with a plan that all parts of its template
share: beginning one costs what the part costs, however long the query already is. It shares the
query's tenant, time, limits and fate; its calls are in the same queues as anybody's.

Long because a growth is one state, and whatever happens to it one method over that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeVar

from teola.errors import BudgetSpent, QueryFailed
from teola.graph import CountsParts, Grow, GrowParams, Growth, Ref, Spends, StopsShort
from teola.passes.estimate import GrowthEstimate
from teola.runtime.observe.trace import Parent, Trace
from teola.runtime.store import Store
from teola.runtime.tally import Tally
from teola.runtime.values import bytes_of
from teola.schedule.events import (
    Cancelled,
    Cause,
    Completed,
    Failed,
    Finish,
    RestExpected,
    RunEvent,
    State,
)
from teola.schedule.feeding import Feeding
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan


@dataclass(slots=True, eq=False)
class Growing:
    """A primitive that grows. params: its own. waiting: parts that are not begun, because enough
    run; they are made when they begin. held_bytes: what it keeps of parts that have ended.
    missing: components of its parts that failed, and were optional. fed: it began while the list
    that it grows over is still being written, and was told so many items of it. over: it has ended,
    whatever is still told. turns: parts that have begun of those that it repeats. expected: how
    many of them are expected in all. spends: the growth, if it bounds what its parts spend."""

    query: Grown
    i: int
    params: GrowParams
    growth: Growth
    at_once: int
    open: dict[str, Grown] = field(default_factory=dict)
    waiting: deque[Iterator[Grow]] = field(default_factory=deque)
    held_bytes: int = 0
    missing: dict[str, Cause] = field(default_factory=dict)
    fed: int | None = None
    over: bool = False
    turns: int = 0
    expected: float = 0.0
    spends: Spends | None = field(init=False)
    counted: CountsParts | None = field(init=False)
    estimate: GrowthEstimate | None = field(init=False)

    def __post_init__(self) -> None:
        growth = self.growth
        self.spends = growth if isinstance(growth, Spends) else None
        self.counted = growth if isinstance(growth, CountsParts) else None
        self.estimate = self.query.plan.grows.get(self.i)
        if self.estimate is not None:
            self.expected = self.estimate.times

    @property
    def component(self) -> str:
        """What grows."""
        return self.query.plan.primitives[self.i].component

    def coming(self) -> float:
        """How many more of the parts that it repeats are expected to begin: those of its list, if
        that is complete; else as many as followed in runs that had come so far, and before there
        are any, as many as were planned."""
        turns, listed = self.turns, 0
        if self.counted is not None:
            listed = self.counted.count - turns
            if self.fed is None:
                return listed
        plan = self.query.plan
        usual = plan.profile.habit(plan.graph.name, self.component).turns_after(turns)
        if usual is None:
            usual = (self.estimate.times if self.estimate is not None else 0.0) - turns
        return max(listed, usual, 0.0)


@dataclass(slots=True)
class Place:
    """Where a part belongs. recorded: its trace stays when it has ended."""

    growing: Growing
    key: str
    depth: int
    grow: Grow
    recorded: bool = True


class Grown(Protocol):
    """A query, as far as its growth needs to know it. growing: its primitives that grow. written:
    by the decodings that head them, items of lists that are being written. tally: what it may still
    grow. place: of a part. grown_ends: how
    the calls ended that wrote what a primitive that grew gave last (see Trace.ends). left: what
    primitives had when they were stopped while they grew, if it is asked for."""

    id: str
    plan: Plan
    run: GraphRun
    store: Store
    trace: Trace
    growing: dict[int, Growing]
    written: dict[int, list[Any]]
    tally: Tally
    place: Place | None
    grown_ends: dict[int, frozenset[str]]
    left: dict[int, Mapping[str, Any]]


FEED: Final = ""
"""What stands for the key of a part where what is told was not written by one."""
G = TypeVar("G", bound=Grown)
GrownQuery = TypeVar("GrownQuery", bound=Grown)


class Grows(Protocol[G]):
    """A driver, as far as growth needs it."""

    def begin(self, query: G, now: float) -> None:
        """Start a query."""
        ...

    def tell(self, run: str, event: RunEvent, now: float) -> None:
        """Give the core an event of a run."""
        ...

    def end(self, run: str, event: Cancelled, now: float) -> None:
        """End a run from outside."""
        ...

    def turned(self, app: str, component: str, count: int) -> None:
        """A component of an application has grown so many of the parts that it repeats."""
        ...

    def growth(self, query: G, i: int) -> Growth:
        """How primitive `i` grows in this query."""
        ...

    def undecided(self, query: G, i: int, error: Exception, now: float) -> None:
        """A control primitive failed."""
        ...

    def made_part(self, around: Any, id: str, plan: Plan, place: Place, now: float) -> G:
        """A query for a part of the query `around`."""
        ...


class Parts(Generic[GrownQuery]):
    """Those of one driver's queries."""

    def __init__(self, driver: Grows[GrownQuery]) -> None:
        self._driver = driver

    def begin(self, query: GrownQuery, i: int, growth: Growth, now: float) -> None:
        """Primitive `i` grows from now on."""
        growing = self._grows(query, i, growth)
        self._follow(growing, growth.begin, now)

    def _grows(self, query: GrownQuery, i: int, growth: Growth) -> Growing:
        params = query.plan.primitives[i].params
        assert isinstance(params, GrowParams)
        growing = Growing(query, i, params, growth, params.grower.at_once)
        query.growing[i] = growing
        return growing

    def written(self, query: GrownQuery, head: int, k: int, item: Any, now: float) -> bool:
        """The call that `head` leads has written item `k` of its list. Whether anything has come
        of that, so that the call must not be begun anew."""
        used = False
        if place := query.place:
            port = told_port(query, head)
            if port and not place.growing.over:
                growing, key, used = place.growing, place.key, True
                self._follow(growing, partial(growing.growth.told, key, port, item), now)
        if fed := query.plan.feeding.get(head):
            items = query.written.setdefault(head, [])
            del items[k:]  # of a try that came to nothing
            items.append(item)
            for one in fed:
                used |= self._feed(query, one, items, now)
        return used

    def _feed(self, query: GrownQuery, of: Feeding, items: list[Any], now: float) -> bool:
        """Tell a primitive of what is new of the list that it grows over, if all else is there that
        it reads. Whether it has begun."""
        i, giver = of
        growing = query.growing.get(i)
        if growing is None:
            if not may_feed(query, i, giver):
                return False
            try:
                growing = self._grows(query, i, self._driver.growth(query, i))
            except Exception as error:  # noqa: BLE001 - the developer's own code may raise anything
                self._driver.undecided(query, i, error, now)
                return True
            growing.fed = 0
            query.trace.sent(i, 0, 1, now, now)
            self._follow(growing, growing.growth.begin, now)
        fed, port = growing.fed, growing.params.feeds
        if fed is not None:
            growing.fed = len(items)
            for item in items[fed:]:
                if not growing.over:
                    self._follow(growing, partial(growing.growth.told, FEED, port, item), now)
        return True

    def whole(self, query: GrownQuery, i: int, now: float) -> bool:
        """All that primitive `i` reads is there. Whether it grows already."""
        growing = query.growing.get(i)
        if growing is None:
            return False
        growing.fed, port = None, growing.params.feeds
        ref = query.plan.primitives[i].input(port)
        assert isinstance(ref, Ref)
        whole = {port: query.store.read(ref)}
        self._follow(growing, partial(growing.growth.ended, FEED, whole), now)
        return True

    def ended(
        self,
        part: GrownQuery,
        finish: Finish,
        outputs: Mapping[str, Any],
        error: Exception | None,
        now: float,
    ) -> None:
        """A part has ended. error: why, if it failed, as its developer is to see it."""
        place = part.place
        assert place is not None
        growing, key = place.growing, place.key
        growing.open.pop(key, None)
        query = growing.query
        query.tally.shrink(len(part.plan))
        if not place.recorded:
            query.trace.leave_out(part.trace)
        query.trace.take_remarks(part.trace)
        if growing.over:
            return
        if place.grow.answers:
            query.grown_ends[growing.i] = part.trace.ends
        if growing.spends is not None:
            trace = part.trace
            growing.spends.spent(key, trace.prompt_tokens, trace.completion_tokens)
        if finish.state in (State.OK, State.PARTIAL):
            for component, cause in zip(finish.missing, finish.reasons, strict=True):
                growing.missing.setdefault(component, cause)
            if finish.reasons and any(map(_is_spent, finish.reasons)):
                growth = growing.growth
                if isinstance(growth, StopsShort):
                    self._follow(growing, partial(growth.stopped, key), now)
                    return
            self._follow(growing, partial(self._gave, growing, key, outputs), now)
        else:
            why = error or QueryFailed(f"part {key!r} ended as {finish.state.value}")
            self._follow(growing, partial(growing.growth.failed, key, why), now)

    def _gave(self, growing: Growing, key: str, outputs: Mapping[str, Any]) -> Iterable[Grow]:
        """What follows from what a part gave, which is held from now on, or until the next."""
        if growing.query.store.weighs:
            size = 0
            for value in outputs.values():
                size += bytes_of(value)
            more = size if growing.params.grower.gathers else size - growing.held_bytes
            growing.held_bytes += more
            component = growing.query.plan.primitives[growing.i].component
            growing.query.tally.hold(component, more)
        return growing.growth.ended(key, outputs)

    def dropped(self, query: GrownQuery, i: int, now: float) -> None:
        """Primitive `i` is skipped after all."""
        growing = query.growing.pop(i, None)
        if growing is not None:
            self._stop(growing, now)

    def over(self, query: GrownQuery, now: float) -> None:
        """A query has ended: so do the parts that still run."""
        while query.growing:
            self._stop(query.growing.popitem()[1], now)

    def _stop(self, growing: Growing, now: float) -> None:
        query, i = growing.query, growing.i
        primitive = query.plan.ids[i]
        given = any(ref.producer == primitive for ref in query.plan.graph.outputs.values())
        if given or growing.spends is not None:
            with suppress(Exception):  # the developer's own code may raise anything
                query.left[i] = growing.growth.result()
        if growing.spends is not None and (steps := query.left.get(i, {}).get("steps")):
            query.trace.steps += tuple(steps)
        self._close(growing)
        for part in [*growing.open.values()]:
            self._driver.end(part.id, Cancelled(), now)

    def _close(self, growing: Growing) -> None:
        """It has ended, and lets go of what it holds."""
        growing.over = True
        if growing.spends is not None and growing.spends.purse is not None:
            growing.spends.purse.give_back()
        growing.waiting.clear()
        growing.query.tally.held_bytes -= growing.held_bytes
        growing.held_bytes = 0

    def _follow(self, growing: Growing, step: Callable[[], Iterable[Grow]], now: float) -> None:
        """What follows from a step of its growth."""
        waiting, running = growing.waiting, growing.open
        try:
            waiting.append(iter(step()))
            while waiting and len(running) < growing.at_once and not growing.over:
                grow = next(waiting[0], None)
                if grow is None:
                    waiting.popleft()
                    continue
                plan = self._plan(growing, grow)
                if running and not growing.query.tally.fits(len(plan)):
                    waiting[0] = chain((grow,), waiting[0])  # when one of those that run has ended
                    break
                self._start(growing, grow, plan, now)
            if growing.over or running or waiting or growing.fed is not None:
                return
            result, remarks = growing.growth.result(), growing.growth.remarks()
            if remarks.cut:
                component = growing.query.plan.primitives[growing.i].component
                growing.missing.setdefault(component, Cause(BudgetSpent(remarks.cut)))
        except Exception as error:  # noqa: BLE001 - the developer's own code may raise anything
            self._fail(growing, error, now)
            return
        query, i = growing.query, growing.i
        query.growing.pop(i, None)
        self._close(growing)
        self._expect(growing, growing.turns, now)
        if not remarks.cut:
            self._driver.turned(query.run.asker.app, growing.component, growing.turns)
        query.trace.remark(growing.component, remarks)
        query.trace.ended(i, 0, now)
        counts = query.store.put_slice(i, 0, 1, 1, result)
        self._driver.tell(query.id, Completed(i, counts, None, -1, growing.missing), now)

    def _expect(self, growing: Growing, times: float, now: float) -> None:
        """So many of the parts that it repeats are expected by now: what its query does later on
        counts as a part of so much."""
        estimate, more = growing.estimate, times - growing.expected
        if estimate is not None and more:
            growing.expected = times
            if more_s := more * estimate.part_total_s:
                self._driver.tell(growing.query.id, RestExpected(more_s), now)

    def _fail(self, growing: Growing, error: Exception, now: float) -> None:
        query, i = growing.query, growing.i
        if query.growing.pop(i, None) is None:
            return
        self._stop(growing, now)
        query.trace.failed(i, 0, now, error)
        self._driver.tell(query.id, Failed(i, Cause(error)), now)

    def _plan(self, growing: Growing, grow: Grow) -> Plan:
        """The plan of a part that is to begin."""
        parts = growing.query.plan.parts
        assert parts is not None
        body = grow.made or growing.params.grower.bodies[grow.body]
        sizes = {name: len(value) for name, value in grow.inputs.items() if type(value) is list}
        return parts(body, sizes)

    def _start(self, growing: Growing, grow: Grow, plan: Plan, now: float) -> None:
        """Begin a part. Raises QueryFailed where it would be one too many."""
        query, key = growing.query, grow.key
        component = query.plan.primitives[growing.i].component
        depth = 1 + (query.place.depth if query.place is not None else 0)
        query.tally.grow(component, len(plan), depth)
        if key in growing.open:
            raise QueryFailed(f"{component!r} has two parts called {key!r}")
        if grow.body in growing.params.grower.repeated.counts:
            growing.turns += 1
            if growing.estimate is not None:
                self._expect(growing, growing.turns + growing.coming(), now)
        place = Place(growing, key, depth, grow)
        id = f"{query.id}/{component}/{key}"
        part = growing.open[key] = self._driver.made_part(query, id, plan, place, now)
        self._driver.begin(part, now)


def _is_spent(cause: Cause) -> bool:
    """Whether something was not begun because its query's budget is spent."""
    return isinstance(cause.error, BudgetSpent)


def may_feed(query: Grown, i: int, giver: int) -> bool:
    """Whether primitive `i` can begin with the first items of the list that `giver` gives it: all
    else that it waits for has ended, and it has something to do."""
    run, parents = query.run, query.plan.parents[i]
    return run.state is None and run.awaited(i) and all(p == giver or run.ended(p) for p in parents)


def part_trace(around: Grown, id: str, plan: Plan, place: Place, now: float) -> Trace:
    """For a part: its own, in that of the query around it."""
    trace = Trace(id, around.trace.app, plan, now)
    trace.parent = Parent(around.id, around.plan.ids[place.growing.i])
    if around.tally.records > 0:
        around.tally.records -= 1
        around.trace.inner.append(trace)
    else:
        place.recorded = False
    return trace


def part_run(around: Grown, id: str, plan: Plan, place: Place, now: float) -> GraphRun:
    """For a part: the run of its plan, for the same asker. It is as old as its query, and has no
    more time. Behind it is what else is expected to grow, and what follows that."""
    run, growing = around.run, place.growing
    after = around.plan.specs[growing.i].estimate
    behind_s = run.behind_s + max(0.0, after.rest_s - after.takes_s)
    if (estimate := growing.estimate) is not None:
        behind_s += estimate.in_turn_s(growing.coming())
    known = run.total_s > 0
    return GraphRun(
        id,
        plan,
        run.asker,
        began=now,
        admitted=run.admitted if known else now,
        deadline=run.deadline,
        behind_s=behind_s,
        longer_s=run.total_s - plan.total_s if known else 0.0,
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


def is_heard(query: Grown, head: int) -> bool:
    """Whether anybody is to be told of the items of the list that the call led by `head` writes, as
    they are written."""
    return head in query.plan.feeding or bool(told_port(query, head))
