"""Answers that are known before a call is made: who is given what of them, and when no more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from teola.graph import Ref
from teola.runtime.live.nesting import Terms
from teola.runtime.live.query import Ending
from teola.runtime.live.steps import Steps
from teola.schedule.events import State
from teola.schedule.plan import Plan
from tests.recording import Bench
from tests.runtime.faults import Scripted
from tests.schedule.plans import Guard, call, condition, plan

LINES = {"text": "one\ntwo\nthree", "end": ""}


async def known(p: Plan, **kept: Any) -> tuple[Ending, Scripted]:
    """How a query ends of which these steps were kept."""
    model = Scripted(["never"])
    async with Bench({"llm": model}) as bench:
        terms = Terms(steps=Steps("q", {key: json.dumps(step) for key, step in kept.items()}))
        given = {"question": "why?", "notes": "a note"}
        ending = await bench.run(p, given, id="q", terms=terms, deadline_s=5)
        await bench.settle()
        bench.assert_idle()
    return ending, model


@pytest.mark.parametrize("wanted", [("m.0",), ("m.1",), ("m.2",), ("m.0", "m.2")])
async def test_a_known_answer_is_given_as_far_as_its_query_wants_it(
    wanted: tuple[str, ...],
) -> None:
    """With the last that it wants it has ended: nothing of it is kept or noted any more."""
    outputs = {name: Ref(name, "out") for name in wanted}
    ending, model = await known(plan(*call("m", 3), outputs=outputs), **{"m.0": LINES})
    assert ending.state is State.OK
    assert {*ending.outputs} == {*wanted}
    assert model.calls == []
    last = max(int(name[-1]) for name in wanted)
    states = {span.primitive: span.state for span in ending.trace.spans}
    noted = [name for name, state in states.items() if state == "known"]
    assert noted == [f"m.{k}" for k in range(last + 1)]


@pytest.mark.parametrize("branch", ["then", "otherwise"])
async def test_what_of_a_known_answer_was_skipped_is_not_given(branch: str) -> None:
    """While its query goes on."""
    head, *items = call("m", 3)
    items[2] = replace(items[2], guards=(Guard("c", "then"),))
    outputs = {"first": Ref("m.0", "out"), "last": Ref("m.2", "out"), "later": Ref("n", "out")}
    p = plan(condition("c"), head, *items, *call("n"), outputs=outputs)
    steps = {"m.0": LINES, "c": {"gives": {"branch": branch}}}
    ending, model = await known(p, **steps)
    assert (ending.state, ending.outputs["first"], len(model.calls)) == (State.OK, True, 1)
    assert (ending.outputs["last"] is not None) is (branch == "then")
    states = [span.state for span in ending.trace.spans if span.primitive == "m.2"]
    assert states == ["known" if branch == "then" else "skipped"]


@pytest.mark.parametrize("pieces", [False, True])
async def test_before_a_known_answer_no_piece_of_its_prompt_is_computed(pieces: bool) -> None:
    p = plan(*call("m", ahead=pieces))
    ending, model = await known(p, m={"text": "It rains.", "end": "length"})
    assert ending.outputs == {"answer": True}
    assert (ending.state, model.calls) == (State.OK, [])
    assert ending.trace.finish_reasons == {"answer": "length"}
    assert ending.trace.cut
    states = {span.primitive: span.state for span in ending.trace.spans}
    heads = ["m.ahead", "m.prefill"] if pieces else ["m.prefill"]
    assert states == {**dict.fromkeys(heads, "done"), "m": "known"}
