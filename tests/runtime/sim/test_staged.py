"""Queries as stages of calls: out of a trace, as a graph, and how they are answered again."""

from __future__ import annotations

from typing import cast

import pytest

from teola.engine import Usage
from teola.graph import QUERY, Op, Ref
from teola.profile import Profile
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import Parent, Trace
from teola.runtime.sim import staged as module
from teola.runtime.sim.staged import (
    UNNAMED_APP,
    StagedAnswers,
    StagedCall,
    StagedPlans,
    StagedQuery,
    graph_of,
    in_stages,
    inputs_of,
    staged,
)
from tests.schedule.plans import call, plan, tool

A, B, C, D = (StagedCall(name, n, n + 10) for n, name in enumerate("abcd", 1))
ASKED = StagedQuery(((A, B), (C,), (D, A)), "x")


# --- out of a trace ---------------------------------------------------------------------------


def traced(id: str = "q", start: float = 0.0) -> Trace:
    """Calls `m` and then `n`, each with its decoding; `t` is a function."""
    p = plan(*call("m"), *call("n"), tool("t"))
    trace, at = Trace(id, "app", p, start), p.index
    for head, queued, end in (("m", 1.0, 4.0), ("n", 4.0, 9.0)):
        trace.sent(at[f"{head}.prefill"], 0, 1, start + queued, start + queued + 0.5)
        trace.ended(at[f"{head}.prefill"], 0, start + queued + 1.0)
        trace.ended(at[head], 0, start + end)
        trace.used(Usage(7, 3), at[f"{head}.prefill"])
    trace.sent(at["t"], 0, 1, start, start)
    trace.ended(at["t"], 0, start + 20.0)
    return trace


def test_of_a_trace_the_calls_count_that_have_ended_by_when_they_were_ready() -> None:
    m, n = StagedCall("m", 7, 3), StagedCall("n", 7, 3)
    trace = traced()
    assert staged(trace) == staged(trace, "llm") == ((m,), (n,))
    assert staged(trace, "judge") == ()
    assert trace.plan is not None
    head = trace.plan.index["n.prefill"]
    trace.used(Usage(0, 0), head)
    assert staged(trace) == ((m,), (StagedCall("n", 1, 1),)), "at least a token of each"
    del trace.used_by_head[head]  # type: ignore[attr-defined]
    assert staged(trace) == ((m,),)
    assert staged(Trace("q", "app", None, 0.0)) == ()


def test_a_call_ends_with_its_last_decoding_and_counts_in_parts_as_well() -> None:
    trace, part = traced(), traced("q/m/1", 3.0)
    trace.inner.append(part)
    part.parent = Parent("q", "m")
    m, n = StagedCall("m", 7, 3), StagedCall("n", 7, 3)
    # ready at 1 and 4, and in the part at 4 and 7, when the first of those at 4 has ended
    assert staged(trace) == ((m,), (m, n), (n,))


@pytest.mark.parametrize(
    ("told", "stages"),
    [
        ([], ()),
        ([(0.0, 2.0, A), (2.0, 3.0, B)], ((A,), (B,))),
        ([(0.0, 2.0, A), (1.9, 3.0, B)], ((A, B),)),
        ([(0.0, 9.0, A), (1.0, 2.0, B), (3.0, 4.0, C)], ((A, B), (C,))),
        ([(3.0, 4.0, C), (0.0, 9.0, A), (1.0, 2.0, B)], ((A, B), (C,))),
        ([(0.0, 5.0, A), (0.0, 2.0, B)], ((B, A),)),
        ([(0.0, 0.0, A), (0.0, 1.0, B)], ((A,), (B,))),
    ],
)
def test_a_call_that_was_ready_before_the_first_had_ended_is_beside_it(
    told: list[tuple[float, float, StagedCall]], stages: tuple[tuple[StagedCall, ...], ...]
) -> None:
    assert in_stages(told) == stages


# --- as a graph -------------------------------------------------------------------------------


def test_each_stage_waits_for_all_of_the_one_before() -> None:
    graph = graph_of(ASKED)
    graph.validate()
    assert graph.name == "x"
    heads = [p for p in graph.primitives if p.op is Op.PREFILLING]
    assert [(p.component, p.engine) for p in heads] == [
        (one.component, "llm") for stage in ASKED.stages for one in stage
    ]
    ends = [p.id for p in graph.primitives if p.op is Op.DECODING]
    assert [[order.producer for order in p.after] for p in heads] == [
        [], [], ends[:2], ends[2:3], ends[2:3],
    ]  # fmt: skip
    assert {*graph.inputs} == {f"p{k}" for k in range(5)}
    assert [*graph.outputs.values()] == [Ref(end, "text") for end in ends]
    prompts = [p.input("prompt") for p in heads]
    assert [prompt.parts[0].content for prompt in prompts] == [  # type: ignore[union-attr]
        Ref(QUERY, f"p{k}") for k in range(5)
    ]
    assert {name: int(value) for name, value in inputs_of(ASKED).items()} == {
        "p0": 1, "p1": 2, "p2": 3, "p3": 4, "p4": 1,
    }  # fmt: skip
    assert ASKED.calls == 5
    assert graph_of(StagedQuery(ASKED.stages)).name == UNNAMED_APP


def test_queries_of_one_shape_have_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their lengths; other components, engines, stages and applications are others."""
    plans = StagedPlans(Profile("p", {}))
    first = plans.plan(ASKED)
    longer = tuple(tuple(one._replace(prompt=99) for one in stage) for stage in ASKED.stages)
    assert plans.plan(StagedQuery(longer, "x")) is first
    others = [
        StagedQuery(ASKED.stages, "y"),
        StagedQuery(((A,), (B,), (C,), (D, A)), "x"),
        StagedQuery(((A._replace(engine="judge"), B), (C,), (D, A)), "x"),
        StagedQuery(((B, A), (C,), (D, A)), "x"),
    ]
    assert len({id(plans.plan(one)) for one in [ASKED, *others]}) == 5
    monkeypatch.setattr(module, "MOST_PLANS", 5)
    plans.plan(StagedQuery(((A,),), "z"))
    assert len(plans._plans) == 1, "no more are kept than may be"
    assert plans.plan(ASKED) is not first


def test_each_call_is_as_long_as_it_was() -> None:
    answers = StagedAnswers({"q": ASKED})
    answers.put("r", StagedQuery(((B,),)))
    p = StagedPlans(Profile("p", {})).plan(ASKED)
    query = cast("Query", type("Asked", (), {"plan": p, "id": "q"}))
    told = [answers.call(query, 2 * k) for k in range(5)]
    assert [length for length, _ in told] == [11, 12, 13, 14, 11]
    for k, (length, (delivery,)) in enumerate(told):
        assert (delivery.primitive, delivery.at) == (2 * k + 1, length)
        assert int(delivery.result["text"]) == length
    assert len({delivery.result["text"].text for _, (delivery,) in told}) == 5
