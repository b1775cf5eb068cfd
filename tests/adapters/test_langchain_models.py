"""LangChain's chat models, completion models and embedding models as engines."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import (
    FakeListChatModel,
    FakeMessagesListChatModel,
    GenericFakeChatModel,
)
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGenerationChunk

from teola import App, Embedding, Runtime, Token
from teola.adapters import from_langchain
from teola.errors import EngineUnavailable, QueryFailed, UnknownName
from tests.adapters.conftest import give_up_streaming
from tests.adapters.talker import Talker, talker

Answering = Callable[..., App]


# --- models -----------------------------------------------------------------------------------


def test_a_chat_model_answers_and_streams(answering: Answering) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage(content="At noon, they say.")]))
    events = list(answering(from_langchain(model)).stream(question="When?"))
    assert [e.text for e in events if isinstance(e, Token)] == [
        "At", " ", "noon,", " ", "they", " ", "say.",
    ]  # fmt: skip
    assert events[-1].answer == "At noon, they say."  # type: ignore[union-attr]


def test_instruction_and_question_are_messages_of_their_own(answering: Answering) -> None:
    model = talker()
    result = answering(from_langchain(model)).run(question="When?")
    ((messages, stop, given),) = model.seen["asked"]
    assert [one.type for one in messages] == ["system", "human"]
    assert messages[0].content == "Be brief."
    assert "When?" in result.answer
    assert (stop, given) == (None, {})


def test_a_completion_model_answers(answering: Answering) -> None:
    model = FakeListLLM(responses=["It is high."])
    assert answering(from_langchain(model)).run(question="Tide?").answer == "It is high."


def test_counts_of_the_model_are_in_the_trace(answering: Answering) -> None:
    result = answering(from_langchain(talker(usage=True))).run(question="When?")
    assert result.trace is not None
    assert (result.trace.prompt_tokens, result.trace.completion_tokens) == (11, 7)


def test_an_answer_ends_before_a_stop_which_never_shows(answering: Answering) -> None:
    model = talker()
    app = answering(from_langchain(model), stop=("hen",))
    events = list(app.stream(question="When?"))
    text = "".join(e.text for e in events if isinstance(e, Token))
    assert text.endswith("W")
    assert model.seen["asked"][0][1] == ["hen"]
    assert model.seen["closed"] == 1


def test_an_answer_has_no_more_tokens_than_it_may(answering: Answering) -> None:
    app = answering(from_langchain(talker()), max_tokens=3)
    assert len(app.run(question="A long question, is it not?").answer) <= 12


def test_what_passes_says_goes_to_the_model_by_its_own_name(answering: Answering) -> None:
    model = talker()
    config = from_langchain(model, passes={"max_tokens": "num_predict", "seed": "seed"})
    answer = answering(config, max_tokens=3).run(question="A long question").answer
    assert model.seen["asked"][0][2] == {"num_predict": 3}
    assert len(answer) > 12
    with pytest.raises(UnknownName, match="max_token"):
        from_langchain(model, passes={"max_token": "x"})


def test_calls_run_side_by_side_up_to_the_bound(answering: Answering) -> None:
    model = talker(pause=0.002)
    app = answering(from_langchain(model, max_sequences=3))
    results = app.batch([{"question": f"Number {i}?"} for i in range(9)])
    assert all(f"Number {i}?" in one.answer for i, one in enumerate(results))
    assert model.seen["most"] == 3


async def test_cancelling_closes_the_stream(answering: Answering) -> None:
    model = talker(pause=0.05)
    app = answering(from_langchain(model))
    await give_up_streaming(app, "When? " * 100, model.seen)


def test_a_failure_is_told_with_its_type(answering: Answering) -> None:
    model = FakeListChatModel(responses=["abc"], error_on_chunk_number=1)
    told = "component 'generate'.*LangChain's FakeListChatModel: FakeListChatModelError"
    with pytest.raises(QueryFailed, match=told):
        answering(from_langchain(model)).run(question="When?")


class Failing(Talker):
    """Fails the first time."""

    error: Any

    async def _astream(self, *args: Any, **given: Any) -> AsyncIterator[ChatGenerationChunk]:
        if not self.seen["asked"]:
            self.seen["asked"].append(None)
            raise self.error
        async for chunk in super()._astream(*args, **given):
            yield chunk


def status(code: int) -> Exception:
    error = RuntimeError(f"status {code}")
    error.status_code = code  # type: ignore[attr-defined]
    return error


def caused(cause: Exception) -> Exception:
    error = RuntimeError("no connection")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error", [ConnectionError("reset"), TimeoutError("late"), status(503), status(429),
              caused(OSError("no route"))], ids=repr,
)  # fmt: skip
def test_what_may_mend_is_tried_again(answering: Answering, error: Exception) -> None:
    model = Failing(seen=talker().seen, error=error)
    assert "When?" in answering(from_langchain(model)).run(question="When?").answer


@pytest.mark.parametrize("error", [ValueError("no"), status(401), caused(KeyError())], ids=repr)
def test_what_does_not_is_not(answering: Answering, error: Exception) -> None:
    model = Failing(seen=talker().seen, error=error)
    with pytest.raises(QueryFailed, match=type(error).__name__):
        answering(from_langchain(model)).run(question="When?")
    assert model.seen["asked"] == [None]


def test_an_answer_without_text_is_refused(answering: Answering) -> None:
    call = {"name": "act", "args": {}, "id": "1", "type": "tool_call"}
    model = FakeMessagesListChatModel(responses=[AIMessage(content="", tool_calls=[call])])
    with pytest.raises(QueryFailed, match="answered with calls of tools and no text"):
        answering(from_langchain(model)).run(question="When?")


# --- embeddings -------------------------------------------------------------------------------


class Letters(DeterministicFakeEmbedding):
    """Refuses a word, and counts its batches."""

    size: int = 8
    batches: list[list[str]] = []
    length: int | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(texts)
        if "bad" in texts:
            raise ValueError("no bad words")
        found = super().embed_documents(texts)
        return [one[: self.length] for one in found]


def embedding(runtime: Runtime, role: str = "document") -> App:
    return App(
        "embeds",
        Embedding(role=role),
        inputs={"texts": "texts"},
        outputs={"vectors": "vectors"},
        runtime=runtime,
    )


def test_an_embedding_model_gives_unit_vectors_in_batches() -> None:
    model = Letters(batches=[])
    with Runtime({"embedding": from_langchain(model, max_batch=2)}) as runtime:
        app = embedding(runtime)
        vectors = app.run(texts=["a", "b", "c", "a"])["vectors"]
        queries = embedding(runtime, "query").run(texts=["a", "b", "c"])["vectors"]
        (engine,) = runtime.engines("embedding")
    assert [len(one) for one in vectors] == [8] * 4
    assert math.isclose(sum(float(x) ** 2 for x in vectors[0]), 1.0, rel_tol=1e-5)
    assert vectors[0].tolist() == vectors[3].tolist() == queries[0].tolist()
    assert max(map(len, model.batches)) <= 2
    assert engine.identity == "LangChain's Letters:8"  # type: ignore[attr-defined]


def test_a_text_that_is_refused_fails_its_own_query_only() -> None:
    with Runtime({"embedding": from_langchain(Letters(batches=[]))}) as runtime:
        app = embedding(runtime)
        good, bad = app.batch([{"texts": ["good"]}, {"texts": ["bad"]}])
    assert good.state == "ok"
    assert "ValueError: no bad words" in str(bad.error)


def test_vectors_of_another_length_are_refused() -> None:
    config = from_langchain(Letters(batches=[], length=5))
    told = "5 numbers where they had 8"
    with Runtime({"embedding": config}) as runtime, pytest.raises(QueryFailed, match=told):
        embedding(runtime).run(texts=["a"])


def test_a_model_that_does_not_embed_does_not_start() -> None:
    class Broken(DeterministicFakeEmbedding):
        def embed_query(self, text: str) -> list[float]:
            raise OSError("no route")

    config = from_langchain(Broken(size=3))
    told = "LangChain's Broken: OSError: no route"
    with Runtime({"embedding": config}) as runtime, pytest.raises(EngineUnavailable, match=told):
        embedding(runtime).run(texts=["a"])
