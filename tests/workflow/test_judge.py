"""Judge and WebSearch: what they ask, how a verdict is read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from teola import App, Condition, Generate, Judge, WebSearch
from teola.errors import InputError, TemplateError, UnknownName
from teola.graph import ConditionParams, DecodeParams, Graph, Guard, Op, Prompt, WebSearchParams
from teola.workflow.components.judge import says_yes
from teola_apps.search_agent import app

YES = [
    "yes", "Yes.", "**Yes**", "Answer: yes", "The answer is yes.", '{"search": true}',
    "<think>no need, no, no</think>\nyes", "Yes, because no draft is perfect.",
]  # fmt: skip
NO = [
    "no", "No.", "**No**", "_no_", "Answer: no", "Verdict: No", "The answer is no.",
    '{"search": false}', "No search is needed: the draft is right.", "\n\nno\n",
    "<think>yes? yes!</think> No", "The draft is complete and right, so no.",
]  # fmt: skip
UNCLEAR = [
    "", "   ", "Not sure", "I have no idea whether it is", "nonsense", "No, but yes", "yes and no",
    "No doubt it is wrong. Search needed: yes", "<think>no", "Nothing in the documents answers it.",
    "noyes", "nein",
]  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "searches"),
    [*((v, True) for v in YES), *((v, False) for v in NO), *((v, True) for v in UNCLEAR)],
)
def test_only_a_plain_no_keeps_from_searching(verdict: str, searches: bool) -> None:
    assert says_yes(verdict) is searches


def test_where_there_is_no_verdict_it_searches() -> None:
    nothing: Any = None
    assert says_yes(nothing)


def graph(**overrides: dict[str, object]) -> Graph:
    return app.builder.build(app.builder.configure(overrides), {})


def test_the_judge_is_a_call_and_a_condition() -> None:
    made = graph()
    made.validate()
    mine = {p.id: p for p in made.primitives if p.component == "judge"}
    assert [p.op for p in mine.values()] == [Op.PREFILLING, Op.DECODING, Op.CONDITION]
    assert {p.engine for p in mine.values()} == {"judge", ""}
    prompt = mine["judge.prefill"].input("prompt")
    assert isinstance(prompt, Prompt)
    assert [ref.producer for ref in prompt.refs()] == ["query", "draft.decode"]
    params = mine["judge.decode"].params
    assert isinstance(params, DecodeParams)
    assert params.max_tokens == 4
    decides = mine["judge.decide"].params
    assert isinstance(decides, ConditionParams)
    assert (decides.branches, decides.prefer) == (("then", "otherwise"), "then")
    guards = {p.id: p.guards for p in made.primitives}
    assert guards["search.search"] == guards["generate.decode"] == (Guard("judge.decide", "then"),)
    assert guards["direct.decode"] == (Guard("judge.decide", "otherwise"),)
    assert guards["draft.decode"] == guards["output.answer"] == ()


def test_parameters_can_be_overridden() -> None:
    made = graph(judge={"max_tokens": 9, "instruction": "Yes?"}, search={"top_k": 7})
    params = made["judge.decode"].params
    assert isinstance(params, DecodeParams)
    assert params.max_tokens == 9
    assert made["search.search"].params == WebSearchParams(7)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"search": {"top_k": 0}}, "search.top_k"),
        ({"search": {"top_k": 201}}, "search.top_k"),
        ({"judge": {"max_tokens": 0}}, "judge.max_tokens"),
        ({"judge": {"temperature": 3}}, "judge.temperature"),
    ],
)
def test_parameters_out_of_bounds(overrides: dict[str, dict[str, object]], told: str) -> None:
    with pytest.raises(InputError, match=told):
        graph(**overrides)


def test_an_unknown_parameter() -> None:
    with pytest.raises(
        UnknownName, match="unknown parameter 'topk' in component 'search'; did you"
    ):
        graph(search={"topk": 3})


def test_a_judge_without_an_alternative_gives_way_to_what_was_before() -> None:
    """Where the search is not wanted, the draft itself is the answer."""
    short = App(
        "short",
        template=Generate("draft")
        >> Judge(
            then=WebSearch(inputs={"queries": "question"}) >> Generate(inputs={"context": "hits"}),
            inputs={"draft": "answer"},
            expect=False,
        ),
        inputs={"question": "text"},
        outputs={"answer": "answer"},
    )
    made = short.builder.build(short.builder.configure({}), {})
    made.validate()
    joined = made["output.answer"]
    assert [ref.producer for ref in joined.refs()] == ["generate.decode", "draft.decode"]
    decides = made["judge.decide"].params
    assert isinstance(decides, ConditionParams)
    assert decides.prefer == "otherwise"


def test_what_a_judge_needs_is_checked_when_it_is_declared() -> None:
    with pytest.raises(TemplateError, match="component 'judge' needs 'draft', which nothing"):
        App(
            "headless",
            template=Judge(then=Generate("a"), otherwise=Generate("b")),
            inputs={"question": "text"},
            outputs={"answer": "answer"},
        )
    with pytest.raises(TemplateError, match="component 'search' needs 'queries', which nothing"):
        App(
            "aimless",
            template=WebSearch(),
            inputs={"question": "text"},
            outputs={"hits": "hits"},
        )


def test_a_search_of_many_queries_is_batchable() -> None:
    found = App(
        "many",
        template=WebSearch(top_k=2, inputs={"queries": "questions"}),
        inputs={"questions": "texts"},
        outputs={"hits": "hits"},
    )
    made = found.builder.build(found.builder.configure({}), {"questions": 5})
    search = made["search.search"]
    assert (search.items, search.batchable) == (5, True)
    assert not graph()["search.search"].batchable, "one question is one item"


def test_a_judge_nests_like_a_condition() -> None:
    nested = Generate("draft", outputs={"answer": "draft"}) >> Judge(
        then=Condition(
            lambda draft: len(draft) > 3,
            reads=["draft"],
            then=Generate("a"),
            otherwise=Generate("b"),
        ),
        otherwise=Generate("c"),
    )
    made = App(
        "nested", template=nested, inputs={"question": "text"}, outputs={"answer": "answer"}
    ).builder
    inner = made.build(made.configure({}), {})
    inner.validate()
    assert inner["a.decode"].guards == (
        Guard("judge.decide", "then"),
        Guard("condition.test", "then"),
    )
