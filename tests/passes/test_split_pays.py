"""Split prefilling goes by the profile: a prefix that would not be done in time is no gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from teola.graph import QUERY, Op, Part, Prompt, Ref, Role
from teola.passes import PIPELINE, optimise
from teola.passes.estimate import kept_tokens, planned_tokens, seconds
from teola.passes.split_prefilling import _Ahead
from teola.passes.timetable import timetable
from teola.profile import Profile, paper
from teola.runtime.sim import Sim
from teola.runtime.values import Tokens
from teola.schedule.plan import Plan
from teola_apps.chat_rag import app as chat_rag
from teola_apps.naive_rag import app
from tests.forgetful import forgetful
from tests.planted import catches, edited
from tests.schedule.plans import call, plan

TESTBED = forgetful(paper("13b"))


def _optimised(chunks: int, profile: Profile = TESTBED):  # type: ignore[no-untyped-def]
    graph = app.builder.build(app.builder.configure({}), {"chunks": chunks})
    return optimise(graph, profile, debug=True)


def _leaf(decisions, applied: bool) -> list[str]:  # type: ignore[no-untyped-def]
    return [
        d.reason
        for d in decisions
        if d.pass_name == "split_prefilling"
        and d.applied is applied
        and d.primitive == "generate.1.prefill"
    ]


def test_a_short_wait_for_the_context_is_not_worth_a_prefill_of_its_own() -> None:
    made = _optimised(chunks=1)
    assert _leaf(made.rewrites, applied=False) == [
        "computing a prefix ahead would take longer than waiting for the rest"
    ]
    assert not _leaf(made.rewrites, applied=True)


def test_what_the_engine_keeps_anyway_is_no_gain() -> None:
    """After the first query the instruction is there, and what follows it is too short: the
    question, and before it the merge's own text."""
    made = _optimised(chunks=48, profile=paper("13b"))
    assert _leaf(made.rewrites, applied=False) == [
        "no prefix is known earlier that is worth a prefill (86 tokens), besides what engine 'llm' "
        "keeps anyway"
    ]
    assert not any(p.op is Op.PARTIAL_PREFILLING for p in made.e_graph.primitives)


def test_a_history_goes_ahead_although_the_instruction_is_kept() -> None:
    graph = chat_rag.builder.build(chat_rag.builder.configure({}), {"chunks": 48})
    made = optimise(graph, paper("13b"), debug=True)
    (ahead, *_) = [p for p in made.e_graph.primitives if p.op is Op.PARTIAL_PREFILLING]
    prompt = ahead.input("prompt")
    assert isinstance(prompt, Prompt)
    assert Role.HISTORY in {part.role for part in prompt.parts}


def _ahead(profile: Profile) -> dict[str, int]:
    """Planned tokens of what chat RAG computes ahead, by call."""
    graph = chat_rag.builder.build(chat_rag.builder.configure({}), {"chunks": 48})
    made = optimise(graph, profile, debug=True).e_graph
    assert optimise(made, profile).e_graph == made, "it changes its mind"
    ahead = [p for p in made.primitives if p.op is Op.PARTIAL_PREFILLING]
    return {p.origin: planned_tokens(made, p) for p in ahead}


def with_llm(**change: Any) -> Profile:
    bed = paper("13b")
    return replace(bed, engines={**bed.engines, "llm": replace(bed.engines["llm"], **change)})


@catches(
    "equal-prefixes-each-for-itself",
    "a prefix is computed ahead of every call that has it",
    edited(_Ahead.tokens, "if guards <= set(p.guards)", "if not parts"),
)
def test_calls_that_begin_alike_have_one_prefix_computed_on_one_instance() -> None:
    """The history before three rounds; on several instances each round may be elsewhere."""
    rounds = [f"generate.{k}.prefill" for k in (1, 2, 3)]
    assert list(_ahead(with_llm(instances=1))) == rounds[:1]
    assert list(_ahead(with_llm(instances=2))) == rounds
    assert list(_ahead(with_llm(instances=1, keeps_prefixes=False))) == rounds


def test_what_calls_of_one_query_share_makes_it_no_later() -> None:
    graph = chat_rag.builder.build(chat_rag.builder.configure({}), {"chunks": 48})
    bed = with_llm(instances=1)

    def took(passes: list[str]) -> float:
        made = optimise(graph, bed, passes)
        sim = Sim(bed)
        given = {"question": Tokens(16), "history": Tokens(1024), "scope": Tokens(0)}
        sim.submit(Plan(made.e_graph, bed, made), {**given, "chunks": [Tokens(256)] * 48})
        (result,) = sim.run()
        return result.finished

    without = [name for name in PIPELINE if name != "split_prefilling"]
    assert took(list(PIPELINE)) <= took(without)


def test_estimates_leave_out_what_is_kept() -> None:
    """In whole blocks, and only at the beginning of a prompt."""
    prompt = Prompt(
        (
            Part(Role.INSTRUCTION, "x" * 4 * 39),
            Part(Role.QUESTION, Ref(QUERY, "question")),
            Part(Role.INSTRUCTION, "x" * 4 * 39),
        )
    )
    prefill, decode = call("m")
    whole = replace(prefill, inputs=(("prompt", prompt),))
    rest = replace(whole, inputs=(("sequence", Ref("a", "sequence")), *whole.inputs))
    graph = plan(whole, decode).graph
    engine = replace(paper("13b").engines["llm"], block_tokens=16)
    assert kept_tokens(graph, whole, engine) == 32
    assert kept_tokens(graph, rest, engine) == 0
    assert kept_tokens(graph, decode, engine) == 0
    assert kept_tokens(graph, whole, replace(engine, keeps_prefixes=False)) == 0
    saved = seconds(graph, whole, TESTBED) - seconds(graph, whole, paper("13b"))
    assert saved == pytest.approx(32 * 0.3 / 512)


def test_a_long_wait_hides_the_prefix() -> None:
    assert _leaf(_optimised(chunks=48).rewrites, applied=True)


def test_a_prefix_that_saves_less_than_a_quarter_of_a_prefill_stays_where_it_is() -> None:
    """A prefill costs 0.20 s and 0.30 s for 512 tokens more: from 86 tokens on a prefix saves a
    quarter of the 0.20 s, and a short instruction with the question has 25."""

    def cut(instruction: str) -> list[str]:
        configs = app.builder.configure({"generate": {"instruction": instruction}})
        made = optimise(app.builder.build(configs, {"chunks": 48}), TESTBED)
        assert made.rewrites
        return _leaf(made.rewrites, applied=True) or _leaf(made.rewrites, applied=False)

    (refused,) = cut("Be brief. ")
    assert refused == "no prefix is known earlier that is worth a prefill (86 tokens)"
    (applied,) = cut("Be brief. " * 30)
    assert "known before the rest" in applied


@pytest.mark.parametrize("chunks", [1, 2, 8, 33, 48, 192])
def test_no_document_gets_a_longer_critical_path(chunks: int) -> None:
    made = _optimised(chunks)
    before = timetable(made.p_graph, TESTBED).length_s
    assert timetable(made.e_graph, TESTBED).length_s <= before
