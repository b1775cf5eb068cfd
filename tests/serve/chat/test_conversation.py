"""Conversations as inputs: which form of an application is asked, and with how much of them."""

from __future__ import annotations

import pytest

from teola import App, Embedding, Generate, Judge, QueryExpansion, component
from teola.graph import Op, Primitive, Prompt, Ref
from teola.passes import optimise
from teola.profile import paper
from teola.serve.chat.conversation import Conversation, Forms, Turn, recent
from teola_apps.advanced_rag import app as advanced
from teola_apps.chat_rag import app as chat

TURNS = (Turn("User", "hi"), Turn("Assistant", "hello"))
ASKED = {"question": "text"}
ANSWER = {"answer": "answer"}


@component(outputs="answer")
def deaf(question: str) -> str:
    return question


@component(outputs="answer")
def attentive(question: str, history: str = "") -> str:
    return f"{history}|{question}"


@component(outputs="answer")
def odd(question: str, history: list[float] | None = None) -> str:
    return question


def graph(app: App) -> list[Primitive]:
    return list(app.builder.build(app.builder.configure({}), {"chunks": 48}).primitives)


def test_in_a_conversation_an_application_is_the_one_that_declares_a_history() -> None:
    form = Forms().of(advanced, ["history"])
    assert graph(form) == graph(chat)
    assert graph(advanced) != graph(chat)
    assert (form.name, form.outputs) == (advanced.name, advanced.outputs)


def test_a_form_is_made_once_so_that_its_plans_are_kept() -> None:
    forms = Forms()
    one = forms.of(advanced, ["history", "instructions"])
    assert forms.of(advanced, ["instructions", "history"]) is one
    assert forms.of(advanced, ["history"]) is not one
    assert forms.of(advanced, []) is advanced


def test_what_nothing_can_use_is_no_input() -> None:
    forms = Forms()
    for function in (deaf, attentive, odd):
        app = App("x", template=function, inputs=ASKED, outputs=ANSWER)
        form = forms.of(app, ["history", "instructions"])
        assert list(form.inputs) == (
            ["question", "history"] if function is not deaf else ["question"]
        )


def test_a_template_that_wants_something_else_by_that_name_is_left_alone() -> None:
    app = App("x", template=QueryExpansion() >> Embedding(inputs={"texts": "queries"}),
              inputs=ASKED, outputs={"answer": "vectors"})  # fmt: skip
    assert list(Forms().of(app, ["history", "instructions"]).inputs) == ["question", "history"]


def test_the_prompt_begins_as_it_did_and_ends_with_the_question() -> None:
    form = Forms().of(advanced, ["history", "instructions"])
    for app, place in ((advanced, []), (form, ["instructions", "history"])):
        first = next(p for p in graph(app) if p.id == "generate.1.prefill")
        prompt = first.input("prompt")
        assert isinstance(prompt, Prompt)
        assert isinstance(prompt.parts[0].content, str)
        asked = [ref.port for ref in prompt.refs() if ref.producer == "query"]
        assert asked == [*place, "question"]
    embeds = next(p for p in graph(form) if p.op is Op.EMBEDDING and p.component == "embed")
    assert [ref.producer for ref in embeds.refs()] == ["expand.decode"]


def test_what_is_known_of_a_conversation_is_prefilled_ahead() -> None:
    form = Forms().of(advanced, ["history", "instructions"])
    built = form.builder.build(form.builder.configure({}), {"chunks": 48})
    made = optimise(built, paper("13b"), debug=True).e_graph
    ahead = made["generate.1.prefill.ahead1"].input("prompt")
    assert isinstance(ahead, Prompt)
    known = [part.content.port for part in ahead.parts if isinstance(part.content, Ref)]
    assert known == ["instructions", "history", "question"]


def test_a_judge_knows_what_was_said() -> None:
    draft = Generate("draft", outputs={"answer": "draft"})
    app = App("j", template=draft >> Judge(then=Generate("a"), otherwise=Generate("b")),
              inputs=ASKED, outputs=ANSWER)  # fmt: skip
    judged = next(p for p in graph(Forms().of(app, ["history"])) if p.id == "judge.prefill")
    assert next(ref.port for ref in judged.refs()) == "history"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (deaf, {}),
        (attentive, {"history": "System: Be brief.\nUser: hi\nAssistant: hello"}),
    ],
)
def test_instructions_are_said_by_the_system_where_nothing_takes_them(
    function: object, expected: dict[str, str]
) -> None:
    app = App("x", template=function, inputs=ASKED, outputs=ANSWER)  # type: ignore[arg-type]
    said = Conversation("who?", TURNS, ("Be brief.",))
    _, given = said.inputs(app, Forms(), 1000)
    assert given == {"question": "who?", **expected}


def test_a_needed_input_of_its_own_always_has_a_value() -> None:
    needs = App("n", Generate(), inputs={**ASKED, "history": "text"}, outputs=ANSWER)
    form, given = Conversation("who?").inputs(needs, Forms(), 1000)
    assert form is needs
    assert given == {"question": "who?", "history": "(nothing has been said yet)"}


def test_an_optional_input_of_its_own_has_none_in_the_first_turn() -> None:
    form, given = Conversation("who?").inputs(chat, Forms(), 1000)
    assert form is chat
    assert given == {"question": "who?", "history": ""}


def test_a_question_by_itself_is_asked_as_ever() -> None:
    form, given = Conversation("who?").inputs(advanced, Forms(), 1000)
    assert form is advanced
    assert given == {"question": "who?"}


# --- how much of it --------------------------------------------------------------------------


def turns(count: int) -> list[Turn]:
    """Of 20 characters each."""
    return [Turn("User", f"question {i:05d}") for i in range(count)]


def test_a_short_conversation_is_told_whole() -> None:
    assert recent(turns(5), 100) == tuple(turns(5))
    assert recent([], 100) == ()
    assert recent(turns(5), 0) == ()


def test_the_oldest_go_first() -> None:
    for count in range(5, 40):
        kept = recent(turns(count), 100)
        assert kept
        assert list(kept) == turns(count)[-len(kept) :]
        assert sum(len(str(turn)) for turn in kept) <= 100


def test_a_long_conversation_begins_alike_for_several_questions() -> None:
    """Or nothing of it would be found in a prefix cache."""
    begins = [recent(turns(count), 400)[0] for count in range(21, 61)]
    assert len(set(begins)) == 4
    assert begins == sorted(begins, key=lambda turn: turn.text)


def test_of_a_turn_that_is_too_long_its_end_is_told() -> None:
    (kept,) = recent([*turns(2), Turn("Assistant", "x" * 99 + "the end")], 50)
    assert kept.text.endswith("the end")
    assert len(kept.text) == 50
