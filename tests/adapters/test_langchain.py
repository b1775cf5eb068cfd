"""Retrievers, chains and functions of LangChain's as components, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models.fake_chat_models import (
    FakeListChatModel,
)
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import tool as langchain_tool
from langchain_core.vectorstores import InMemoryVectorStore

from teola import Agent, App, Component, Runtime, Token, component
from teola.adapters import from_langchain, to_langchain
from teola.errors import InputError, QueryFailed
from tests.adapters.talker import talker

# --- components -------------------------------------------------------------------------------


class Pages(BaseRetriever):
    """Documents in order; only some have a score."""

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        raise AssertionError("it has an asynchronous method")

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [
            Document(id="1", page_content=f"about {query}", metadata={"source": "a.md"}),
            Document(page_content="more", metadata={"source": "b.md", "score": 0.25}),
            Document(page_content="less", metadata={"source": "c.md", "score": 0}),
        ]


def app_of(runtime: Runtime, template: Any, output: str, **inputs: str) -> App:
    return App("test", template, inputs=inputs, outputs={"out": output}, runtime=runtime)


def test_a_retriever_gives_hits(runtime: Runtime) -> None:
    app = app_of(runtime, from_langchain(Pages()), "hits", question="text")
    hits = app.run(question="tides").answer
    assert [(one.id, one.document, one.text, one.score) for one in hits] == [
        ("1", "a.md", "about tides", 1.0),
        ("b.md/1", "b.md", "more", 0.25),
        ("c.md/2", "c.md", "less", 0.0),
    ]


def test_a_chain_takes_what_its_prompt_names(runtime: Runtime) -> None:
    prompt = ChatPromptTemplate.from_template("{question} in {place}")
    chain: Runnable[Any, Any] = prompt | talker()
    made = from_langchain(chain, name="chain", outputs="answer")
    assert sorted(made.required) == ["place", "question"]
    app = app_of(runtime, made, "answer", question="text", place="text")
    assert app.run(question="Tide", place="Arrenholm").answer == "Tide in Arrenholm"


def test_a_chain_streams_its_text(runtime: Runtime) -> None:
    prompt = ChatPromptTemplate.from_template("{question}")
    chain = prompt | talker() | StrOutputParser()
    app = app_of(
        runtime, from_langchain(chain, name="chain", streams=True), "chain", question="text"
    )
    events = list(app.stream(question="abc"))
    assert [e.text for e in events if isinstance(e, Token)] == ["a", "b", "c"]
    silent = from_langchain(RunnableLambda(len), name="silent", takes="question", streams=True)
    with pytest.raises(QueryFailed, match="it streams int, not text"):
        app_of(runtime, silent, "silent", question="text").run(question="abc")


def test_a_function_of_theirs_gets_one_value_and_may_be_batched(runtime: Runtime) -> None:
    sizes: list[int] = []

    class Upper(RunnableLambda[str, str]):
        async def abatch(self, inputs: list[str], *args: Any, **more: Any) -> list[str]:
            sizes.append(len(inputs))
            return await super().abatch(inputs, *args, **more)

    upper = Upper(lambda text: text.upper())
    one = from_langchain(upper, name="upper", takes="question")
    assert app_of(runtime, one, "upper", question="text").run(question="a").answer == "A"
    many = from_langchain(upper, name="upper", takes="words", batched="words")
    app = app_of(runtime, many, "upper", words="texts")
    assert app.run(words=["a", "b", "c"]).answer == ["A", "B", "C"]
    assert sum(sizes) == 3


def test_a_failing_item_fails_the_batch(runtime: Runtime) -> None:
    def picky(text: str) -> str:
        if text == "b":
            raise ValueError("not b")
        return text

    many = from_langchain(RunnableLambda(picky), name="picky", takes="words", batched="words")
    with pytest.raises(QueryFailed, match=r"component 'picky'.*ValueError: not b"):
        app_of(runtime, many, "picky", words="texts").run(words=["a", "b"])


def test_hits_are_documents_there_and_hits_again_here(runtime: Runtime) -> None:
    def second(found: list[Document]) -> Document:
        assert all(isinstance(one, Document) for one in found)
        return found[1]

    template = from_langchain(Pages()) >> from_langchain(
        RunnableLambda(second), name="second", takes="hits"
    )
    hit = app_of(runtime, template, "second", question="text").run(question="x").answer
    assert (hit.document, hit.text, hit.score) == ("b.md", "more", 0.25)


def test_hits_do_not_become_a_prompt_silently(runtime: Runtime) -> None:
    prompt = ChatPromptTemplate.from_template("{hits}")
    template = from_langchain(Pages()) >> from_langchain(prompt | talker(), name="chain")
    told = "component 'chain'.*the prompt reads 'hits' as text, and gets a list of Document"
    with pytest.raises(QueryFailed, match=told):
        app_of(runtime, template, "chain", question="text").run(question="x")


def test_a_message_that_is_more_than_text_is_no_answer(runtime: Runtime) -> None:
    picture = AIMessage(content=[{"type": "image", "url": "x"}, {"type": "text", "text": "see"}])
    shows = from_langchain(RunnableLambda(lambda _: picture), name="shows", takes="question")
    with pytest.raises(QueryFailed, match=r"langchain_core\.messages\.ai\.AIMessage"):
        app_of(runtime, shows, "shows", question="text").run(question="x")


# --- wrong things -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        ("gpt", "not builtins.str"),
        (FakeListChatModel, "not the class FakeListChatModel; make one of the class"),
        (InMemoryVectorStore(DeterministicFakeEmbedding(size=3)), "give its as_retriever"),
        (component(lambda x: x, name="x"), "not teola"),
    ],
)
def test_other_things_are_refused(thing: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        from_langchain(thing)


def test_an_agent_says_how_a_tool_of_theirs_becomes_one() -> None:
    @langchain_tool
    def look(place: str) -> str:
        """Look somewhere."""
        return place

    for thing in (look, RunnableLambda(str)):
        with pytest.raises(InputError, match=r"LangChain; make a tool of it: from_langchain\("):
            Agent([thing])  # type: ignore[list-item]
    assert Agent([from_langchain(look)]).tools.own.names == ["look"]
    with pytest.raises(InputError, match="a tool is a function, got 3"):
        Agent([3])  # type: ignore[list-item]


@pytest.mark.parametrize("at_once", [None, 1, 2])
async def test_a_tool_of_theirs_is_what_its_options_say(at_once: int | None) -> None:
    """Where they say nothing, it is what LangChain says, and any number of calls run at once."""
    at_work: list[int] = []
    most = 0

    @langchain_tool
    async def look(place: str) -> str:
        """Look somewhere."""
        nonlocal most
        at_work.append(1)
        most = max(most, len(at_work))
        for _ in range(20):
            await asyncio.sleep(0)
        at_work.pop()
        return place

    options: Any = {} if at_once is None else {"name": "see", "at_once": at_once}
    made = from_langchain(look, **options)
    told = ("look", "Look somewhere.") if at_once is None else ("see", "Look somewhere.")
    assert (made.name, made.description) == told
    found = await asyncio.gather(*(made.call({"place": str(k)}) for k in range(4)))
    assert [one.text for one in found] == ["0", "1", "2", "3"]
    assert most == (at_once or 4)


def test_only_apps_and_tools_go_there() -> None:
    for thing in (print, component(lambda x: x, name="x")):
        with pytest.raises(InputError, match="to_langchain takes an App or a Tool of Teola"):
            to_langchain(thing)  # type: ignore[call-overload]


def test_what_is_made_is_what_it_says() -> None:
    made = from_langchain(Pages(), name="mine")
    assert isinstance(made, Component)
    assert made.name == "mine"
    assert repr(from_langchain(talker()).options["source"]) == "LangChain's Talker"
