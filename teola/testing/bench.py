"""Bench: a live driver with engines, without documents, optimiser or threads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Self

from teola.engine import Engine, QueryContext
from teola.policies.asker import Asker
from teola.profile import EngineProfile
from teola.runtime.engines import EngineConfig, queue_for
from teola.runtime.hosts.local import LocalHost
from teola.runtime.in_flight import Query
from teola.runtime.live.live import ON_ITS_OWN, Live
from teola.runtime.live.nesting import Terms
from teola.runtime.live.query import Ending, Watcher
from teola.runtime.observe.trace import Trace
from teola.schedule.core import Core
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import Finish, State
from teola.schedule.plan import Plan


class Bench:
    """Runs plans: `async with Bench({"llm": HashModel()}) as bench: await bench.run(plan, inputs)`.

    engines: by name, one or a list of instances. profile: of each of them. left: what a query's
    store held when it ended, besides its outputs.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine | Sequence[Engine]],
        *,
        batching: str = "topology",
        routing: str = "least_loaded",
        profile: EngineProfile | None = None,
    ) -> None:
        self.batching, self.routing, self.profile = batching, routing, profile
        self.engines: dict[str, list[Engine]] = {
            name: list(given) if isinstance(given, Sequence) else [given]
            for name, given in engines.items()
        }
        self.left: list[str] = []
        self._ids = count()

    def make_core(self, queues: Mapping[str, EngineQueue], live: Live) -> Core:
        """The core of its driver."""
        return Core(queues, live._measure)

    async def __aenter__(self) -> Self:
        bench = self

        class Watched(Live):
            def finished(self, query: Query, command: Finish, now: float) -> None:
                if command.state in (State.OK, State.PARTIAL):
                    bench.left += _left(query)
                super().finished(query, command, now)  # type: ignore[arg-type]

        self.live = Watched(asyncio.get_running_loop())
        queues = {}
        for name, instances in self.engines.items():
            config = EngineConfig(
                type(instances[0]),
                instances=len(instances),
                batching=self.batching,
                routing=self.routing,
            )
            queues[name] = queue_for(name, instances, config, self.profile)
            for i, engine in enumerate(instances):
                self.live.hosts[name, i] = host = LocalHost(engine, i)
                await host.start()
        self.core = self.live.core = self.make_core(queues, self.live)
        return self

    async def __aexit__(self, *_: object) -> None:
        for host in self.live.hosts.values():
            await host.close()

    def start(
        self,
        plan: Plan,
        inputs: Mapping[str, Any],
        *,
        watcher: Watcher | None = None,
        deadline_s: float = float("inf"),
        tenant: str = "default",
        part_of: str = "",
        id: str = "",
        terms: Terms = ON_ITS_OWN,
    ) -> asyncio.Task[Ending]:
        """Begin a query."""
        now = asyncio.get_running_loop().time()
        id = id or f"q{next(self._ids)}"
        context = QueryContext(id, tenant, now + deadline_s, part_of=part_of)
        trace = Trace(id, "bench", plan, now)
        asker = Asker(tenant, "bench", context.program, now)
        work = self.live.execute(plan, inputs, context, asker, trace, watcher, terms=terms)
        return asyncio.ensure_future(work)

    async def run(self, plan: Plan, inputs: Mapping[str, Any], **more: Any) -> Ending:
        """Run a query to its end."""
        return await self.start(plan, inputs, **more)

    async def settle(self) -> None:
        """Wait until every task that the driver spawned has ended and was heard of."""
        while self.live._tasks or self.live._inbox or self.live._scheduled:
            await asyncio.sleep(0)

    def assert_idle(self) -> None:
        """Raise AssertionError unless nothing is queued, in flight, stored or scheduled."""
        assert not self.live.queries
        assert not self.core.runs
        assert not self.live._tasks
        for name, queue in self.core.queues.items():
            assert queue.idle, f"{name}: {queue.works} {queue.instances}"
            assert queue.queued == 0
            assert all(i.weight == 0 and i.entries == 0 for i in queue.instances), queue.instances


def _left(query: Query) -> list[str]:
    graph = query.plan.graph
    kept = {query.plan.index[r.producer] for r in graph.outputs.values() if r.producer != "query"}
    left = [query.plan.ids[i] for i in query.store.values if i not in kept]
    return left + [f"a slice of {query.plan.ids[i]}" for i in query.store._slices]
