"""Queries that grow by parts of ten functions which do nothing, and what growing took of them.

growth    beginning a part: from the question what follows, through its plan, its values, its run
          and its trace, until its first function is in its engine's queue; and ending one: its
          outputs, its trace, its place among the parts
the rest  of a run: its functions, in queues, batches and on the engine, as in any graph
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from teola import App, Each, Loop, Runtime, component
from teola.runtime.live.live import Live
from teola.workflow.component import Template

PRIMITIVES: Final = 10
"""In each part."""
MOST: Final = 10_000
CHAIN: Final = 200
RUNS: Final = 5


@dataclass(slots=True)
class Stopwatch:
    """Processor time that a driver spends on growing, however what is timed calls itself. Its own
    thread's: what else runs on the machine does not count."""

    seconds: float = 0.0
    depth: int = 0

    def around(self, call: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
        """`call`, timed where its arguments say so."""

        def timed(*arguments: Any) -> Any:
            if self.depth or not when(*arguments):
                return call(*arguments)
            self.depth = 1
            began = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.seconds += time.thread_time() - began
                self.depth = 0

        return timed

    def watch(self, live: Live) -> None:
        """Time the growth of this driver's queries from now on."""
        live.begin_growth = self.around(live.begin_growth, _always)  # type: ignore[method-assign]
        live.finished = self.around(live.finished, _of_part)  # type: ignore[method-assign]


def _always(*arguments: Any) -> bool:
    return True


def _of_part(query: Any, *arguments: Any) -> bool:
    return query.place is not None


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run: microseconds a part, growth alone and all in all."""

    growth_us: float
    part_us: float


def looping(runtime: Runtime) -> App:
    """An application whose part is a turn: one after another."""
    template = Loop(
        functions(),
        carry={"v0": f"v{PRIMITIVES}"},
        until=lambda value: False,
        reads=[f"v{PRIMITIVES}"],
        gives=[f"v{PRIMITIVES}"],
        at_most=MOST,
    )
    outputs = {"value": f"v{PRIMITIVES}"}
    return App("turns", template, inputs={"v0": "any"}, outputs=outputs, runtime=runtime)


def listing(runtime: Runtime) -> App:
    """An application whose part is an item of a list: 64 side by side."""
    gives = {"values": f"v{PRIMITIVES}"}
    template = Each(functions(), over="items", item="v0", gives=gives, at_most=MOST)
    outputs = {"value": "values"}
    return App("items", template, inputs={"items": "any"}, outputs=outputs, runtime=runtime)


async def chain(runtime: Runtime) -> float:
    """Microseconds that ten of the same functions take in a graph of `CHAIN` that does not grow: of
    a few runs the quickest, because a plan is made anew when learned times have moved."""
    outputs = {"value": f"v{CHAIN}"}
    app = App("chain", functions(CHAIN), inputs={"v0": "any"}, outputs=outputs, runtime=runtime)
    seconds = []
    for _ in range(RUNS):
        began = time.perf_counter()
        result = await app.arun({"v0": 0})
        seconds.append(time.perf_counter() - began)
        _check(result["value"] == CHAIN)
    return min(seconds) / CHAIN * PRIMITIVES * 1e6


def functions(count: int = PRIMITIVES) -> Template:
    """A chain of functions, each of which adds one."""
    nodes = [
        component(add_one, name=f"n{i}", inputs={"value": f"v{i}"}, outputs=[f"v{i + 1}"])
        for i in range(count)
    ]
    template = Template.beside(nodes[0])
    for node in nodes[1:]:
        template = template >> node
    return template


async def add_one(value: int) -> int:
    return value + 1


async def turns(app: App, watch: Stopwatch, parts: int) -> Figures:
    """A loop of so many turns."""
    result, figures = await _timed(app, watch, parts, {"v0": 0}, {"loop.at_most": parts})
    _check(result["value"] == parts * PRIMITIVES)
    return figures


async def items(app: App, watch: Stopwatch, parts: int) -> Figures:
    """A list of so many items."""
    result, figures = await _timed(app, watch, parts, {"items": [*range(parts)]}, {})
    _check(result["value"] == [PRIMITIVES + i for i in range(parts)])
    return figures


async def _timed(
    app: App, watch: Stopwatch, parts: int, inputs: dict[str, Any], overrides: dict[str, Any]
) -> tuple[Any, Figures]:
    watch.seconds = 0.0
    began = time.perf_counter()
    result = await app.arun(inputs, overrides=overrides)
    seconds = time.perf_counter() - began
    return result, Figures(watch.seconds / parts * 1e6, seconds / parts * 1e6)


def _check(right: bool) -> None:
    if not right:
        raise AssertionError("a measured run returned a wrong result")
