"""What becomes of an answer that several calls may write: its text, and whether it was cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from teola import Generate
from teola.engine import LONGEST_ANSWER, Call, Delta, Usage
from teola.errors import EngineError
from teola.passes import optimise
from teola.profile import default
from teola.runtime.live.live import Live
from teola.runtime.live.query import Ending, Token
from teola.schedule.events import State
from teola.schedule.health import FAILURES
from teola.schedule.plan import Absence, Plan
from teola.testing.hash_engines import HashModel
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind
from tests.planted import catches, edited
from tests.recording import Bench
from tests.runtime.faults import Scripted

CUT = Delta("", "length", Usage())
BUSY = EngineError("busy", retryable=True)


def refining(notes: int, mode: str = "refine", **config: Any) -> Plan:
    template = Generate(mode=mode, inputs={"context": "notes"}, **config)
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


async def test_why_a_text_ended_is_told_of_the_call_that_stands() -> None:
    plan, refused = refining(2), Delta("", "refusal", Usage())
    for rounds, reason in (
        ((["on", CUT], ["two"]), "stop"),
        ((["one"], ["tw", CUT]), "length"),
        ((["one"], ["no", refused]), "refusal"),
    ):
        told = await ended(Scripted(*rounds), plan, "a", "b")
        assert told.trace.finish_reasons == {"answer": reason}


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


# --- trees ------------------------------------------------------------------------------------


class Waiting(HashModel):
    """Answers what a prompt says behind its last mark; before the second piece of text, and for
    `late`, waits until `go` is set. begun: the answers that were."""

    def __init__(self, late: str = "") -> None:
        super().__init__(max_batch=10**6)
        self.late, self.go, self.begun = late, asyncio.Event(), list[str]()

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        prompt = "".join(part.text for part in call.all_parts)
        drafts = prompt.split("merged into one:\n")[1:]
        text = drafts[0] if drafts else prompt.split("Context:\n")[1]
        text = text.removesuffix("\n\nAnswer: ").replace("\n\n", "+")
        self.begun.append(text)
        if text == self.late:
            await self.go.wait()
        yield Delta(f"<{text}")
        if drafts and not self.late:
            await self.go.wait()
        yield Delta(">")
        yield Delta("", "stop", Usage())


async def _asked(model: Waiting, plan: Plan, notes: int) -> tuple[list[str], list[str], Ending]:
    """Tokens of the answer and the calls that were begun before the model goes on; and the end."""
    found: list[str] = []

    def watcher(event: object) -> None:
        if isinstance(event, Token):
            found.append(event.text)

    async with Bench({"llm": model}) as bench:
        given = {"question": "why?", "notes": list("abcdef"[:notes])}
        query = asyncio.create_task(bench.run(plan, given, watcher=watcher))
        for _ in range(200):
            await asyncio.sleep(0)
        early, begun = list(found), list(model.begun)
        model.go.set()
        ending = await query
        assert ending.outputs["answer"] == "".join(found)
        return early, begun, ending


async def test_the_last_merge_of_a_tree_is_streamed_and_no_draft() -> None:
    early, _, ending = await _asked(Waiting(), refining(3, "tree"), 3)
    assert early == ["<<a>+<b>+<c>"]
    assert ending.outputs["answer"] == "<<a>+<b>+<c>>"


async def test_some_answers_are_merged_while_others_are_still_being_written() -> None:
    """Not level by level: only what merges the late one waits for it."""
    early, begun, ending = await _asked(Waiting("f"), refining(6, "tree", fan_in=2), 6)
    assert early == []
    assert begun == ["a", "b", "c", "d", "e", "f", "<a>+<b>", "<c>+<d>", "<<a>+<b>>+<<c>+<d>>"]
    assert ending.outputs["answer"] == "<<<<a>+<b>>+<<c>+<d>>>+<<e>+<f>>>"


@catches(
    "drafts-without-end",
    "a single answer of a tree is not known to be the last",
    edited(Absence.skips, "2 if mode is Aggregation.SEVERAL else 1", "1"),
)
async def test_the_answer_from_a_single_passage_is_streamed() -> None:
    model = Scripted(["on", "e"])
    async with Bench({"llm": model}) as bench:
        found: list[str] = []
        watcher = lambda event: found.append(event.text) if isinstance(event, Token) else None  # noqa: E731
        given = {"question": "why?", "notes": ["a"]}
        ending = await bench.run(refining(3, "tree"), given, watcher=watcher)
    assert found == ["on", "e"]
    assert ending.outputs["answer"] == "one"
    assert len(model.calls) == 1


async def test_one_draft_is_merged_where_only_the_final_answer_is_json() -> None:
    model = Scripted(["one"], ['["one"]'])
    ending = await ended(model, refining(3, "tree", json_schema={"type": "array"}), "a")
    assert ending.outputs["answer"] == ["one"]
    assert len(model.calls) == 2


@catches(
    "draft-for-answer",
    "where the merge fails, the last draft is taken for the answer",
    edited(Absence.skips, "mode is Aggregation.MERGED", "False"),
)
async def test_a_draft_does_not_stand_for_the_merge_that_failed() -> None:
    model = Scripted(["one"], ["two"], [EngineError("lost")])
    async with Bench({"llm": model}) as bench:
        given = {"question": "why?", "notes": ["a", "b"]}
        ending = await bench.run(refining(3, "tree", optional=True), given)
    assert ending.state is State.PARTIAL
    assert ending.outputs["answer"] is None


@pytest.mark.parametrize("more", [0, 1])
async def test_an_answer_without_end_is_stopped(more: int) -> None:
    model = Scripted(["x" * 2**20] * 16 + ["x" * more, "y"] * more)
    async with Bench({"llm": model}) as bench:
        ending = await bench.run(refining(1), {"question": "why?", "notes": ["one"]})
    if more:
        assert "llm writes an answer of more than 16,777,216 characters" in str(ending.error)
    else:
        assert ending.outputs["answer"] == "x" * LONGEST_ANSWER


@catches(
    "breaks-off-unblamed",
    "a server whose answers break off once something was shown is not at fault",
    edited(Live._call, "error.retryable\n", "error.retryable and not query.streamed\n"),
)
async def test_a_server_whose_shown_answers_break_off_gets_no_more_for_a_while() -> None:
    """None of them is written anew, since a client has seen how it began."""
    breaks, works = Scripted(["one ", BUSY]), Scripted(["one ", "two"])
    async with Bench({"llm": [breaks, works]}) as bench:
        seen, given = list[list[str]](), {"question": "why?", "notes": ["a"]}
        for _ in range(FAILURES + 3):
            shown = list[str]()

            def hear(told: object, shown: list[str] = shown) -> None:
                if isinstance(told, Token):
                    shown.append(told.text)

            ending = await bench.run(refining(1), given, watcher=hear)
            seen.append(shown)
            assert (ending.state is State.OK) == (shown == ["one ", "two"])
            assert shown in (["one "], ["one ", "two"])
    assert seen.count(["one "]) == FAILURES == len(breaks.calls)
    assert seen[-3:] == [["one ", "two"]] * 3
