"""What a driver tells its policies of a query: when it was admitted, and whose it is."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from teola.engine import QueryContext
from teola.policies.asker import Asker
from teola.profile import paper
from teola.runtime.live.query import query_of
from teola.runtime.observe.trace import Trace
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.events import State
from teola.testing.hash_engines import HashModel
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
