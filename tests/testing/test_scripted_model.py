"""A model that says what a test has written: in which order, to whom, and when it has nothing to
say."""

from __future__ import annotations

from typing import Any

import pytest

from teola import App, Generate, Runtime
from teola.engine import Call, Delta, QueryContext, TextPart, Usage
from teola.errors import EngineError, InputError, QueryFailed
from teola.graph import DecodeParams
from teola.graph.prompt import Role
from teola.query.result import Result
from teola.testing import ScriptedCall, ScriptedModel, running


def call(component: str = "a", *, most: int = 64) -> Call:
    parts = (TextPart(Role.INSTRUCTION, "two words "), TextPart(Role.QUESTION, "why?"))
    return Call(QueryContext("q"), parts, DecodeParams(most), category=("app", component))


async def said(model: ScriptedModel, asked: Call) -> list[Delta]:
    return [delta async for delta in model().generate(asked)]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("a text", "a text"),
        ({"a": "ä"}, '{"a": "ä"}'),
        (lambda made: f"to {made.component}", "to a"),
        (lambda made: {"of": made.app}, '{"of": "app"}'),
        (["first", "second"], "first"),
        ([lambda made: "made"], "made"),
        ("", ""),
    ],
)
async def test_an_answer_is_a_text_whatever_it_is_written_as(answer: Any, text: str) -> None:
    model = ScriptedModel({"a": answer})
    assert "".join(delta.text for delta in await said(model, call())) == text
    assert [made.answer for made in model.calls] == [text]


async def test_each_component_has_answers_of_its_own_in_turn() -> None:
    model = ScriptedModel({"a": ["a1", "a2"], "b": ["b1", "b2"]})
    order = ["a", "b", "b", "a"]
    texts = ["".join(d.text for d in await said(model, call(name))) for name in order]
    assert texts == ["a1", "b1", "b2", "a2"]
    assert [made.component for made in model.calls] == order
    assert [made.answer for made in model.of("b")] == ["b1", "b2"]
    with pytest.raises(EngineError, match="component 'a' of 'app': its 2 answers are used up"):
        await said(model, call("a"))
    with pytest.raises(
        EngineError, match=r"it has answers for 'a', 'b'; .* with 'two words why\?'"
    ):
        await said(model, call("c"))
    assert [made.answer for made in model.calls[-2:]] == [None, None]


async def test_instances_and_names_share_one_script() -> None:
    model = ScriptedModel({"a": ["first", "second"]})
    one, other = model("llm"), model("judge")
    assert (one.spec.name, other.spec.name) == ("llm", "judge")
    texts = ["".join([d.text async for d in e.generate(call())]) for e in (one, other)]
    assert texts == ["first", "second"]


async def test_words_are_tokens_and_no_more_come_than_may() -> None:
    model = ScriptedModel({"a": "one  two three"})
    assert await said(model, call(most=3)) == [
        *map(Delta, ("one  ", "two ", "three")),
        Delta("", "stop", Usage(3, 3)),
    ]
    cut = await said(model, call(most=2))
    assert cut == [*map(Delta, ("one  ", "two ")), Delta("", "length", Usage(3, 2))]


async def test_an_error_is_raised_and_the_next_try_has_the_next_answer() -> None:
    model = ScriptedModel({"a": [EngineError("busy", retryable=True), "then this"]})
    engine = model()
    with pytest.raises(EngineError, match="busy"):
        [delta async for delta in engine.generate(call())]
    assert engine.running == 0
    assert [made.answer for made in model.calls] == [None]
    again = ScriptedModel({"generate": [EngineError("busy", retryable=True), "then this"]})
    with Runtime({"llm": again}, learn=False) as runtime:
        result = app(runtime).run(question="why?")
    assert result.answer == "then this"
    assert len(again.calls) == 2


async def test_a_function_may_answer_everybody() -> None:
    def answer(made: ScriptedCall) -> Any:
        return 3 if made.component == "b" else made.prompt

    model = ScriptedModel(answer)
    assert "".join(d.text for d in await said(model, call())) == "two words why?"
    with pytest.raises(EngineError, match="its function returned 3"):
        await said(model, call("b"))


@pytest.mark.parametrize("answers", [{"a": 3}, {"a": ["text", 3]}, {"b": "x", "a": None}, 3])
def test_what_is_no_answer_is_refused(answers: Any) -> None:
    with pytest.raises(InputError, match=r"ScriptedModel.* not (3|None)"):
        ScriptedModel(answers)


def app(runtime: Runtime | None = None) -> App:
    inputs, outputs = {"question": "text"}, {"answer": "answer"}
    return App("asks", Generate(), inputs=inputs, outputs=outputs, runtime=runtime)


# --- running ----------------------------------------------------------------------------------


def test_an_app_runs_on_engines_of_a_test_and_then_on_its_own_again() -> None:
    model = ScriptedModel({"generate": "scripted"})
    with Runtime({"llm": ScriptedModel({"generate": "its own"})}, learn=False) as own:
        made = app(own)
        with running(made, {"llm": model}, learn=False) as runtime:
            assert made.runtime is runtime
            assert made.run(question="why?").answer == "scripted"
        assert made.runtime is own
        with pytest.raises(ZeroDivisionError), running(made, {"llm": model}, learn=False):
            raise ZeroDivisionError
        assert made.run(question="why?").answer == "its own"


def test_what_an_app_brings_along_stays_beside_the_engines_of_a_test() -> None:
    """What is like the `llm` follows it, unless the app says otherwise."""
    brought: dict[str, Any] = {
        "llm": "extractive",
        "proxy": "extractive",
        "judge": ScriptedModel({}),
    }
    with Runtime(brought, learn=False) as own:
        with running(app(own), {"llm": ScriptedModel({})}, learn=False) as runtime:
            configs = runtime.configs
        assert configs["judge"] == own.configs["judge"]
        assert configs["proxy"] == configs["llm"] != own.configs["llm"]
        assert set(configs) == set(own.configs)


def test_a_script_that_has_no_answer_fails_the_query() -> None:
    made = app()
    with (
        running(made, {"llm": ScriptedModel({})}, learn=False),
        pytest.raises(QueryFailed) as error,
    ):
        made.run(question="why?")
    assert "ScriptedModel has no answer for component 'generate' of 'asks'" in str(error.value)
    assert isinstance(error.value.result, Result)
