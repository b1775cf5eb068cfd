"""Which calls of a query begin alike, and when the next one comes: by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest

from teola import Generate
from teola.engine import NextRead
from teola.graph import Op, Part, Prompt, Ref, Role
from teola.passes import PIPELINE, optimise
from teola.policies.asker import Asker
from teola.profile import Profile
from teola.runtime.next_reads import END, next_reads
from teola.schedule import beginnings as module
from teola.schedule.beginnings import LaterRead, beginnings
from teola.schedule.events import Completed, Started
from teola.schedule.graph_run import GraphRun
from teola.schedule.plan import Plan
from teola.workflow.build import Builder
from teola.workflow.kinds import Kind
from tests.planted import catches, edited
from tests.schedule.plans import QUERY, Primitive, call, plan, tool
from tests.schedule.test_estimates import HOP_S, PROFILE, TOOL_S

LITERAL = Part(Role.INSTRUCTION, "Be brief.\n")
QUESTION = Part(Role.QUESTION, Ref(QUERY, "question"), required=True)


def asking(id: str, *parts: Part, **more: object) -> list[Primitive]:
    """A call with this prompt."""
    head, decoding = call(id)
    given = tuple((name, Prompt(parts) if name == "prompt" else it) for name, it in head.inputs)
    return [replace(head, inputs=given, **more), decoding]  # type: ignore[arg-type]


def twice(profile: Profile | None = PROFILE) -> Plan:
    """A call, a function of its answer, and a call that begins like the first one."""
    found = Part(Role.CONTEXT, Ref("t", "out"))
    primitives = [
        *asking("a", LITERAL, QUESTION, Part(Role.INSTRUCTION, "Plan: ")),
        tool("t", "a"),
        *asking("b", LITERAL, QUESTION, found),
    ]
    return Plan(plan(*primitives).graph, profile)


def generating(mode: str, pieces: int, passes: Sequence[str] = ()) -> Plan:
    """A component that reads so many notes."""
    component = Generate(mode=mode, inputs={"context": "notes"})
    kinds = {"question": Kind.TEXT, "notes": Kind.TEXTS}
    builder = Builder("g", component, kinds, {"answer": "answer"})
    graph = builder.build(builder.configure({}), {"notes": pieces})
    return Plan(optimise(graph, PROFILE, list(passes)).e_graph, PROFILE)


def run_of(made: Plan, *, notes: int = 1, program: str = "") -> GraphRun:
    run = GraphRun("q", made, Asker(program=program or "q"))
    run.handle(Started({"question": 1, "notes": notes}), 0.0)
    return run


def end(run: GraphRun, *ids: str) -> None:
    for id in ids:
        outputs = dict.fromkeys(run.plan.graph[id].outputs, 1)
        run.handle(Completed(run.plan.index[id], outputs), 0.0)


def reads(run: GraphRun, id: str, *sent: str) -> tuple[NextRead, ...]:
    numbers = [run.plan.index[one] for one in sent]
    return next_reads(run, run.plan.index[id], numbers.__contains__)


@catches(
    "from-its-beginning",
    "the time until a call is read again is counted from its beginning",
    edited(module._seconds, "estimate.latest_s + estimate.takes_s", "estimate.latest_s"),
)
def test_the_next_reader_comes_when_what_is_between_has_run() -> None:
    made = twice()
    a, b = made.index["a.prefill"], made.index["b.prefill"]
    first = made.beginnings[a]
    assert (len(first.parts), first.common) == (3, 1)
    ((reader, parts, seconds),) = first.later
    assert (reader, parts) == (b, 2)
    assert seconds == pytest.approx(TOOL_S + HOP_S)
    assert made.beginnings[b].later == ()


def test_where_times_are_not_known_only_the_reader_is() -> None:
    made = twice(None)
    b = made.index["b.prefill"]
    assert made.beginnings[made.index["a.prefill"]].later == (LaterRead(b, 2, None),)
    run = run_of(made)
    assert reads(run, "a.prefill") == (NextRead(2, None), NextRead(END, inf))


@catches(
    "ends-with-literals",
    "what every query begins with is taken to be read by nobody again",
    edited(next_reads, "beginning.common > (reads", "None and (found"),
)
def test_what_other_queries_say_too_is_not_known_to_be_read_by_nobody() -> None:
    run = run_of(twice())
    (first, last) = reads(run, "a.prefill")
    assert first.until == 2
    assert first.seconds == pytest.approx(TOOL_S + HOP_S)
    assert last == NextRead(END, inf)
    end(run, "a.prefill", "a", "t")
    assert reads(run, "b.prefill") == (NextRead(1, None), NextRead(END, inf))


@catches(
    "session-ends-with-its-query",
    "what a session has said is taken to be read by nobody again",
    edited(next_reads, "run.asker.program == run.id", "True"),
)
def test_of_a_session_nobody_knows_what_comes_next() -> None:
    run = run_of(twice(), program="s")
    assert [one.until for one in reads(run, "a.prefill")] == [2]
    assert reads(run, "b.prefill") == (NextRead(1, None),)


def test_a_refinement_reads_at_once_what_its_rounds_share() -> None:
    """Instruction and question; from the second round on, what introduces the answer so far."""
    made = generating("refine", 3)
    run = run_of(made, notes=3)
    heads = [id for id in made.ids if id.endswith("prefill")]
    assert [[one[:2] for one in reads(run, head)] for head in heads[:2]] == [
        [(3, 0.0), (END, inf)],
        [(4, 0.0), (END, inf)],
    ]
    assert reads(run, heads[2]) == (NextRead(2, None), NextRead(END, inf))


@catches(
    "read-twice",
    "who is being served is taken to come later",
    edited(next_reads, "run.ended(reader) or sent(reader)", "run.ended(reader)"),
)
def test_pieces_of_a_tree_read_after_each_other_and_before_what_merges_them() -> None:
    made = generating("tree", 3)
    run = run_of(made, notes=3)
    *pieces, _ = [id for id in made.ids if id.endswith("prefill")]
    order = sorted(pieces, key=lambda id: made.specs[made.index[id]].estimate.latest_s)
    first, *others = order
    assert reads(run, first)[0] == NextRead(4, 0.0), "`Context:`, which the merging has not"
    (alone, *_) = reads(run, first, *others)
    assert alone == NextRead(3, 0.0), "the merging comes when all pieces are read"
    end(run, *others)
    assert reads(run, first)[0] == alone, "who has read it does not come again"


def test_a_piece_that_is_computed_ahead_is_read_by_its_rest() -> None:
    made = generating("refine", 2, list(PIPELINE))
    pieces = [i for i, p in enumerate(made.primitives) if p.op is Op.PARTIAL_PREFILLING]
    for i in pieces:
        rest = made.rest[i]
        parts = len(made.beginnings[i].parts)
        assert (rest, parts) in [one[:2] for one in made.beginnings[i].later]
        assert made.beginnings[rest].parts[:parts] == made.beginnings[i].parts


def test_parts_that_are_absent_are_not_counted() -> None:
    optional = Part(Role.HISTORY, Ref(QUERY, "notes"))
    primitives = [
        *asking("a", optional, QUESTION),
        tool("t", "a"),
        *asking("b", optional, QUESTION, Part(Role.CONTEXT, Ref("t", "out"))),
    ]
    made = Plan(plan(*primitives).graph, PROFILE)
    for notes, until in ((1, 2), (-1, 1)):
        run = GraphRun("q", made)
        run.handle(Started({"question": 1, "notes": notes}), 0.0)
        assert reads(run, "a.prefill")[0].until == until
    assert made.beginnings[made.index["a.prefill"]].common == 1, "a conversation goes on"


def test_other_engines_read_nothing_of_it() -> None:
    other = [replace(p, engine="other") for p in asking("b", LITERAL, QUESTION)]
    answer = {"answer": Ref("a", "out"), "other": Ref("b", "out")}
    made = plan(*asking("a", LITERAL, QUESTION), *other, outputs=answer)
    assert [one.later for one in made.beginnings.values()] == [(), ()]


def test_it_takes_no_longer_for_many_calls_than_for_each_of_them() -> None:
    made = generating("tree", 400)
    found = beginnings(made.primitives, made.specs, made.sequence_of)
    assert max(len(one.later) for one in found.values()) <= 3 * module.NEXT
