"""What a driver tells its policies of a query: when it was admitted, and whose it is."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from teola import Each, Generate
from teola.engine import QueryContext
from teola.policies.asker import Asker
from teola.profile import paper
from teola.runtime.in_flight import part_run
from teola.runtime.live.nesting import Terms
from teola.runtime.live.query import query_of
from teola.runtime.observe.trace import Trace
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.core import Core
from teola.schedule.events import State
from teola.schedule.graph_run import GraphRun
from teola.schedule.run import Run
from teola.testing.hash_engines import HashModel
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind
from tests.planted import catches, edited
from tests.recording import Bench
from tests.schedule.plans import call, plan
from tests.schedule.test_submitting import Spy

LOADED_S = 1.0
"""So long the documents of a query took to load."""


@catches(
    "loading-not-counted",
    "a query's age is counted from when its documents are loaded",
    edited(query_of, "began=asker.admitted", "began=done.get_loop().time()"),
)
async def test_loading_counts_as_a_query_s_age() -> None:
    """So who came first goes first, however long the documents took."""
    p = plan(*call("m"))
    async with Bench({"llm": HashModel()}) as bench:
        spy = bench.core.queues["llm"].line.policy = Spy()
        admitted = asyncio.get_running_loop().time() - LOADED_S
        context = QueryContext("q", "b")
        trace = Trace("q", "rag", p, admitted)
        asker = Asker("b", "rag", "q", admitted)
        ending = await bench.live.execute(p, {"question": "why?"}, context, asker, trace)
    assert ending.state is State.OK
    (work,) = spy.seen
    assert (work.asker.tenant, work.asker.app, work.began) == ("b", "rag", admitted)
    assert work.arrival >= admitted + LOADED_S


@catches(
    "inside-is-new",
    "a query inside another is a newcomer",
    edited(query_of, "around.admitted, around.total_s", "asker.admitted, around.total_s"),
)
async def test_a_query_inside_another_is_as_old_as_that_where_times_are_known() -> None:
    p = plan(*call("m"))
    for total_s, age in ((4.0, 3.0), (0.0, 7.0)):
        around = GraphRun("outer", p, began=5.0, admitted=3.0, longer_s=total_s)
        async with Bench({"llm": HashModel()}) as bench:
            spy = bench.core.queues["llm"].line.policy = Spy()
            context, trace = QueryContext("q", "b"), Trace("q", "rag", p, 7.0)
            asker = Asker("b", "rag", "q", 7.0)
            terms = Terms(depth=1, around=around)
            given = {"question": "why?"}
            await bench.live.execute(p, given, context, asker, trace, terms=terms)
        (work,) = spy.seen
        assert (work.began, work.admitted, work.longer_s) == (7.0, age, total_s)


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_who_listens_hears_of_each_query_as_it_begins_and_ends_and_of_none_inside(
    depth: int,
) -> None:
    """And as many are in flight as have begun."""
    heard: list[tuple[object, ...]] = []

    class Listener:
        def began(self, id: str, asker: Asker, now: float) -> None:
            heard.append(("began", id, bench.live.outermost))

        def ended(self, id: str, trace: Trace, well: bool, now: float) -> None:
            heard.append(("ended", id, well))

    p = plan(*call("m"))
    async with Bench({"llm": HashModel()}) as bench:
        bench.live.listeners.append(Listener())
        for id, given in (("q", {"question": "why?"}), ("none", {})):
            trace, asker = Trace(id, "rag", p, 0.0), Asker("b", "rag", id, 0.0)
            terms, context = (
                Terms(depth=depth),
                QueryContext(id, "b", deadline=bench.live.loop.time() + 30.0),
            )
            ending = await bench.live.execute(p, given, context, asker, trace, terms=terms)
            assert bench.live.outermost == 0
            assert ending.state in (State.OK, State.PARTIAL)
        late = QueryContext("late", "b", deadline=bench.live.loop.time() - 1.0)
        trace, asker = Trace("late", "rag", p, 0.0), Asker("b", "rag", "late", 0.0)
        given = {"question": "why?"}
        ending = await bench.live.execute(p, given, late, asker, trace, terms=Terms(depth=depth))
        assert (ending.state, bench.live.outermost) == (State.DEADLINE, 0)
    each = (("q", True), ("none", True), ("late", False))
    expected = [pair for id, well in each for pair in (("began", id, 1), ("ended", id, well))]
    assert heard == (expected if not depth else [])


def simulated(batching: str = "topology") -> Sim:
    """One LLM, which takes one prompt at a time."""
    profile = paper("13b")
    return Sim(profile, batching={"llm": batching}, instances={"llm": 1})


@catches(
    "sim-one-tenant",
    "a simulation knows one tenant",
    edited(Sim._arrive, "Asker(tenant,", "Asker('default',"),
)
def test_a_simulated_query_is_its_tenants() -> None:
    sim = simulated()
    for tenant in ("a", "b"):
        sim.submit(plan(*call("m")), {"question": Tokens(9)}, tenant=tenant, app=f"{tenant}-app")
    spy = sim.core.queues["llm"].line.policy = Spy()
    assert [result.state for result in sim.run()] == [State.OK] * 2
    askers = [(work.asker.tenant, work.asker.app) for work in spy.seen]
    assert askers == [("a", "a-app"), ("b", "b-app")]


@pytest.mark.parametrize(("batching", "second"), [("fair", "b"), ("fifo", "a")])
def test_simulated_tenants_share_an_engine_as_the_policy_has_it(batching: str, second: str) -> None:
    sim, ids = simulated(batching), count()
    size = Tokens(sim.profile.engines["llm"].max_batch)
    for tenant in ("a", "a", "a", "b"):
        sim.submit(plan(*call("m")), {"question": size}, tenant=tenant, id=f"{tenant}{next(ids)}")
    assert [result.id[0] for result in sim.run()][1] == second


class Known(Core):
    """Remembers who asked each run."""

    askers: list[Asker]

    def add(self, run: Run) -> None:
        self.askers.append(run.asker)
        super().add(run)


@catches(
    "asker-copied",
    "each part has an asker of its own",
    edited(part_run, "run.asker,", "type(run.asker)(run.asker.tenant, run.asker.app),"),
)
def test_a_query_and_all_its_parts_have_one_asker() -> None:
    body = Generate(inputs={"context": "topic"})
    each = Each(body, over="topics", item="topic", gives={"all": "answer"})
    kinds = {"question": Kind.TEXT, "topics": Kind.TEXTS}
    plan = Optimiser(Builder("each", each, kinds, {"all": "all"}), paper("13b")).plan
    sim = Sim(paper("13b"))
    core = sim.core = Known({}, sim._measure)
    core.askers = []
    given = {"question": Tokens(9), "topics": [Tokens(20)] * 3}
    sim.submit(plan({}, {"topics": 3}), given, at=2.0, tenant="t")
    (result,) = sim.run()
    assert result.state is State.OK
    first, *others = core.askers
    assert len(others) == 3
    assert all(asker is first for asker in others)
    assert (first.tenant, first.app, first.program, first.admitted) == ("t", "each", result.id, 2.0)
