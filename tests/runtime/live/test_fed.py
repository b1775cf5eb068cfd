"""Lists that are still being written: parts begin with the first items, live and simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from teola import App, Condition, Each, Embedding, Generate, QueryExpansion, Runtime, component
from teola.errors import EngineError, QueryFailed
from teola.graph import Op
from teola.profile import Cost, EngineProfile, paper
from teola.runtime.driver import Driver
from teola.runtime.in_flight import may_feed
from teola.runtime.observe.trace import Trace
from teola.runtime.optimiser import Optimiser
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.engine_queue import EngineQueue
from teola.schedule.events import State
from teola.workflow.component import Component, Template
from teola.workflow.components.each import Going
from tests.planted import catches, edited
from tests.runtime.faults import Scripted

LINES = ("one\n", "two\n", "three\n")
NOTES = ["one of why?", "two of why?", "three of why?"]
BROKEN = EngineError("it broke off", retryable=True)
SOON_S = 5.0


began: list[str] = []
noted = asyncio.Event()


@component(outputs="note", pure=True)
async def note(query: str, question: str) -> str:
    began.append(query)
    noted.set()
    return f"{query} of {question}"


@component(outputs="thought", pure=True)
async def thought(question: str) -> str:
    await asyncio.sleep(0.05)
    return question


@component(outputs="note", pure=True, name="late")
async def note_later(query: str, thought: str) -> str:
    began.append(query)
    return f"{query} of {thought}"


def run(
    model: Scripted, template: Component | Template, deadline_s: float = SOON_S
) -> list[str | None]:
    began.clear()
    noted.clear()
    with Runtime({"llm": lambda: model}) as runtime:
        app = App(
            "fed",
            template,
            inputs={"question": "text"},
            outputs={"notes": "notes"},
            runtime=runtime,
        )
        result = app.run(question="why?", deadline_s=deadline_s)
        assert not runtime.live.queries
        notes: list[str | None] = result["notes"]
        return notes


def each(body: Any = note, **config: Any) -> Each:
    return Each(body, over="queries", item="query", gives={"notes": "note"}, **config)


def expanded() -> QueryExpansion:
    return QueryExpansion(n=3)


# --- when they begin ----------------------------------------------------------------------------


@catches(
    "waits-for-all",
    "parts begin when the list is complete",
    edited(Driver.wrote, "self.item_written(query, head, k, item, now)", "False"),
)
def test_a_part_begins_when_its_item_is_written() -> None:
    model = Scripted(["one\n", noted, "two\nthree\n"])
    assert run(model, expanded() >> each()) == NOTES


@catches(
    "begun-twice",
    "what was begun is begun again when the list is complete",
    edited(Going._upto, "first, self.count = self.count,", "first, self.count = 0,"),
)
def test_each_item_is_begun_once() -> None:
    model = Scripted(["one\n", noted, "two\nthree\n"])
    assert run(model, expanded() >> each()) == NOTES
    assert sorted(began) == ["one", "three", "two"]


@catches(
    "without-the-rest",
    "parts begin before all is there that they read",
    edited(may_feed, "all(p == giver or run.ended(p) for p in parents)", "True"),
)
def test_a_part_waits_for_what_else_it_reads() -> None:
    assert run(Scripted(LINES), [expanded(), thought] >> each(note_later)) == NOTES
    assert sorted(began) == ["one", "three", "two"]


@catches(
    "speculates",
    "parts begin in a branch that is not decided yet",
    edited(may_feed, "all(p == giver or run.ended(p) for p in parents)", "True"),
)
def test_no_part_begins_before_its_branch_is_decided() -> None:
    async def decide(question: str) -> bool:
        await asyncio.sleep(0.05)
        return False

    branch = Condition(decide, reads=["question"], then=each())
    notes = run(Scripted([*LINES]), expanded() >> branch)
    assert notes is None
    assert began == []


def test_a_list_that_has_to_be_complete() -> None:
    done = asyncio.Event()

    class Tells(Scripted):
        async def generate(self, call: Any) -> Any:
            async for delta in super().generate(call):
                yield delta
            done.set()

    @component(outputs="note", pure=True, name="was_done")
    async def was_done(query: str) -> bool:
        return done.is_set()

    assert run(Tells(LINES), expanded() >> each(was_done, streamed=False)) == [True] * 3


# --- limits -------------------------------------------------------------------------------------


def test_limits_hold_for_lists_that_are_being_written() -> None:
    with pytest.raises(QueryFailed, match="'queries' has 3 items, and at most 2 are allowed"):
        run(Scripted(LINES), expanded() >> each(at_most=2))
    now, most = 0, 0

    @component(outputs="note", pure=True, name="counted")
    async def counted(query: str) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return query

    assert run(Scripted(LINES), expanded() >> each(counted, at_once=2)) == ["one", "two", "three"]
    assert most == 2


# --- when the call fails ------------------------------------------------------------------------


@catches(
    "begun-anew",
    "a call is repeated although parts have begun with what it wrote",
    edited(EngineQueue.first_token, "work.streamed |= event.to_client", ""),
)
def test_a_call_whose_items_are_used_is_not_begun_anew() -> None:
    model = Scripted(["one\n", noted, BROKEN], LINES)
    with pytest.raises(QueryFailed, match=r"component 'expand', .*it broke off"):
        run(model, expanded() >> each())
    assert len(model.calls) == 1
    assert began == ["one"]


@catches(
    "used-unheard",
    "a call counts as used although nothing has begun",
    edited(Driver.item_written, "used |= self._feed", "used = True or self._feed"),
)
def test_a_call_of_which_nothing_is_used_is_tried_again() -> None:
    model = Scripted(["zero\n", BROKEN], LINES)
    assert run(model, [expanded(), thought] >> each(note_later)) == NOTES
    assert len(model.calls) == 2
    assert sorted(began) == ["one", "three", "two"]


@catches(
    "items-of-two-tries",
    "a list that is written again keeps an item of the try that came to nothing",
    edited(Driver.item_written, "del items[k:]", "del items[k + 1 :]"),
)
def test_a_list_that_is_written_again_has_no_item_twice() -> None:
    """Its parts begin only while it is written for the second time."""
    known = asyncio.Event()

    @component(outputs="thought", pure=True, name="slowly")
    async def slowly(question: str) -> str:
        while len(model.calls) < 2:
            await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_later(0.02, known.set)
        return question

    model = Scripted(["zero\n", BROKEN], ["one\n", known, "two\nthree\n"])
    assert run(model, [expanded(), slowly] >> each(note_later)) == NOTES
    assert sorted(began) == ["one", "three", "two"]


def test_a_call_whose_list_has_to_be_complete_is_tried_again() -> None:
    model = Scripted(["zero\n", BROKEN], LINES)
    assert run(model, expanded() >> each(streamed=False)) == NOTES
    assert len(model.calls) == 2


def test_a_call_that_breaks_off_before_its_first_item_is_tried_again() -> None:
    model = Scripted(["on", BROKEN], LINES)
    assert run(model, expanded() >> each()) == NOTES
    assert len(model.calls) == 2


def test_a_part_that_fails_ends_the_call() -> None:
    @component(outputs="note", pure=True, name="fails")
    async def fails(query: str) -> str:
        raise ValueError("not this one")

    model = Scripted(["one\n", asyncio.Event()])
    with pytest.raises(QueryFailed, match="'each', grow: component 'fails', tool_call: ValueError"):
        run(model, expanded() >> each(fails))
    assert model.generating == 0


# --- simulated ----------------------------------------------------------------------------------


def simulated(
    *after: Component,
    kill_at: float | None = None,
    **more: Any,
) -> tuple[Any, list[Trace]]:
    write = Generate("write", inputs={"question": "query"}, outputs={"answer": "note"})
    app = App(
        "fed",
        expanded() >> [each(write, **more), *after],
        inputs={"question": "text"},
        outputs={"notes": "notes"} | ({"vectors": "vectors"} if after else {}),
    )
    profile = paper("13b")
    slow = EngineProfile(costs={Op.EMBEDDING: Cost(per_item_s=0.5)})
    profile = replace(profile, engines={**profile.engines, "embedding": slow})
    plan = Optimiser(app.builder, profile).plan({}, {})
    traces: list[Trace] = []
    sim = Sim(profile, instances={"llm": 2}, on_finish=lambda q, _: traces.append(q.trace))
    sim.submit(plan, {"question": Tokens(20)})
    if kill_at is not None:
        for instance in (0, 1):
            sim.kill("llm", instance, at=kill_at, back_s=1.0)
    (result,) = sim.run()
    assert not sim.queries
    return result, traces


def first_part_s(traces: Sequence[Trace]) -> float:
    return min(part.admitted for part in traces[0].inner)


def test_simulated_parts_begin_with_their_items() -> None:
    streamed, traces = simulated()
    whole, others = simulated(streamed=False)
    assert streamed.state is whole.state is State.OK
    assert [len(found[0].inner) for found in (traces, others)] == [3, 3]
    assert len(streamed.outputs["notes"]) == 3
    assert first_part_s(traces) < 0.6 * first_part_s(others)
    assert streamed.latency_s < whole.latency_s


def test_a_list_that_is_cut_for_others_is_one_list() -> None:
    result, traces = simulated(Embedding(inputs={"texts": "queries"}))
    assert result.state is State.OK
    plan = traces[0].plan
    assert plan is not None
    assert any(p.op is Op.PARTIAL_DECODING for p in plan.primitives)
    assert plan.feeding
    assert len(traces[0].inner) == 3
    assert first_part_s(traces) < 0.6 * first_part_s(simulated(streamed=False)[1])


def test_a_simulated_call_whose_items_are_used_is_not_begun_anew() -> None:
    _, traces = simulated()
    at = first_part_s(traces) + 0.05
    assert simulated(kill_at=at)[0].state is State.FAILED
    assert simulated(kill_at=at, streamed=False)[0].state is State.OK
