"""What becomes of an answer that several calls may write: its text, and whether it was cut."""

from __future__ import annotations

from typing import Any

import pytest

from teola import Generate
from teola.engine import Delta, Usage
from teola.errors import EngineError
from teola.passes import optimise
from teola.profile import default
from teola.runtime.live.query import Ending, Token
from teola.schedule.events import State
from teola.schedule.plan import Plan
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind
from tests.deterministic import HashModel
from tests.recording import Bench
from tests.runtime.faults import Scripted

CUT = Delta("", "length", Usage())
BUSY = EngineError("busy", retryable=True)


def refining(notes: int, **config: Any) -> Plan:
    template = Generate(mode="refine", inputs={"context": "notes"}, **config)
    kinds = {"question": Kind.TEXT, "notes": Kind.TEXTS}
    builder = Builder("test", template, kinds, {"answer": "answer"})
    graph = builder.build(builder.configure({}), {"notes": notes})
    return Plan(optimise(graph, default([HashModel().spec]), debug=True).e_graph)


async def ended(model: Scripted, plan: Plan, *notes: str) -> Ending:
    async with Bench({"llm": model}) as bench:
        ending = await bench.run(plan, {"question": "why?", "notes": list(notes)})
        assert ending.state is State.OK, ending.error
        return ending


async def test_a_round_reads_the_json_that_the_one_before_wrote() -> None:
    model = Scripted(['["a", ', '"b"]'], ['["a", "c"]'])
    schema = {"type": "array", "items": {"type": "string"}}
    ending = await ended(model, refining(2, json_schema=schema), "one", "two")
    assert ending.outputs["answer"] == ["a", "c"]
    assert '["a", "b"]' in [part.text for part in model.calls[1].parts]


async def test_of_several_rounds_the_last_one_is_cut_or_not() -> None:
    plan = refining(2)
    last = await ended(Scripted(["one"], ["tw", CUT]), plan, "a", "b")
    assert (last.outputs["answer"], last.trace.cut) == ("tw", True)
    draft = await ended(Scripted(["on", CUT], ["two"]), plan, "a", "b")
    assert (draft.outputs["answer"], draft.trace.cut) == ("two", False)


async def test_a_cut_round_is_the_answer_where_the_later_ones_had_nothing_to_read() -> None:
    ending = await ended(Scripted(["on", CUT]), refining(3), "a")
    assert (ending.outputs["answer"], ending.trace.cut) == ("on", True)


async def test_a_cut_try_that_fails_leaves_no_mark_on_the_next() -> None:
    ending = await ended(Scripted(["on", CUT, BUSY], ["one"]), refining(1), "a")
    assert (ending.outputs["answer"], ending.trace.cut) == ("one", False)


@pytest.mark.parametrize(("notes", "told"), [(1, ["on", "e"]), (2, ["tw", "o"])])
async def test_the_round_that_is_certain_to_be_the_last_is_streamed(
    notes: int, told: list[str]
) -> None:
    """With fewer notes than rounds an earlier one is, as soon as one knows that."""
    model, found = Scripted(["on", "e"], ["tw", "o"]), []
    async with Bench({"llm": model}) as bench:
        given = {"question": "why?", "notes": ["a", "b"][:notes]}
        watcher = lambda event: found.append(event) if isinstance(event, Token) else None  # noqa: E731
        ending = await bench.run(refining(3), given, watcher=watcher)
    assert [token.text for token in found] == told
    assert ending.outputs["answer"] == "".join(told)
