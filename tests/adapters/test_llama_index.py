"""LlamaIndex's real classes in Teola, and an application as a model of theirs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import (
    ChatMessage,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    ImageBlock,
    LLMMetadata,
    TextBlock,
)
from llama_index.core.base.response.schema import PydanticResponse, Response, StreamingResponse
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import CustomLLM, MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pydantic import BaseModel

from teola import App, Ask, Embedding, Runtime, Token
from teola.adapters import from_llama_index, to_llama_index
from teola.errors import InputError, QueryError, QueryFailed, UnknownName
from tests.adapters.conftest import give_up, give_up_streaming

Answering = Callable[..., App]


class Writer(CustomLLM):
    """Only synchronous: says its prompt, letter by letter. seen: what became of its streams."""

    pause: float = 0.0
    chats: bool = False
    seen: dict[str, Any] = {}

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="writer-1", is_chat_model=self.chats)

    def complete(self, prompt: str, formatted: bool = False, **options: Any) -> CompletionResponse:
        raise AssertionError("it streams")

    def stream_complete(
        self, prompt: str, formatted: bool = False, **options: Any
    ) -> CompletionResponseGen:
        self.seen.setdefault("asked", []).append((prompt, formatted, options))

        def letters() -> CompletionResponseGen:
            with lock:
                self.seen["now"] = self.seen.get("now", 0) + 1
                self.seen["most"] = max(self.seen.get("most", 0), self.seen["now"])
            try:
                for i, letter in enumerate(prompt):
                    time.sleep(self.pause)
                    if letter == "!":
                        raise ValueError("do not shout")
                    yield CompletionResponse(text=prompt[: i + 1], delta=letter)
            finally:
                with lock:
                    self.seen["closed"] = self.seen.get("closed", 0) + 1
                    self.seen["now"] -= 1

        return letters()


lock = threading.Lock()


class Native(Writer):
    """Has an asynchronous method of its own, and tells counts at the end."""

    async def astream_complete(
        self, prompt: str, formatted: bool = False, **options: Any
    ) -> CompletionResponseAsyncGen:
        async def letters() -> AsyncGenerator[CompletionResponse, None]:
            self.seen["thread"] = threading.current_thread().name
            for letter in "high":
                yield CompletionResponse(text="", delta=letter)
            choices = [{"finish_reason": "length"}]
            raw = {"usage": {"prompt_tokens": 5, "completion_tokens": 2}, "choices": choices}
            yield CompletionResponse(text="high", delta="", raw=raw)

        return letters()


# --- models -----------------------------------------------------------------------------------


def test_a_model_that_only_blocks_streams_from_a_thread(answering: Answering) -> None:
    model = Writer(seen={})
    events = list(answering(from_llama_index(model)).stream(question="When?"))
    pieces = [e.text for e in events if isinstance(e, Token)]
    assert all(len(one) == 1 for one in pieces)
    ((prompt, formatted, options),) = model.seen["asked"]
    assert "".join(pieces) == prompt
    assert (formatted, options) == (True, {})
    assert prompt.startswith("Be brief.")
    assert "When?" in prompt


def test_a_chat_model_gets_messages(answering: Answering) -> None:
    model = Writer(seen={}, chats=True)
    answer = answering(from_llama_index(model)).run(question="When?").answer
    assert answer.startswith("system: Be brief.")
    assert "\nuser: Question: When?" in answer


def test_a_model_of_its_own_asynchrony_runs_on_the_loop(answering: Answering) -> None:
    model = Native(seen={})
    result = answering(from_llama_index(model)).run(question="Tide?")
    assert result.answer == "high"
    assert model.seen["thread"] == "teola"
    assert result.trace is not None
    assert (result.trace.prompt_tokens, result.trace.completion_tokens) == (5, 2)


def test_their_mock_answers(answering: Answering) -> None:
    app = answering(from_llama_index(MockLLM(max_tokens=3)))
    assert app.run(question="Tide?").answer == "text text text"


def test_stops_and_limits_hold(answering: Answering) -> None:
    model = Writer(seen={})
    assert answering(from_llama_index(model), stop=("hen",)).run(question="When?").answer[-1] == "W"
    assert len(answering(from_llama_index(model), max_tokens=2).run(question="W").answer) <= 8
    passes = from_llama_index(model, passes={"temperature": "temperature"})
    answering(passes, temperature=0.5).run(question="When?")
    assert model.seen["asked"][-1][2] == {"temperature": 0.5}


def test_blocking_calls_run_side_by_side_and_leave_the_loop_free(answering: Answering) -> None:
    model = Writer(seen={}, pause=0.002)
    app = answering(from_llama_index(model, max_sequences=3))
    results = app.batch([{"question": f"Number {i}?"} for i in range(6)])
    assert all(f"Number {i}?" in one.answer for i, one in enumerate(results))
    assert model.seen["most"] == 3


async def test_cancelling_ends_the_stream_of_a_thread(answering: Answering) -> None:
    model = Writer(seen={}, pause=0.05)
    app = answering(from_llama_index(model))
    await give_up_streaming(app, "When? " * 200, model.seen)


def test_a_failure_is_told_with_its_type(answering: Answering) -> None:
    told = r"component 'generate'.*LlamaIndex's Writer writer-1: ValueError: do not shout"
    with pytest.raises(QueryFailed, match=told):
        answering(from_llama_index(Writer(seen={}))).run(question="When!")


# --- embeddings -------------------------------------------------------------------------------


class Lengths(MockEmbedding):
    """A vector of a text's length. threads: where it was made."""

    threads: list[str] = []

    def __init__(self) -> None:
        super().__init__(embed_dim=3, model_name="lengths")

    def _get_text_embedding(self, text: str) -> list[float]:
        self.threads.append(threading.current_thread().name)
        if text == "bad":
            raise ValueError("no bad words")
        return [float(len(text)), 1.0, 0.0]


def test_an_embedding_model_that_blocks_runs_in_threads() -> None:
    model = Lengths()
    with Runtime({"embedding": from_llama_index(model)}) as runtime:
        app = App(
            "embeds",
            Embedding(role="document"),
            inputs={"texts": "texts"},
            outputs={"vectors": "vectors"},
            runtime=runtime,
        )
        vectors = app.run(texts=["a", "aaa"])["vectors"]
        bad, good = app.batch([{"texts": ["bad"]}, {"texts": ["good"]}])
    assert [round(float(one[0] / one[1])) for one in vectors] == [1, 3]
    assert set(model.threads) == {"teola-llama-index"}
    assert "ValueError: no bad words" in str(bad.error)
    assert good.state == "ok"


def test_query_and_document_are_told_apart() -> None:
    model = MockEmbedding(embed_dim=4)
    with Runtime({"embedding": from_llama_index(model, identity="mine")}) as runtime:
        app = App(
            "embeds",
            Embedding(),
            inputs={"texts": "text"},
            outputs={"vectors": "vectors"},
            runtime=runtime,
        )
        assert app.run(texts="a")["vectors"][0].tolist() == [0.5] * 4
        (engine,) = runtime.engines("embedding")
    assert engine.identity == "mine"  # type: ignore[attr-defined]


# --- components -------------------------------------------------------------------------------


class Pages(BaseRetriever):
    """Two nodes; one has a score."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.thread = threading.current_thread().name
        first = TextNode(id_="1", text=query_bundle.query_str, metadata={"file_name": "a.md"})
        return [NodeWithScore(node=first, score=0.5), NodeWithScore(node=TextNode(text="more"))]


class Fixed(BaseQueryEngine):
    """Gives one response."""

    def __init__(self, response: Any) -> None:
        super().__init__(callback_manager=None)
        self.response = response

    def _query(self, query_bundle: QueryBundle) -> Any:
        return self.response

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        return self.response

    def _get_prompt_modules(self) -> Any:
        return {}


def app_of(runtime: Runtime, template: Any, *outputs: str) -> App:
    names = {name: name for name in outputs}
    return App("test", template, inputs={"question": "text"}, outputs=names, runtime=runtime)


def test_a_retriever_gives_hits(runtime: Runtime) -> None:
    pages = Pages()
    hits = app_of(runtime, from_llama_index(pages), "hits").run(question="tides").answer
    assert (hits[0].document, hits[0].text, hits[0].score) == ("a.md", "tides", 0.5)
    assert (hits[1].text, hits[1].score) == ("more", 0.5)
    assert pages.thread == "python"


def test_a_query_engine_gives_an_answer_and_its_sources(runtime: Runtime) -> None:
    made = RetrieverQueryEngine.from_args(Pages(), llm=MockLLM(max_tokens=2))
    result = app_of(runtime, from_llama_index(made), "answer", "hits").run(question="tides")
    assert result["answer"] == "text text"
    assert [one.text for one in result["hits"]] == ["tides", "more"]
    alone = from_llama_index(made, outputs="said")
    assert app_of(runtime, alone, "said").run(question="x").answer == "text text"


class Form(BaseModel):
    """A structured answer."""

    metres: float


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (Response(None), ""),
        (PydanticResponse(Form(metres=4.5)), {"metres": 4.5}),
        (StreamingResponse(response_gen=(word for word in ("at ", "noon"))), "at noon"),
    ],
    ids=["none", "structured", "streamed"],
)
def test_every_kind_of_response_is_read(runtime: Runtime, response: Any, answer: Any) -> None:
    made = from_llama_index(Fixed(response), outputs="said")
    assert app_of(runtime, made, "said").run(question="x").answer == answer


def test_a_response_that_is_no_text_is_refused(runtime: Runtime) -> None:
    made = from_llama_index(Fixed(Response([1])), outputs="said")  # type: ignore[arg-type]
    with pytest.raises(QueryFailed, match="answered with list, which is no text"):
        app_of(runtime, made, "said").run(question="x")


# --- applications -----------------------------------------------------------------------------


def asked(*said: str) -> Sequence[ChatMessage]:
    return [ChatMessage(role="user", content=text) for text in said]


def test_an_app_is_a_model(echo: App) -> None:
    llm = to_llama_index(echo)
    assert llm.metadata.model_name == "echo"
    assert llm.complete("a b").text == "a b"
    assert [one.delta for one in llm.stream_complete("a b")] == ["a", " b"]
    assert [one.text for one in llm.stream_complete("a b c")] == ["a", "a b", "a b c"]
    assert llm.chat(asked("a b")).message.content == "a b"
    said = [(one.message.content, one.delta) for one in llm.stream_chat(asked("a b c"))]
    assert said == [("a", "a"), ("a b", " b"), ("a b c", " c")]
    assert llm.chat(asked("a", "b")).message.content == "user: a user: b assistant:"


async def test_an_app_is_a_model_for_async_code(echo: App) -> None:
    llm = to_llama_index(echo)
    both = await asyncio.gather(llm.acomplete("a b"), llm.acomplete("c"))
    assert [one.text for one in both] == ["a b", "c"]
    said = [(one.text, one.delta) async for one in await llm.astream_complete("a b c")]
    assert said == [("a", "a"), ("a b", " b"), ("a b c", " c")]
    assert (await llm.achat(asked("a b"))).message.content == "a b"
    chat = await llm.astream_chat(asked("a b c"))
    assert [(one.message.content, one.delta) async for one in chat] == said


async def test_an_app_in_a_query_engine(echo: App) -> None:
    made = RetrieverQueryEngine.from_args(Pages(), llm=to_llama_index(echo))
    response = await asyncio.to_thread(made.query, "tides")
    assert "Query: tides" in str(response)


@pytest.mark.parametrize("streams", [False, True])
async def test_cancelling_cancels_the_query(echo: App, streams: bool) -> None:
    llm = to_llama_index(echo)

    async def read() -> None:
        if not streams:
            await llm.acomplete("a wait")
        async for _ in await llm.astream_complete("a wait"):
            pass

    await give_up(read())


def test_what_an_app_cannot_read_or_say_is_refused(echo: App, finder: App) -> None:
    llm = to_llama_index(echo)
    picture = ChatMessage(role="user", blocks=[TextBlock(text="see"), ImageBlock(image=b"x")])
    with pytest.raises(InputError, match="a message has a block of type image"):
        llm.chat([picture])
    with pytest.raises(InputError, match="does not take temperature"):
        llm.complete("a", temperature=1.0)
    with pytest.raises(QueryFailed, match="no such word"):
        llm.complete("fail")
    given = to_llama_index(finder, given={"texts": ["x"]})
    with pytest.raises(InputError, match="has the inputs none"):
        given.complete("a")


# --- wrong things -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        ("gpt", "not builtins.str"),
        (MockLLM, "not the class MockLLM; make one of the class"),
        (TextNode(text="x"), r"not llama_index\.core\.schema\.TextNode"),
    ],
    ids=["text", "class", "node"],
)
def test_other_things_are_refused(thing: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        from_llama_index(thing)
    with pytest.raises(InputError, match="to_llama_index takes an App of Teola"):
        to_llama_index(thing)


def test_options_are_checked(echo: App) -> None:
    with pytest.raises(UnknownName, match="max_batches"):
        from_llama_index(MockLLM(), max_batches=3)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="max_sequences must be at least 1"):
        from_llama_index(MockLLM(), max_sequences=0)
    with pytest.raises(InputError, match="name one or two outputs"):
        from_llama_index(Fixed(None), outputs=("a", "b", "c"))
    with pytest.raises(UnknownName, match="deadline"):
        to_llama_index(echo, deadline=3)  # type: ignore[call-arg]


def test_a_query_that_waits_for_a_person_is_no_text() -> None:
    with Runtime({}) as runtime:
        inputs, outputs = {"question": "text"}, {"answer": "answer"}
        app = App("asks", Ask("{question}?"), inputs=inputs, outputs=outputs, runtime=runtime)
        llm = to_llama_index(app)
        with pytest.raises(QueryError, match="waits for a person"):
            llm.complete("May I")
        with pytest.raises(QueryError, match="waits for a person"):
            list(llm.stream_complete("May I"))
