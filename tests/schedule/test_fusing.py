"""A piece of a prompt that was not sent is computed with the rest of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from teola.graph import Op, Part, Prompt, Ref, Role
from teola.passes.rewrite import map_refs
from teola.schedule.core import Core
from teola.schedule.events import (
    AbortRequest,
    Cancelled,
    Completed,
    Fused,
    Release,
    Skipped,
    Started,
    State,
)
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan
from teola.schedule.validate import validate, validate_stored
from tests.planted import catches, edited
from tests.schedule.ends import ended
from tests.schedule.plans import call, plan, tool
from tests.schedule.test_submitting import Bed

LATE = plan(tool("late"), *call("m", ahead=True, late="late"))
"""`m.prefill` continues `m.ahead` and reads `late`."""


FULL = 1000
"""Tokens that the LLM has room for."""


def busy(p: Plan = LATE) -> Bed:
    """The LLM has room for nothing but what is there."""
    bed = Bed(max_batch=FULL)
    bed.begin("other", plan(*call("n")), sizes={"n.prefill": FULL})
    bed.begin("q", p)
    return bed


def run_functions(bed: Bed, now: float) -> list[Any]:
    """A round, after which all functions that were sent are done; the commands that follow."""
    found: list[Any] = []
    for sent in bed.sent(now):
        if sent.engine == "python":
            found += bed.core.handle(ended(sent, *[{"out": 1}] * len(sent.slices)), now)
            validate(bed.core, now)
    return found


@catches(
    "never-fused",
    "a piece that is queued is computed by itself",
    edited(GraphRun._settled, "self._fuse(piece, child)", "pass"),
)
def test_a_call_takes_a_piece_along_that_still_waits() -> None:
    bed = busy()
    ahead, rest = LATE.index["m.ahead"], LATE.index["m.prefill"]
    assert Fused("q", ahead) in run_functions(bed, 0.0)
    run, works = bed.core.runs["q"], bed.core.queues["llm"].works
    assert run.fused == {rest: (ahead,)}
    assert run.before(rest) == -1
    assert ("q", ahead) not in works
    assert works["q", rest].fused_tokens == LATE.specs[ahead].planned_tokens > 0
    assert works["q", rest].home == -1


def test_what_a_piece_gave_is_not_to_be_found() -> None:
    bed = busy()
    run_functions(bed, 0.0)
    validate_stored(bed.core.runs["q"], {LATE.index["late"]})


@catches(
    "taken-back-late",
    "a piece is taken back that an instance works on",
    edited(Core._recall, "work.flying or work.tries or ", ""),
)
def test_a_piece_that_was_sent_is_waited_for() -> None:
    bed = Bed(max_batch=FULL)
    bed.begin("q", LATE)
    run_functions(bed, 0.0)
    assert not bed.core.runs["q"].fused
    assert ("q", LATE.index["m.ahead"]) in bed.core.queues["llm"].works


@catches(
    "too-large",
    "a prompt is made that no instance has room for beside others",
    edited(Core._recall, "tokens > queue.instances.least", "False"),
)
def test_a_prompt_that_would_wait_for_an_idle_instance_stays_in_pieces() -> None:
    bed = busy()
    bed.begin("large", LATE, sizes={"m.ahead": FULL - 100})
    run_functions(bed, 0.0)
    assert bed.core.runs["q"].fused
    assert not bed.core.runs["large"].fused
    works = bed.core.queues["llm"].works
    assert works["large", LATE.index["m.ahead"]].wanted


@pytest.mark.parametrize("over", [0, 1])
def test_a_prompt_that_just_fits_is_computed_at_once(over: int) -> None:
    bed = busy()
    rest = LATE.specs[LATE.index["m.prefill"]].planned_tokens
    bed.begin("large", LATE, sizes={"m.ahead": FULL - rest + over})
    run_functions(bed, 0.0)
    assert bool(bed.core.runs["large"].fused) == (not over)


def test_pieces_are_taken_along_in_the_order_in_which_they_are_read() -> None:
    """The third piece takes the second along, which has taken the first."""
    ahead, rest, *decoding = call("m", ahead=True, late="later")
    middle = replace(
        rest,
        id="m.middle",
        op=Op.PARTIAL_PREFILLING,
        inputs=(rest.inputs[0], ("prompt", Prompt((Part(Role.CONTEXT, Ref("late", "out")),)))),
    )
    rest = replace(rest, inputs=(("sequence", Ref("m.middle", "sequence")), rest.inputs[1]))
    p = plan(tool("late"), tool("later", "late"), ahead, middle, rest, *decoding)
    bed = busy(p)
    for now in (0.0, 1.0):
        run_functions(bed, now)
    pieces = p.index["m.ahead"], p.index["m.middle"]
    run, works = bed.core.runs["q"], bed.core.queues["llm"].works
    assert run.fused == {p.index["m.prefill"]: pieces}
    tokens = sum(p.specs[piece].planned_tokens for piece in pieces)
    assert works["q", p.index["m.prefill"]].fused_tokens == tokens
    assert not [key for key in works if key[0] == "q" and key[1] in pieces]


@catches(
    "let-go-early",
    "what a fused piece reads is gone when its call is tried again",
    edited(GraphRun._keeps, "return True", "return False"),
)
def test_what_a_piece_reads_is_kept_until_the_call_is_over() -> None:
    """The call may have to be repeated, with the piece."""
    early = Part(Role.QUESTION, Ref("early", "out"), required=True)
    ahead, *rest = call("m", ahead=True, late="late")
    ahead = replace(ahead, inputs=(("prompt", Prompt((early,))),))
    p = plan(tool("early"), tool("late", "early"), ahead, *rest)
    bed = busy(p)
    done = [*run_functions(bed, 0.0), *run_functions(bed, 1.0)]
    assert Fused("q", p.index["m.ahead"]) in done
    assert Release("q", p.index["early"]) not in done


def test_all_that_pieces_read_is_let_go_when_their_call_is_over() -> None:
    reads = {"m.ahead": ("early", "soon"), "m.middle": ("late",), "m.prefill": ("later",)}
    ahead, rest, decoding = call("m", ahead=True, late="later")
    prompts = {
        id: ("prompt", Prompt(tuple(Part(Role.CONTEXT, Ref(source, "out")) for source in sources)))
        for id, sources in reads.items()
    }
    ahead = replace(ahead, inputs=(prompts["m.ahead"],))
    middle = replace(
        rest,
        id="m.middle",
        op=Op.PARTIAL_PREFILLING,
        inputs=(("sequence", Ref("m.ahead", "sequence")), prompts["m.middle"]),
    )
    rest = replace(rest, inputs=(("sequence", Ref("m.middle", "sequence")), prompts["m.prefill"]))
    sources = [source for of in reads.values() for source in of]
    p = plan(*map(tool, sources), ahead, middle, rest, decoding)
    run, out = GraphRun("q", p), list[Any]()
    run.attach(out, lambda command: True)
    run.handle(Started({"question": 1, "notes": 1}), 0.0)
    for id in (*sources, "m.prefill"):
        run.handle(Completed(p.index[id], dict.fromkeys(p.primitives[p.index[id]].outputs, 1)), 1.0)
    assert run.fused == {p.index["m.prefill"]: (p.index["m.ahead"], p.index["m.middle"])}
    assert not [c for c in out if isinstance(c, Release)]
    run.handle(Completed(p.index["m"], {"out": 1}), 2.0)
    released = {p.ids[c.primitive] for c in out if isinstance(c, Release)}
    assert released >= {*sources}


def test_a_query_that_is_cancelled_leaves_nothing() -> None:
    bed = busy()
    run_functions(bed, 0.0)
    run = bed.core.runs["q"]
    bed.core.tell("q", Cancelled(), 2.0)
    assert run.state is State.CANCELLED
    assert not [key for key in bed.core.queues["llm"].works if key[0] == "q"]


def test_a_piece_that_two_calls_read_is_nobody_s() -> None:
    ahead, *one = call("m", ahead=True)
    _, *two = call("n", ahead=True)
    shared = [
        map_refs(p, lambda ref: replace(ref, producer=OTHER.get(ref.producer, ref.producer)))
        for p in two
    ]
    p = plan(ahead, *one, *shared)
    assert set(p.rest) == set(p.piece) == {-1}


OTHER = {"n.ahead": "m.ahead"}


@catches(
    "fused-only-when-full",
    "once anything of a query was short or skipped, nothing of it is fused any more",
    edited(
        GraphRun._fuse,
        "if self.status[piece] != RUNNING:",
        "if self.status[piece] != RUNNING or self._short:",
    ),
)
def test_a_call_takes_a_piece_along_although_something_of_its_query_is_missing() -> None:
    bed = busy(plan(tool("late"), tool("never"), *call("m", ahead=True, late="late")))
    (run,) = (run for run in bed.core.runs.values() if run.id == "q")
    found: list[Any] = []
    for sent in bed.sent(0.0):
        if sent.engine == "python":
            counts = [{"out": 0}] * len(sent.slices)
            found += bed.core.handle(ended(sent, *counts), 0.0)
            validate(bed.core, 0.0)
    assert run._short
    assert Fused("q", run.plan.index["m.ahead"]) in found


@catches(
    "skipped-late",
    "the rest of a prompt that will have no data waits for its piece all the same",
    edited(
        GraphRun._settled,
        "elif self._short and self._absence",
        "elif self._short and plan.piece[child] < 0 and self._absence",
    ),
)
def test_a_rest_without_data_is_skipped_while_its_piece_is_computed() -> None:
    """And the piece with it: nobody will read that."""
    ahead, rest, *decoding = call("m", ahead=True, late="late")
    needed = Prompt((Part(Role.CONTEXT, Ref("late", "out"), required=True),))
    rest = replace(rest, inputs=(rest.inputs[0], ("prompt", needed)))
    p = plan(tool("late"), ahead, rest, *decoding)
    bed = Bed(max_batch=FULL)
    bed.begin("q", p)
    (late,) = (sent for sent in bed.sent(0.0) if sent.engine == "python")
    done = bed.core.handle(ended(late, {}), 1.0)
    assert Skipped("q", p.index["m.prefill"]) in done
    assert any(isinstance(c, AbortRequest) and c.primitive == p.index["m.ahead"] for c in done)
