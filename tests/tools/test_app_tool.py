"""Applications and components as tools: queries in queries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from teola import App, Generate, Indexing, Input, Rerank, Runtime, component
from teola.errors import InputError, UnknownName
from teola.query.spec import DEADLINE_S
from teola.runtime.live.nesting import calling
from teola.tools import ToolContext, ToolResult, component_tool


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        yield made


@component(outputs="answer")
def shout(question: str, words: list[str] = ()) -> str:  # type: ignore[assignment]
    return " ".join([question.upper(), *words])


@component(outputs=["tenant", "length"])
def describe(question: str) -> dict[str, Any]:
    caller = calling.get()
    assert caller is not None
    return {"tenant": caller.query.context.tenant, "length": len(question)}


def shouting(**options: Any) -> App:
    inputs = {"question": "text", "words": Input("texts", ["please"])}
    outputs = {"answer": "answer"}
    return App("shout", shout, inputs=inputs, outputs=outputs, description="Shouts.", **options)


def on(runtime: Runtime, made: Any, arguments: Any, **context: Any) -> ToolResult:
    """The result of a call on the runtime's loop."""
    result: ToolResult = runtime.start(made.call(arguments, ToolContext(**context))).result()
    return result


def test_an_application_is_a_tool(runtime: Runtime) -> None:
    made = component_tool(shouting(runtime=runtime), about={"question": "What."}, pure=True)
    assert (made.name, made.description, made.pure) == ("shout", "Shouts.", True)
    assert made.schema == {
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1, "description": "What."},
            "words": {"type": "array", "items": {"type": "string"}, "default": ["please"]},
        },
        "required": ["question"],
        "additionalProperties": False,
    }
    assert on(runtime, made, {"question": "hush"}).text == "HUSH please"
    assert on(runtime, made, {"question": "hush", "words": ["x"]}).value == "HUSH x"
    told = on(runtime, made, {"question": ""}).text
    assert told == (
        "shout was not called: argument 'question' must be a text of at least 1 characters, got ''"
    )


def test_inputs_that_are_given_are_not_the_models(runtime: Runtime) -> None:
    made = component_tool(
        shouting(runtime=runtime), name="say", description="Says.", given={"words": ["now"]}
    )
    assert list(made.schema["properties"]) == ["question"]
    assert on(runtime, made, {"question": "hush"}).text == "HUSH now"


def test_what_is_said_of_a_tool_reaches_its_queries(runtime: Runtime) -> None:
    made = component_tool(
        shouting(runtime=runtime), at_once=2, overrides={"nobody": {}}, timeout_s=2 * DEADLINE_S
    )
    assert made.gate.most == 2
    assert "unknown component 'nobody'" in on(runtime, made, {"question": "x"}).text
    call: Any = made.carry_out
    assert call.deadline_s > 2 * DEADLINE_S, "the tool's own time ends first"
    default: Any = component_tool(shouting(), timeout_s=1).carry_out
    assert default.deadline_s == DEADLINE_S


def test_it_has_the_tenant_of_who_calls(runtime: Runtime) -> None:
    app = App(
        "describe",
        describe,
        inputs={"question": "text"},
        outputs={"tenant": "tenant", "length": "length"},
        description="Describes.",
        runtime=runtime,
    )
    made = component_tool(app)
    assert on(runtime, made, {"question": "why"}, tenant="shop").value == {
        "tenant": "shop",
        "length": 3,
    }

    @component(outputs="found")
    async def inside(question: str) -> Any:
        return (await made.call({"question": question})).value

    around = App(
        "around",
        inside,
        inputs={"question": "text"},
        outputs={"found": "found"},
        runtime=runtime,
    )
    result = around.run(question="why", tenant="shop")
    assert result["found"] == {"tenant": "shop", "length": 3}
    assert result.trace is not None
    assert [inner.app for inner in result.trace.inner] == ["describe"]


def test_a_component_is_a_tool(runtime: Runtime) -> None:
    made = component_tool(shout, description="Shouts.", timeout_s=20)
    assert set(made.schema["properties"]) == {"question", "words"}

    @component(outputs="found")
    async def inside(question: str) -> Any:
        return (await made.call({"question": question})).text

    app = App(
        "app", inside, inputs={"question": "text"}, outputs={"found": "found"}, runtime=runtime
    )
    assert app.run(question="hush").answer == "HUSH"


def test_one_that_fails_is_a_text_for_the_model(runtime: Runtime) -> None:
    @component(outputs="answer")
    def broken(question: str) -> str:
        raise ValueError("no idea")

    app = App(
        "broken",
        broken,
        inputs={"question": "text"},
        outputs={"answer": "answer"},
        description="Breaks.",
        runtime=runtime,
    )
    result = on(runtime, component_tool(app), {"question": "why"})
    assert result.failed
    assert result.text.startswith("broken failed: ")
    assert "no idea" in result.text


def test_one_that_is_given_up_ends(runtime: Runtime) -> None:
    ended = asyncio.Event()

    @component(outputs="answer")
    async def slow(question: str) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return question

    app = App(
        "slow",
        slow,
        inputs={"question": "text"},
        outputs={"answer": "answer"},
        description="Is slow.",
        runtime=runtime,
    )
    result = on(runtime, component_tool(app, timeout_s=0.1), {"question": "why"})
    assert result.failed
    assert "longer than 0.1 s" in result.text or "deadline" in result.text
    assert ended.is_set()


def test_what_cannot_be_a_tool_is_refused() -> None:
    reading = App(
        "reading",
        Indexing() >> Generate(),
        inputs={"question": "text", "documents": "documents"},
        outputs={"answer": "answer"},
        description="Reads.",
    )
    with pytest.raises(InputError, match=r"a model has no documents to give; .*'collection'"):
        component_tool(reading)
    with pytest.raises(InputError, match="a model has no documents to give"):
        component_tool(reading, given={"question": "why?"})
    made = component_tool(reading, given={"collection": "papers"})
    assert list(made.schema["properties"]) == ["question"]
    with pytest.raises(InputError, match="component 'rerank' starts from hits"):
        component_tool(Rerank(), description="Ranks.")
    with pytest.raises(InputError, match="'shout' needs a description"):
        component_tool(shout)
    with pytest.raises(UnknownName, match="unknown input 'qestion'"):
        component_tool(shouting(), about={"qestion": "What."})
    with pytest.raises(UnknownName, match="unknown option 'timeout'"):
        component_tool(shouting(), timeout=3)  # type: ignore[call-arg]
