"""A query in flight, or a part of one: its state, and that of its primitives that grow.

A part runs as a query inside the one that it belongs to, with a plan that all parts of its template
share: beginning one costs what the part costs, however long the query already is. It shares the
query's tenant, time, limits and fate; its calls are in the same queues as anybody's. The driver
(teola/runtime/driver.py) begins parts and hears of their ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from teola.graph import CountsParts, Grow, GrowParams, Growth, Spends
from teola.passes.estimate import GrowthEstimate
from teola.runtime.observe.trace import Parent, Trace
from teola.runtime.store import Store
from teola.runtime.tally import Tally
from teola.schedule.events import Cause
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan


class Query:
    """One query in flight, or a part of one.

    run, store, trace: its state in the core, its values, what is noted of it.
    tally: what it may still grow.
    place: where it belongs, if it is a part.
    growing: its primitives that grow.
    written: items of lists that are being written, by the decodings that head them.
    grown_ends: how the calls ended that wrote what a primitive that grew gave last (see
        Trace.ends).
    left: what primitives had when they were stopped while they grew, if it is asked for.
    """

    __slots__ = (
        "__dict__",
        "growing",
        "grown_ends",
        "id",
        "left",
        "place",
        "plan",
        "run",
        "store",
        "tally",
        "trace",
        "written",
    )

    def __init__(
        self,
        id: str,
        plan: Plan,
        store: Store,
        run: GraphRun,
        trace: Trace,
        tally: Tally | None = None,
        place: Place | None = None,
    ) -> None:
        self.id, self.plan, self.store, self.run, self.trace = id, plan, store, run, trace
        self.growing: dict[int, Growing] = {}
        self.written: dict[int, list[Any]] = {}
        self.grown_ends: dict[int, frozenset[str]] = {}
        self.left: dict[int, Mapping[str, Any]] = {}
        self.tally, self.place = tally or Tally(), place

    def prompt_tokens(self, i: int) -> int:
        """Tokens of primitive `i`'s prompt, with the pieces that are computed with it and without
        any prefix computed before."""
        tokens = self.store.prompt_tokens(i)
        for piece in self.run.fused.get(i, ()):
            tokens += self.store.prompt_tokens(piece)
        return tokens


@dataclass(slots=True, eq=False)
class Growing:
    """Primitive `i` of a query, which grows.

    params: its own.
    growth: decides which parts follow.
    at_once: how many parts run at once at most.
    open: parts that run, by their keys.
    waiting: parts that are not begun, because enough run; they are made when they begin.
    held_bytes: what it keeps of parts that have ended.
    missing: components of its parts that failed, and were optional.
    fed: items of the list that it grows over which it was told, while that list is still being
        written; None: it began with the whole list, or has had it by now.
    over: it has ended, whatever is still told.
    turns: parts that have begun of those that it repeats.
    expected: how many of these are expected in all.
    spends: the growth, if it bounds what its parts spend.
    component: name of the component that grows.
    """

    query: Query
    i: int
    params: GrowParams
    growth: Growth
    at_once: int
    open: dict[str, Query] = field(default_factory=dict)
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
    component: str = field(init=False)

    def __post_init__(self) -> None:
        growth = self.growth
        self.spends = growth if isinstance(growth, Spends) else None
        self.counted = growth if isinstance(growth, CountsParts) else None
        plan = self.query.plan
        self.component = plan.primitives[self.i].component
        self.estimate = plan.grows.get(self.i)
        if self.estimate is not None:
            self.expected = self.estimate.times

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
            assert self.estimate is not None  # else nobody asks
            usual = self.estimate.times - turns
        return max(listed, usual, 0.0)

    def plan_of(self, grow: Grow) -> Plan:
        """The plan of a part that is to begin."""
        parts = self.query.plan.parts
        assert parts is not None
        body = grow.made or self.params.grower.bodies[grow.body]
        sizes = {name: len(value) for name, value in grow.inputs.items() if type(value) is list}
        return parts(body, sizes)

    def close(self) -> None:
        """It has ended, and lets go of what it holds."""
        self.over = True
        if self.spends is not None and self.spends.purse is not None:
            self.spends.purse.give_back()
        self.waiting.clear()
        self.query.tally.held_bytes -= self.held_bytes
        self.held_bytes = 0


@dataclass(slots=True)
class Place:
    """Where a part belongs: to the primitive `growing`, by this key, `depth` parts deep. grow: how
    it was asked for. coming: how many more parts are expected behind it, where times are known.
    recorded: its trace stays when it has ended."""

    growing: Growing
    key: str
    depth: int
    grow: Grow
    coming: float = 0.0
    recorded: bool = True


def grows(query: Query, i: int, growth: Growth) -> Growing:
    """Primitive `i` grows from now on."""
    params = query.plan.primitives[i].params
    assert isinstance(params, GrowParams)
    growing = query.growing[i] = Growing(query, i, params, growth, params.grower.at_once)
    return growing


def may_feed(query: Query, i: int, giver: int) -> bool:
    """Whether primitive `i` can begin with the first items of the list that `giver` gives it: all
    else that it waits for has ended, and it has something to do."""
    run, parents = query.run, query.plan.parents[i]
    return run.state is None and run.awaited(i) and all(p == giver or run.ended(p) for p in parents)


def part_trace(around: Query, id: str, plan: Plan, place: Place, now: float) -> Trace:
    """For a part: its own, in that of the query around it."""
    trace = Trace(id, around.trace.app, plan, now)
    trace.parent = Parent(around.id, around.plan.ids[place.growing.i])
    if around.tally.records > 0:
        around.tally.records -= 1
        around.trace.inner.append(trace)
    else:
        place.recorded = False
    return trace


def part_run(around: Query, id: str, plan: Plan, place: Place, now: float) -> GraphRun:
    """For a part: the run of its plan, for the same asker. It is as old as its query, and has no
    more time. Behind it is what else is expected to grow, and what follows that."""
    run, growing = around.run, place.growing
    after = around.plan.specs[growing.i].estimate
    behind_s = run.behind_s + max(0.0, after.rest_s - after.takes_s)
    if (estimate := growing.estimate) is not None:
        behind_s += estimate.in_turn_s(place.coming)
    timed = run.total_s > 0
    return GraphRun(
        id,
        plan,
        run.asker,
        began=now,
        admitted=run.admitted if timed else now,
        deadline=run.deadline,
        behind_s=behind_s,
        longer_s=run.total_s - plan.total_s if timed else 0.0,
    )


def told_port(query: Query, head: int) -> str:
    """What the items of the list that the call led by `head` writes are called by what the query
    is a part of; "" if nobody is to be told of them."""
    if query.place is None:
        return ""
    for port in query.place.grow.tells:
        i = query.plan.index[query.plan.graph.outputs[port].producer]
        if query.plan.head[i] == head:
            return port
    return ""


def is_heard(query: Query, head: int) -> bool:
    """Whether anybody is to be told of the items of the list that the call led by `head` writes, as
    they are written."""
    return head in query.plan.feeding or bool(told_port(query, head))
