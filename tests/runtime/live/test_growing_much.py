"""What long growth holds: what still runs and what is still to be read, and no more."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, ClassVar

import pytest

from teola import App, Each, Loop, Runtime, component
from teola.graph import Grow
from teola.query.spec import Bounds, QuerySpec
from teola.runtime import driver
from teola.runtime.in_flight import part_trace
from teola.runtime.live.query import LiveQuery, part_of
from teola.runtime.observe.trace import Trace
from teola.runtime.store import Store
from teola.runtime.tally import MOST_RECORDED
from teola.schedule.graph_run import GraphRun
from teola.workflow.components.each import Going
from teola.workflow.components.loop import Turning
from tests.planted import catches, edited

TURNS, ITEMS, AT_ONCE = 1_000, 5_000, 16
FEW = 12
"""Parts that may be in the middle of their end, or waited for by Python's search for garbage."""


class Value(list[int]):
    """One that can be counted."""

    held: ClassVar[list[weakref.ref[Value]]] = []
    most: ClassVar[int] = 0

    def __init__(self, number: int) -> None:
        super().__init__([number])
        Value.held = [one for one in Value.held if one() is not None]
        Value.held.append(weakref.ref(self))
        Value.most = max(Value.most, len(Value.held))

    @property
    def number(self) -> int:
        return self[0]


def living(*kinds: type) -> dict[str, int]:
    """How many of each kind there are."""
    gc.collect()
    counts = dict.fromkeys((kind.__name__ for kind in kinds), 0)
    for one in gc.get_objects():
        if type(one) in kinds:
            counts[type(one).__name__] += 1
    return counts


def with_outputs(runtime: Runtime, template: Any, inputs: dict[str, str], output: str) -> App:
    return App("much", template, inputs=inputs, outputs={output: output}, runtime=runtime)


@pytest.fixture(autouse=True)
def _nothing_held() -> None:
    Value.held = []
    Value.most = 0


# --- loops --------------------------------------------------------------------------------------


@catches(
    "turns-kept",
    "a loop keeps what its turns gave",
    edited(Turning.ended, "self.last = outputs", 'self.last = {**outputs, "x": self.last}'),
)
@catches(
    "traces-kept",
    "a trace says all of every part, however many there are",
    edited(part_trace, "around.tally.records -= 1", "pass"),
)
@pytest.mark.slow
def test_a_loop_holds_its_last_turn() -> None:
    seen: list[dict[str, int]] = []
    kinds = (LiveQuery, GraphRun, Store, Grow, Trace)

    @component(outputs="after", pure=True, name="step")
    def step(before: Any) -> Any:
        number = before.number + 1
        if number in (10, TURNS - 1):
            seen.append(living(*kinds))
        return Value(number)

    loop = Loop(
        step,
        carry={"before": "after"},
        until=lambda after: after.number >= TURNS,
        reads=["after"],
        gives=["after"],
        at_most=TURNS + 1,
    )
    before = living(*kinds)
    with Runtime() as runtime:
        app = with_outputs(runtime, loop, {"before": "any"}, "after")
        result = app.run(before=Value(0))
    assert result["after"].number == TURNS
    assert Value.most <= FEW
    early, late = seen
    traces = early.pop("Trace"), late.pop("Trace")
    assert late == early
    assert all(late[name] <= before[name] + FEW for name in late)
    assert traces[1] <= before["Trace"] + MOST_RECORDED + FEW
    assert result.trace is not None
    assert len(result.trace.inner) == MOST_RECORDED
    assert result.trace.more == TURNS - MOST_RECORDED


# --- lists --------------------------------------------------------------------------------------


@catches(
    "all-made-at-once",
    "parts are made before they can begin",
    edited(
        Going._upto,
        "return (self._part(k, items[k]) for k in range(first, self.count))",
        "return iter([self._part(k, items[k]) for k in range(first, self.count)])",
    ),
)
@pytest.mark.slow
def test_a_list_holds_the_parts_that_run() -> None:
    most: dict[str, int] = {}
    kinds = (LiveQuery, GraphRun, Store, Grow)

    @component(outputs="middle", pure=True, name="first")
    async def first(item: int) -> Any:
        if item % 1000 == 0:
            for name, count in living(*kinds).items():
                most[name] = max(most.get(name, 0), count)
        return Value(item)

    @component(outputs="number", pure=True, name="second")
    async def second(middle: Any) -> int:
        return -int(middle.number)

    each = Each(
        first >> second, over="items", item="item", gives={"numbers": "number"}, at_once=AT_ONCE
    )
    before = living(*kinds)
    with Runtime() as runtime:
        app = with_outputs(runtime, each, {"items": "any"}, "numbers")
        result = app.run(items=[*range(ITEMS)])
    assert result["numbers"] == [-k for k in range(ITEMS)]
    assert Value.most <= AT_ONCE + FEW
    assert all(most[name] <= before[name] + AT_ONCE + FEW for name in most)


# --- bytes of the whole query ---------------------------------------------------------------------


def much(size: int, bounds: Bounds, count: int = 8, **config: Any) -> Any:
    @component(outputs="text", pure=True, name="write")
    async def write(item: int) -> str:
        return "x" * size

    each = Each(write, over="items", item="item", gives={"texts": "text"}, **config)
    with Runtime() as runtime:
        app = with_outputs(runtime, each, {"items": "any"}, "texts")
        job = app.job(QuerySpec({"items": [*range(count)]}, bounds=bounds))
        return app.home.start(job.run()).result(timeout=30)


@catches(
    "bytes-by-part",
    "what parts have given counts for none of them",
    edited(driver._part_gave, "growing.query.tally.hold(growing.component, more_bytes)", "pass"),
)
def test_what_parts_give_counts_for_the_whole_query() -> None:
    assert much(1_000, Bounds(most_bytes=20_000)).state == "ok"
    result = much(1_000, Bounds(most_bytes=5_000), at_once=1)
    assert result.state == "failed"
    assert "MiB that are held for one" in str(result.error)


@catches(
    "bytes-side-by-side",
    "what parts compute side by side counts for each of them alone",
    edited(part_of, "tally=around.tally, ", ""),
)
def test_what_parts_compute_side_by_side_counts_together() -> None:
    @component(outputs="text", pure=True, name="write")
    async def write(item: int) -> str:
        return "x" * 1_000

    @component(outputs="size", pure=True, name="weigh")
    async def weigh(text: str) -> int:
        await asyncio.sleep(0.05)
        return len(text)

    def state(at_once: int) -> str:
        each = Each(
            write >> weigh, over="items", item="item", gives={"all": "size"}, at_once=at_once
        )
        with Runtime() as runtime:
            app = with_outputs(runtime, each, {"items": "any"}, "all")
            job = app.job(QuerySpec({"items": [*range(4)]}, bounds=Bounds(most_bytes=2_500)))
            return str(app.home.start(job.run()).result(timeout=30).state)

    assert state(at_once=1) == "ok"
    assert state(at_once=4) == "failed"


@catches(
    "turns-add-up",
    "what turns before the last have given counts on",
    edited(driver._part_gave, "size - growing.held_bytes", "size"),
)
def test_a_loop_holds_what_its_last_turn_gave() -> None:
    @component(outputs="text", pure=True, name="write")
    async def write(before: str) -> str:
        return "x" * 1_000

    loop = Loop(
        write,
        carry={"before": "text"},
        until=lambda text: False,
        reads=["text"],
        gives=["text"],
        at_most=50,
    )
    with Runtime() as runtime:
        app = with_outputs(runtime, loop, {"before": "text"}, "text")
        job = app.job(QuerySpec({"before": "x"}, bounds=Bounds(most_bytes=5_000)))
        result = app.home.start(job.run()).result(timeout=30)
        assert result.state == "ok"
