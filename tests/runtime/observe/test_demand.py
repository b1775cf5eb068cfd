"""What a query took, counted from its records: the same as its spans tell, and by hand."""

from __future__ import annotations

import pytest

from teola.graph import Op
from teola.passes import optimise
from teola.profile import Cost, EngineProfile, Profile, StepTime, paper
from teola.runtime.in_flight import Query
from teola.runtime.observe.demand import demand, done, timings
from teola.runtime.observe.trace import Trace
from teola.runtime.sim import Sim, SimulatedQuery
from teola.runtime.sim.outcome import Planned
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from teola_apps.advanced_rag import app as advanced_rag
from tests.schedule.plans import call, plan, tool


def keeping(traces: list[Trace]) -> dict[str, object]:
    def finished(query: Query, result: SimulatedQuery) -> None:
        traces.append(query.trace)

    return {"on_finish": finished}


@pytest.fixture(scope="module")
def crowd() -> list[Trace]:
    """Six queries of advanced RAG at once, so that they share batches and wait for each other."""
    builder, profile = advanced_rag.builder, paper("13b")
    graph = builder.build(builder.configure({}), {"chunks": 48})
    found: list[Trace] = []
    sim = Sim(profile, **keeping(found))  # type: ignore[arg-type]
    inputs = {"question": Tokens(14), "chunks": [Tokens(256)] * 48, "scope": Tokens(0)}
    for _ in range(6):
        sim.submit(Plan(optimise(graph, profile, None).e_graph), inputs)
    sim.run()
    assert len(found) == 6
    return found


def test_timings_are_those_of_the_spans(crowd: list[Trace]) -> None:
    for trace in crowd:
        counted = sorted(
            (t.engine, t.op, round(t.wait_s, 9), round(t.execution_s, 9), t.batch_size)
            for t in timings(trace)
        )
        shown = sorted(
            (s.engine, s.op, round(s.start - s.queued, 9), round(s.end - s.start, 9), s.batch_size)
            for s in trace.spans
            if s.engine and s.state in ("done", "failed")
        )
        assert counted == shown
        assert len(counted) > 20


def test_what_ran_is_what_the_spans_show(crowd: list[Trace]) -> None:
    for trace in crowd:
        shown = {s.primitive for s in trace.spans if s.state == "done" and s.engine}
        assert len(done(trace)) == len(shown) > 20


def test_a_crowd_needs_no_more_for_itself_than_its_latency(crowd: list[Trace]) -> None:
    for trace in crowd:
        assert 0 < demand(trace).own_s <= trace.latency_s + 1e-9
    waits = [trace.latency_s - demand(trace).own_s for trace in crowd]
    assert max(waits) > 0.1, "some waited for others"


def llm() -> Profile:
    """A prompt takes 1 s whatever its length, a decoding step 0.1 s."""
    engine = EngineProfile(
        step=StepTime.of(Cost(base_s=1.0), Cost(base_s=0.1)), max_batch=1000, max_sequences=1
    )
    return Profile("test", {"llm": engine})


def test_a_call_has_its_place_until_its_last_token() -> None:
    """2 s each, one after the other: the second has waited for 2 s, which is not its own time."""
    found: list[Trace] = []
    sim = Sim(llm(), outcomes=Planned(answer_tokens=11), **keeping(found))  # type: ignore[arg-type]
    for id in "ab":
        sim.submit(plan(*call("m")), {"question": Tokens(10)}, id=id)
    sim.run()
    assert [trace.latency_s for trace in found] == pytest.approx([2.0, 4.0])
    for trace in found:
        assert demand(trace).own_s == pytest.approx(2.0)
        assert demand(trace).work == pytest.approx({"llm": 2.0})


def test_who_shares_a_batch_shares_its_time() -> None:
    found: list[Trace] = []
    profile = Profile("test", {"tool": EngineProfile({Op.TOOL_CALL: Cost(base_s=1.0)})})
    options = {"python": {"max_wait_s": 0.5}}
    sim = Sim(profile, batching="fifo", policy_options=options, **keeping(found))  # type: ignore[arg-type]
    for id in "ab":
        sim.submit(plan(tool("t")), {}, id=id)
    sim.run()
    for trace in found:
        assert demand(trace).work == pytest.approx({"python": 0.5})
        assert demand(trace).own_s == pytest.approx(1.0)


def tries(*told: tuple[float, float | None, str]) -> Trace:
    """A primitive that was sent at each first time, and came back at each second one."""
    trace = Trace("q", "app", plan(tool("t")), 0.0)
    for sent, ended, state in told:
        trace.sent(0, 0, 1, 0.0, sent)
        if ended is not None:
            trace.ended(0, 0, ended, state)
    return trace


def test_a_try_that_failed_counts_until_it_did() -> None:
    taken = demand(tries((1.0, 3.0, "failed"), (10.0, 12.0, "done")))
    assert taken.work == {"python": 4.0}
    assert taken.own_s == 4.0


def test_a_try_on_a_lost_instance_counts_until_the_next_one() -> None:
    assert demand(tries((1.0, None, ""), (3.0, 6.0, "done"))).work == {"python": 5.0}
    late = tries((1.0, None, ""), (3.0, 3.5, "failed"))
    late.ended(0, 0, 6.0)
    assert demand(late).work == {"python": 5.0}


def test_a_try_that_was_given_up_counts_nothing() -> None:
    assert demand(tries((1.0, 2.0, "failed"), (5.0, None, ""))).work == {"python": 1.0}


def test_a_query_that_never_had_a_plan_took_nothing() -> None:
    trace = Trace("q", "app", None, 5.0)
    trace.step("load", 6.0, 8.0)
    assert (demand(trace).own_s, dict(demand(trace).work)) == (2.0, {})
    assert (list(timings(trace)), done(trace)) == ([], [])
