"""Haystack's real classes in Teola, and an application in a Pipeline of theirs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from haystack import Document, Pipeline, SuperComponent, component
from haystack.components.builders import PromptBuilder
from haystack.components.joiners import DocumentJoiner
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.core.component.types import InputSocket, Variadic
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.document_stores.in_memory import InMemoryDocumentStore

import teola
from teola import App, Runtime
from teola.adapters import from_haystack, to_haystack
from teola.adapters.haystack import _fitted
from teola.engine import Hit
from teola.errors import InputError, QueryFailed, TemplateError, UnknownName
from tests.adapters.conftest import Seen


@component
class Talker:
    """Answers a chat; has to be warmed up."""

    def __init__(self) -> None:
        self.warm = 0
        self.threads: list[str] = []

    def warm_up(self) -> None:
        self.warm += 1

    @component.output_types(replies=list[ChatMessage], count=int)
    def run(self, messages: list[ChatMessage], suffix: str = "!") -> dict[str, Any]:
        assert self.warm == 1
        self.threads.append(threading.current_thread().name)
        text = messages[-1].text
        if text == "fail":
            raise ValueError("no such word")
        if text == "call":
            call = ToolCall("act", {})
            return {"replies": [ChatMessage.from_assistant("x", tool_calls=[call])], "count": 1}
        return {"replies": [ChatMessage.from_assistant(f"{text}{suffix}")], "count": len(messages)}


@component
class Gentle:
    """Has an asynchronous method."""

    @component.output_types(said=str)
    def run(self, word: str) -> dict[str, Any]:
        raise AssertionError("it has an asynchronous method")

    @component.output_types(said=str)
    async def run_async(self, word: str) -> dict[str, Any]:
        if word == "wait":
            Seen.waiting.set()
            try:
                await asyncio.sleep(60)
            finally:
                Seen.cancelled.set()
        return {"said": word.upper()}


@component
class Counts:
    """Takes what several give."""

    @component.output_types(count=int)
    def run(self, words: Variadic[str]) -> dict[str, Any]:
        return {"count": len(list(words))}


def app_of(runtime: Runtime, template: Any, *outputs: str, **inputs: str) -> App:
    names = {name: name for name in outputs}
    given = inputs or {"question": "text"}
    return App("test", template, inputs=given, outputs=names, runtime=runtime)


PAGES = ["The lamp is lit at dusk.", "The market opens at five.", "Herring is sold by the cran."]


def retriever(top_k: int = 2) -> InMemoryBM25Retriever:
    store = InMemoryDocumentStore()
    store.write_documents(
        [
            Document(id=str(i), content=text, meta={"name": f"{i}.md"})
            for i, text in enumerate(PAGES)
        ]
    )
    return InMemoryBM25Retriever(store, top_k=top_k)


# --- from Haystack ----------------------------------------------------------------------------


def test_a_component_has_its_inputs_and_outputs_by_name(runtime: Runtime) -> None:
    talker = Talker()
    made = from_haystack(talker)
    assert (made.name, list(made.required), list(made.extra)) == (
        "talker",
        ["messages"],
        ["suffix"],
    )
    assert list(made.outputs) == ["replies", "count"]
    app = app_of(runtime, made, "replies", "count", messages="text")
    assert dict(app.run(messages="Ahoy").outputs) == {"replies": ["Ahoy!"], "count": 1}
    app.batch([{"messages": "a"}, {"messages": "b"}])
    assert talker.warm == 1
    assert set(talker.threads) == {"python"}
    with_suffix = app_of(runtime, from_haystack(Talker(), name="t", outputs="replies"), "replies",
                         messages="text", suffix="text")  # fmt: skip
    assert with_suffix.run(messages="Ahoy", suffix="?").answer == ["Ahoy?"]


def test_an_asynchronous_component_is_awaited_and_cancelled(runtime: Runtime, echo: App) -> None:
    made = from_haystack(Gentle(), inputs={"word": "question"})
    app = app_of(runtime, made, "said")
    results = app.batch([{"question": one} for one in ("a", "b", "c")])
    assert [one.answer for one in results] == ["A", "B", "C"]

    async def cancelled() -> None:
        task = asyncio.create_task(app.arun(question="wait"))
        assert await asyncio.to_thread(Seen.waiting.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(Seen.cancelled.wait, 30)

    asyncio.run(cancelled())


def test_documents_become_hits_and_hits_documents(runtime: Runtime) -> None:
    found = from_haystack(retriever(), inputs={"query": "question"}, outputs="documents", pure=True)
    hits = app_of(runtime, found, "documents").run(question="the herring by the cran").answer
    assert all(isinstance(one, Hit) for one in hits)
    assert (hits[0].id, hits[0].document, hits[0].text) == ("2", "2.md", PAGES[2])
    assert hits[0].score > hits[1].score
    joined = from_haystack(DocumentJoiner(), outputs="documents", inputs={"documents": "found"})
    found = from_haystack(retriever(), inputs={"query": "question"}, name="finds")
    renamed = teola.component(lambda documents: documents, outputs="found", name="renamed")
    app = App(
        "joins",
        found >> renamed >> joined,
        inputs={"question": "text"},
        outputs={"documents": "documents"},
        runtime=runtime,
    )
    assert app.run(question="herring").answer[0].text == PAGES[2]


def test_a_pipeline_is_one_component(runtime: Runtime) -> None:
    pipe = Pipeline()
    pipe.add_component("finds", retriever(top_k=1))
    template = "{{question}} {% for one in documents %}{{one.content}}{% endfor %}"
    pipe.add_component("prompt", PromptBuilder(template, required_variables=["question"]))
    pipe.connect("finds.documents", "prompt.documents")
    made = from_haystack(pipe, inputs={"query": "question"}, outputs="prompt")
    assert set(made.required) >= {"query", "question"}
    app = app_of(runtime, made, "prompt")
    results = app.batch([{"question": "Herring?"}, {"question": "Market?"}])
    assert [one.answer for one in results] == [f"Herring? {PAGES[2]}", f"Market? {PAGES[1]}"]


def test_a_socket_of_many_gets_a_list(runtime: Runtime) -> None:
    made = from_haystack(Counts(), inputs={"words": "question"})
    assert app_of(runtime, made, "count").run(question="a").answer == 1


def test_what_is_no_text_is_not_read_as_text(runtime: Runtime) -> None:
    found = from_haystack(retriever(), inputs={"query": "question"})
    shouts = from_haystack(Gentle(), inputs={"word": "documents"})
    told = r"component 'gentle'.*Haystack reads 'word' as text, and gets list"
    with pytest.raises((QueryFailed, TemplateError), match=told):
        app_of(runtime, found >> shouts, "said").run(question="herring")


def test_a_message_that_is_more_than_text_is_no_answer(runtime: Runtime) -> None:
    app = app_of(runtime, from_haystack(Talker()), "replies", messages="text")
    with pytest.raises(QueryFailed, match=r"haystack.*ChatMessage, which prompts"):
        app.run(messages="call")


def test_failures_are_told(runtime: Runtime) -> None:
    app = app_of(runtime, from_haystack(Talker()), "replies", messages="text")
    good, bad = app.batch([{"messages": "a"}, {"messages": "fail"}])
    assert good.state == "ok"
    assert "component 'talker', tool_call: ValueError: no such word" in str(bad.error)


@pytest.mark.parametrize(
    ("type_", "is_text"),
    [
        (str, True),
        (str | None, True),
        (Any, True),
        (str | ChatMessage, True),
        (str | list[ChatMessage], True),
        (ChatMessage, False),
        (ChatMessage | None, False),
        (list[ChatMessage], False),
    ],
)
def test_a_text_becomes_a_message_only_where_no_text_is_taken(type_: Any, is_text: bool) -> None:
    fitted = _fitted(InputSocket("words", type_), "hello")
    message = fitted[0] if isinstance(fitted, list) else fitted
    assert fitted == "hello" if is_text else message.text == "hello"


# --- to Haystack ------------------------------------------------------------------------------


def test_an_app_in_a_pipeline(echo: App) -> None:
    pipe = Pipeline()
    pipe.add_component("prompt", PromptBuilder("one {{n}}", required_variables=["n"]))
    pipe.add_component("echo", to_haystack(echo))
    pipe.connect("prompt.prompt", "echo.question")
    assert pipe.run({"n": "two"})["echo"] == {"answer": "one two"}
    found = asyncio.run(pipe.run_async({"prompt": {"n": "three"}}))
    assert found["echo"] == {"answer": "one three"}
    with pytest.raises(Exception, match="no such word"):
        pipe.run({"n": "fail"})


def test_documents_go_into_an_app_and_come_out_of_it(finder: App) -> None:
    made: Any = to_haystack(finder)
    (found,) = made.run(texts=[Document(id="d", content="tide")])["hits"]
    assert isinstance(found, Document)
    assert (found.content, found.score, found.meta["name"]) == ("tide", 1.0, "page")


def test_an_app_there_and_back(echo: App, runtime: Runtime) -> None:
    back = from_haystack(to_haystack(echo), name="back")
    assert app_of(runtime, back, "answer").run(question="a b").answer == "a b"


def test_optional_inputs_may_be_left_out(runtime: Runtime) -> None:
    @teola.component(outputs="answer")
    def says(question: str, tone: str = "plain") -> str:
        return f"{question} {tone}"

    app = App(
        "says",
        says,
        inputs={"question": "text", "tone": teola.Input("text", None)},
        outputs={"answer": "answer"},
        runtime=runtime,
    )
    pipe = Pipeline()
    pipe.add_component("says", to_haystack(app))
    assert pipe.run({"question": "x"})["says"] == {"answer": "x plain"}
    assert pipe.run({"question": "x", "tone": "loud"})["says"] == {"answer": "x loud"}


async def test_cancelling_a_pipeline_cancels_the_query(echo: App) -> None:
    pipe = Pipeline()
    pipe.add_component("echo", to_haystack(echo))
    task = asyncio.create_task(pipe.run_async({"echo": {"question": "a wait"}}))
    assert await asyncio.to_thread(Seen.waiting.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(Seen.cancelled.wait, 30)


# --- wrong things -----------------------------------------------------------------------------


@pytest.mark.parametrize("thing", ["text", Talker, Document(content="x"), print], ids=str)
def test_other_things_are_refused(thing: Any) -> None:
    with pytest.raises(InputError, match="from_haystack takes a component or a Pipeline"):
        from_haystack(thing)
    with pytest.raises(InputError, match="to_haystack takes an App of Teola"):
        to_haystack(thing)


def test_a_pipeline_with_two_outputs_of_one_name_is_refused() -> None:
    pipe = Pipeline()
    pipe.add_component("one", Gentle())
    pipe.add_component("two", Gentle())
    with pytest.raises(InputError, match="'said' is produced by multiple components"):
        from_haystack(pipe)
    mapped = SuperComponent(pipe, output_mapping={"one.said": "first", "two.said": "second"})
    assert list(from_haystack(mapped).outputs) == ["first", "second"]


def test_an_output_that_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown output 'reply'.*did you mean 'replies'"):
        from_haystack(Talker(), outputs="reply")
