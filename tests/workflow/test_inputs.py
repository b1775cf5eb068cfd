"""Inputs that a query may leave out: how they are declared, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from teola import Aggregate, App, Condition, Generate, Input, Runtime, component
from teola.errors import InputError, TemplateError, UnknownName
from teola.graph import Ref
from teola.serve.openapi.describing import described_app
from teola.testing.hash_engines import HashModel
from teola_apps.advanced_rag import app as advanced
from teola_apps.chat_rag import app as chat


@component
def greeting(name: str, tone: str = "plainly", words: list[str] | None = None) -> str:
    return f"{name}, {tone}, {words}"


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime({"llm": HashModel}) as made:
        yield made


def app(runtime: Runtime | None, template: Any = greeting, **inputs: Any) -> App:
    outputs = {"said": "greeting"}
    given = {"name": "text", **inputs}
    return App("greet", template, inputs=given, outputs=outputs, runtime=runtime)


@pytest.mark.parametrize(
    ("tone", "given", "said"),
    [
        (Input("text", default="kindly"), {}, "kindly"),
        (Input("text", default="kindly"), {"tone": None}, "kindly"),
        (Input("text", default="kindly"), {"tone": " "}, "kindly"),
        (Input("text", default="kindly"), {"tone": "loudly"}, "loudly"),
        (Input("text", default=""), {}, ""),
        (Input("text", default=None), {}, "plainly"),
        (Input("text", default=None), {"tone": ""}, "plainly"),
        (Input("text", default=None), {"tone": "loudly"}, "loudly"),
    ],
)
def test_an_optional_input_has_its_default_or_is_absent(
    runtime: Runtime, tone: Input, given: dict[str, Any], said: str
) -> None:
    """Of a function, an absent one has the function's own default."""
    result = app(runtime, tone=tone).run(name="Ann", **given)
    assert result["said"] == f"Ann, {said}, None"


def test_a_default_list_is_each_querys_own(runtime: Runtime) -> None:
    kept: list[list[str]] = []

    @component(outputs="greeting")
    def grow(name: str, words: list[str]) -> str:
        kept.append(words)
        words.append(name)
        return " ".join(words)

    made = app(runtime, grow, words=Input("texts", default=["dear"]))
    assert [made.run(name=name)["said"] for name in ("Ann", "Bob")] == ["dear Ann", "dear Bob"]
    assert kept[0] is not kept[1]


def test_a_needed_input_stays_needed(runtime: Runtime) -> None:
    made = app(runtime, tone=Input("text", default=None))
    with pytest.raises(InputError, match="needs the input 'name'"):
        made.run(tone="loudly")
    with pytest.raises(InputError, match="'name' is empty"):
        made.run(name="")
    with pytest.raises(InputError, match="'tone' must be a text, not int"):
        made.run(name="Ann", tone=3)


def test_inputs_go_by_name(runtime: Runtime) -> None:
    made = app(runtime)
    for wrong, told in (("Ann", "'Ann'"), (["Ann"], r"\.\.\."), ("x" * 99, r"\.\.\.")):
        with pytest.raises(InputError, match=f"inputs go by name, such as question={told}, or"):
            made.run(wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="inputs go by name"):
            made.explain(wrong)  # type: ignore[arg-type]


def test_what_an_aggregate_reads_may_be_absent(runtime: Runtime) -> None:
    gather = Aggregate(["name", "tone"], output="parts")

    @component(outputs="greeting")
    def all_of(parts: list[str]) -> str:
        return " ".join(parts)

    made = app(runtime, gather >> all_of, tone=Input("text", default=None))
    assert made.run(name="Ann")["said"] == "Ann"
    assert made.run(name="Ann", tone="loudly")["said"] == "Ann loudly"


def test_an_aggregate_of_nothing_that_is_given_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TemplateError, match=r"'gather' needs 'nmae'.*did you mean 'name'"):
        App("x", Aggregate(["nmae"], output="parts"), inputs={"name": "text"},
            outputs={"parts": "parts"})  # fmt: skip


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Input("txet"), "unknown kind 'txet'; did you mean 'text'"),
        (lambda: app(None, tone="txet"), "unknown kind 'txet' in input 'tone'; did you mean"),
        (lambda: app(None, tone=3), "input 'tone': an input's kind is a word such as 'text'"),
        (lambda: Input("text", default=3), "'default' must be a text, not int"),
        (lambda: Input("texts", default="a"), "'default' must be a list of texts"),
        (lambda: Input("documents", default=[]), "documents take no default.*name a collection"),
    ],
)
def test_bad_declarations_are_refused(make: Any, told: str) -> None:
    with pytest.raises((UnknownName, TemplateError), match=told):
        make()


def test_what_needs_an_input_cannot_have_one_that_may_be_absent() -> None:
    with pytest.raises(TemplateError, match=r"'greeting' needs 'name'.*default=.*or make 'name'"):
        App("x", greeting, inputs={"name": Input("text", default=None)},
            outputs={"said": "greeting"})  # fmt: skip
    test = Condition(bool, reads=["tone"], then=greeting)
    with pytest.raises(TemplateError, match="'condition' needs 'tone'"):
        app(None, test, tone=Input("text", default=None))


# --- chat-rag ---------------------------------------------------------------------------------


def test_the_graph_of_a_first_turn_is_that_of_no_conversation() -> None:
    first = chat.explain(question="Who keeps the lamp?").optimised.p_graph
    alone = advanced.explain(question="Who keeps the lamp?").optimised.p_graph
    assert list(first.primitives) == list(alone.primitives)
    later = chat.explain(question="Who?", history="User: hi").optimised.p_graph
    assert Ref("query", "history") in list(later["generate.1.prefill"].refs())


def test_turns_share_an_application_but_not_its_plans(runtime: Runtime) -> None:
    model = runtime.engines("llm")[0]
    assert isinstance(model, HashModel)
    made = App("talk", Generate(), inputs={"question": "text", "history": chat.declared["history"]},
               outputs={"answer": "answer"}, runtime=runtime)  # fmt: skip
    for history in (None, "User: hi", ""):
        made.run(question="Who?", history=history)
    told = ["Conversation so far:\nUser: hi\n\n" in prompt for prompt in model.prompts[-3:]]
    assert told == [False, True, False]
    assert ["Conversation" in prompt for prompt in model.prompts[-3:]] == told


def test_the_schema_says_what_may_be_left_out() -> None:
    inputs = described_app(chat)["inputs"]
    assert inputs["required"] == ["question"]
    assert inputs["properties"]["question"] == {"type": "string", "minLength": 1}
    assert inputs["properties"]["history"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}],
        "default": None,
    }
