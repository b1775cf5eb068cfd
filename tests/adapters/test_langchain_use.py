"""Tools from LangChain and to it, and an application in its chains."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import InjectedToolArg, StructuredTool, ToolException
from langchain_core.tools import Tool as SimpleTool
from langchain_core.tools import tool as their_tool

from teola import App, Ask, Runtime
from teola.adapters import from_langchain, to_langchain
from teola.errors import InputError, QueryError, QueryFailed, UnknownName
from teola.tools import tool
from tests.adapters.conftest import give_up

# --- tools ------------------------------------------------------------------------------------


@their_tool
def depth(harbour: str, hours: int = 0) -> dict[str, Any]:
    """Depth of the water in a harbour."""
    if harbour == "none":
        raise ToolException("there is no such harbour")
    if harbour == "broken":
        raise OSError("no line")
    return {"harbour": harbour, "metres": 4.5 + hours}


async def test_a_tool_is_called_by_its_schema() -> None:
    found = from_langchain(depth, pure=True)
    assert (found.name, found.pure) == ("depth", True)
    assert found.description == "Depth of the water in a harbour."
    result = await found.call({"harbour": "Arrenholm", "hours": 1})
    assert result.value == {"harbour": "Arrenholm", "metres": 5.5}
    wrong = await found.call({"harbour": 3})
    assert "argument 'harbour' must be a text" in wrong.text


@pytest.mark.parametrize("handled", [None, True, "ask the master", lambda e: f"sorry: {e}"])
async def test_failures_of_a_tool_are_failures_here(handled: Any) -> None:
    found = from_langchain(depth.model_copy(update={"handle_tool_error": handled}))
    result = await found.call({"harbour": "none"})
    assert result.failed
    said = {str: "ask the master"}.get(type(handled), "there is no such harbour")
    assert said in result.text
    assert ("sorry" in result.text) is callable(handled)
    assert "OSError: no line" in (await found.call({"harbour": "broken"})).text


async def test_a_tool_of_one_text() -> None:
    found = from_langchain(SimpleTool(name="shout", description="Shouts.", func=str.upper))
    assert (await found.call({"tool_input": "hey"})).text == "HEY"


def test_a_tool_with_hidden_arguments_is_refused() -> None:
    @their_tool
    def act(x: int, user: Annotated[str, InjectedToolArg]) -> int:
        """Acts."""
        return x

    with pytest.raises(InputError, match="takes user, which only LangChain's own agents give"):
        from_langchain(act)


def test_a_tool_of_ours_is_one_of_theirs() -> None:
    @tool
    def tide(harbour: str) -> dict[str, str]:
        """Tide in a harbour."""
        if harbour == "none":
            raise ValueError("no such harbour")
        return {"tide": "high"}

    with pytest.raises(UnknownName, match="tenant"):
        to_langchain(tide, tenant="x")  # type: ignore[call-overload]
    theirs = to_langchain(tide)
    assert isinstance(theirs, StructuredTool)
    assert theirs.invoke({"harbour": "Arrenholm"}) == '{"tide": "high"}'
    call = {"name": "tide", "args": {"harbour": "x"}, "id": "1", "type": "tool_call"}
    message = asyncio.run(theirs.ainvoke(call))
    assert (message.content, message.artifact) == ('{"tide": "high"}', {"tide": "high"})
    failed = theirs.invoke({**call, "args": {"harbour": "none"}})
    assert failed.status == "error"
    assert "ValueError: no such harbour" in failed.content
    assert "must be a text" in theirs.invoke({**call, "args": {"harbour": 3}}).content


def test_nobody_gets_around_an_approval() -> None:
    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pays."""
        return "paid"

    @tool(approval=lambda given: given["amount"] > 7)
    def spend(amount: int) -> str:
        """Spends."""
        return "spent"

    with pytest.raises(InputError, match="needs a person's approval"):
        to_langchain(pay)
    theirs = to_langchain(spend)
    assert theirs.invoke({"amount": 5}) == "spent"
    assert "a person has to agree" in theirs.invoke({"amount": 9})


# --- applications -----------------------------------------------------------------------------


def test_an_app_in_a_chain(echo: App) -> None:
    chain: Any = ChatPromptTemplate.from_template("one {n}") | to_langchain(echo)
    assert chain.invoke({"n": "two"}) == "one two"
    assert asyncio.run((chain | str.split).ainvoke({"n": "two"})) == ["one", "two"]
    assert to_langchain(echo).invoke({"question": "x"}) == "x"


def test_an_app_streams_in_a_chain(echo: App) -> None:
    made = to_langchain(echo)
    assert list(made.stream("a b c")) == ["a", " b", " c"]

    async def streamed() -> list[Any]:
        return [piece async for piece in (made | StrOutputParser()).astream("a b c")]

    assert asyncio.run(streamed()) == ["a", " b", " c"]


def test_many_queries_of_an_app(echo: App) -> None:
    made = to_langchain(echo)
    assert made.batch(["a", "b"]) == ["a", "b"]
    assert asyncio.run(made.abatch(["a", "b"])) == ["a", "b"]
    one, two = made.batch(["a", "fail"], return_exceptions=True)
    assert one == "a"
    assert isinstance(two, QueryFailed)
    with pytest.raises(QueryFailed, match="no such word"):
        made.batch(["a", "fail"])
    with pytest.raises(QueryFailed, match="no such word"):
        made.invoke("fail")


def test_a_query_that_waits_for_a_person_is_no_answer() -> None:
    with Runtime({}) as runtime:
        inputs, outputs = {"question": "text"}, {"answer": "answer"}
        app = App("asks", Ask("{question}?"), inputs=inputs, outputs=outputs, runtime=runtime)
        made = to_langchain(app)
        with pytest.raises(QueryError, match="waits for a person, who is asked 'May I") as caught:
            made.invoke("May I")
        with pytest.raises(QueryError, match="waits for a person"):
            list(made.stream("May I"))
        (told,) = made.batch(["May I"], return_exceptions=True)
        assert isinstance(told, QueryError)
        assert caught.value.result is not None
        assert app.resume(caught.value.result.query_id, "yes").answer == "yes"


def test_documents_go_in_and_hits_come_out_as_documents(finder: App) -> None:
    (found,) = to_langchain(finder).invoke([Document(page_content="tide", id="d")])
    assert isinstance(found, Document)
    assert (found.page_content, found.metadata) == (
        "tide",
        {"i": 0, "source": "page", "score": 1.0},
    )


@pytest.mark.parametrize("streams", [False, True])
async def test_cancelling_a_chain_cancels_the_query(echo: App, streams: bool) -> None:
    made = to_langchain(echo)

    async def read() -> None:
        if not streams:
            await made.ainvoke("a wait")
        async for _ in made.astream("a wait"):
            pass

    await give_up(read())


def test_options_of_an_app_are_checked(echo: App, finder: App) -> None:
    with pytest.raises(UnknownName, match="tenat"):
        to_langchain(echo, tenat="x")  # type: ignore[call-overload]
    with pytest.raises(UnknownName, match="input 'text'"):
        to_langchain(finder, given={"text": "x"})
    given = to_langchain(finder, given={"texts": ["fixed"]})
    assert given.invoke({})[0].page_content == "fixed"
    with pytest.raises(InputError, match="is given its 'texts' already"):
        given.invoke({"texts": []})
    with pytest.raises(InputError, match=r"has the inputs none: give a dict of them, not str"):
        given.invoke("x")
    with pytest.raises(InputError, match="'question' must be a text, not int"):
        to_langchain(echo).invoke(3)
