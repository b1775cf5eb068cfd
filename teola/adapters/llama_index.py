"""LlamaIndex, both ways.

| theirs | ours |
| --- | --- |
| `BaseLLM` | LLM engine |
| `BaseEmbedding` | embedding engine |
| `BaseRetriever` | component that gives hits |
| `BaseQueryEngine` | component that gives an answer and the hits that it is from |

`to_llama_index` makes a CustomLLM of an App.

Much of LlamaIndex is only synchronous, and its asynchronous methods then block the loop that they
run on. So retrievers and query engines run in worker threads, and so do models that have no
asynchronous methods of their own.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import copy_context
from dataclasses import dataclass, field
from inspect import getattr_static
from typing import Any, Final, Unpack, overload

from pydantic import BaseModel

from teola.adapters import foreign
from teola.adapters.app_use import UseOptions, use_of
from teola.adapters.foreign_embedder import EmbedderOptions, Numbers, embedder_config
from teola.adapters.foreign_model import (
    ModelOptions,
    Piece,
    PromptMessage,
    in_thread,
    model_config,
    no_text,
)
from teola.adapters.llama_index_app import AppLLM
from teola.app import App
from teola.engine import Hit, Usage
from teola.errors import InputError, OutputError
from teola.extras import needs
from teola.runtime.engines import EngineConfig
from teola.threads import Threads
from teola.workflow.components.function import Function, Options

with needs("llama-index", "teola.adapters.llama_index"):
    from llama_index.core.base.base_query_engine import BaseQueryEngine
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.base.llms.base import BaseLLM
    from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
    from llama_index.core.base.response.schema import StreamingResponse
    from llama_index.core.llms import CustomLLM
    from llama_index.core.schema import MetadataMode, NodeWithScore

TAKES: Final = "an LLM, an embedding model, a retriever or a query engine of LlamaIndex"
UNKNOWN: Final = "unknown"
"""What models are called that have no name."""


@overload
def from_llama_index(of: BaseLLM, **options: Unpack[ModelOptions]) -> EngineConfig: ...
@overload
def from_llama_index(of: BaseEmbedding, **options: Unpack[EmbedderOptions]) -> EngineConfig: ...
@overload
def from_llama_index(
    of: BaseRetriever | BaseQueryEngine, **options: Unpack[Options]
) -> Function: ...
def from_llama_index(of: Any, **options: Any) -> EngineConfig | Function:
    """Make of an object of LlamaIndex's what it is in Teola; see the module.

    Options of a model are those of ForeignModel and ForeignEmbedder, of a component those of
    `component()`. A query engine gives two outputs, `answer` and `hits`; with one name as `outputs`
    it gives the answer alone.

    Raises InputError for any other object, UnknownName for an option that there is not.
    """
    match of:
        case BaseLLM():
            return model_config(_Model(of), options)
        case BaseEmbedding():
            return embedder_config(_Vectors(of), options)
        case BaseRetriever():
            return _retriever(of, options)
        case BaseQueryEngine():
            return _query_engine(of, options)
    ways = ("as_retriever", "as_query_engine")
    hint = next((f"; give its {way}()" for way in ways if hasattr(of, way)), "")
    raise foreign.refuse("from_llama_index", of, TAKES, hint)


def to_llama_index(of: App, **options: Unpack[UseOptions]) -> AppLLM:
    """Make an LLM of an application that answers a text with a text.

    A prompt is the input that the application needs. Of a chat, the only message is, or all of them
    as one text. Options are those of AppUse. Raises InputError, UnknownName.
    """
    if not isinstance(of, App):
        raise foreign.refuse("to_llama_index", of, "an App of Teola")
    return AppLLM(use_of(of, options))


# --- models -----------------------------------------------------------------------------------


def _label(of: object, model: str | None) -> str:
    return f"LlamaIndex's {type(of).__name__}{f' {model}' if model else ''}"


@dataclass(frozen=True, slots=True, repr=False)
class _Source(ABC):
    """An object of LlamaIndex's that is asked, its names, and threads for calls that block."""

    of: Any
    threads: Threads = field(default_factory=lambda: Threads("teola-llama-index"))

    def __repr__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        return _label(self.of, self.model)

    @property
    @abstractmethod
    def model(self) -> str | None:
        """Its name, if it tells."""

    def close(self) -> None:
        self.threads.close()


class _Model(_Source):
    """A `TextSource`."""

    __slots__ = ()
    of: BaseLLM

    @property
    def model(self) -> str | None:
        name = self.of.metadata.model_name
        return name if name != UNKNOWN else None

    async def stream(
        self, turns: Sequence[PromptMessage], stop: Sequence[str], options: Mapping[str, Any]
    ) -> AsyncGenerator[Piece, None]:
        responses = await self._responses(turns, options)
        wrote, last, reason = False, None, None
        async with aclosing(responses):
            async for last in responses:
                wrote, reason = wrote or bool(last.delta), reason or _finish_reason(last.raw)
                yield Piece(last.delta or "")
        if last is not None:
            yield Piece("" if wrote else _whole(last, self.label), _usage(last.raw), reason)

    async def _responses(self, turns: Sequence[PromptMessage], options: Mapping[str, Any]) -> Any:
        chats = self.of.metadata.is_chat_model
        name = "astream_chat" if chats else "astream_complete"
        sync = isinstance(self.of, CustomLLM) and _inherits(self.of, CustomLLM, name)
        if chats:
            messages = [ChatMessage(role=turn.role, content=turn.text) for turn in turns]
            if sync:
                return in_thread(self.threads, lambda: self.of.stream_chat(messages, **options))
            return await self.of.astream_chat(messages, **options)
        text = "".join(turn.text for turn in turns)
        settings: dict[str, Any] = {"formatted": True, **options}
        if sync:
            return in_thread(self.threads, lambda: self.of.stream_complete(text, **settings))
        return await self.of.astream_complete(text, **settings)


def _inherits(of: object, base: type, name: str) -> bool:
    """Whether its method is that of `base`. (LlamaIndex wraps methods anew at each look.)"""
    return getattr_static(type(of), name) is getattr_static(base, name)


def _whole(last: ChatResponse | CompletionResponse, label: str) -> str:
    """The text of an answer that came without pieces. Raises OutputError."""
    if isinstance(last, CompletionResponse):
        return last.text
    kinds = {block.block_type for block in last.message.blocks} - {"text", "thinking"}
    if kinds and not last.message.content:
        raise no_text(label, ", ".join(sorted(f"blocks of type {kind}" for kind in kinds)))
    return last.message.content or ""


def _usage(raw: Any) -> Usage | None:
    """Token counts of a server that speaks OpenAI's API, whose answers go along as they came."""
    counts = _of(raw, "usage")
    prompt, completion = _of(counts, "prompt_tokens"), _of(counts, "completion_tokens")
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return None
    return Usage(prompt, completion)


def _finish_reason(raw: Any) -> str | None:
    choices = _of(raw, "choices")
    reason = _of(choices[0], "finish_reason") if isinstance(choices, list) and choices else None
    return reason if isinstance(reason, str) else None


def _of(value: Any, name: str) -> Any:
    """A field of an answer, which may be a model or a dict."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


class _Vectors(_Source):
    """A `VectorSource`. Batches are asked for asynchronously where the model has a method of its
    own for that."""

    __slots__ = ()
    of: BaseEmbedding

    @property
    def model(self) -> str | None:
        return self.of.model_name if self.of.model_name != UNKNOWN else None

    async def documents(self, texts: list[str]) -> Numbers:
        if self._blocks:
            return await self._in_thread(lambda: self.of.get_text_embedding_batch(texts))
        return await self.of.aget_text_embedding_batch(texts)

    async def queries(self, texts: list[str]) -> Numbers:
        if self._blocks:
            return await self._in_thread(lambda: [self.of.get_query_embedding(t) for t in texts])
        return await asyncio.gather(*map(self.of.aget_query_embedding, texts))

    async def _in_thread(self, work: Callable[[], Numbers]) -> Numbers:
        within = copy_context()
        vectors: Numbers = await self.threads.run(lambda: within.run(work))
        return vectors

    @property
    def _blocks(self) -> bool:
        return _inherits(self.of, BaseEmbedding, "_aget_text_embeddings")


# --- components -------------------------------------------------------------------------------


def _retriever(of: BaseRetriever, options: dict[str, Any]) -> Function:
    def retrieve(question: str) -> list[Hit]:
        return hits_of(of.retrieve(question))

    defaults = {"name": "retrieve", "outputs": "hits", "pure": True}
    return Function(retrieve, **{**defaults, **options})


def _query_engine(of: BaseQueryEngine, options: dict[str, Any]) -> Function:
    defaults = {"name": "query", "outputs": ("answer", "hits"), "pure": True}
    options = {**defaults, **options}
    outputs = options["outputs"]
    names = [outputs] if isinstance(outputs, str) else list(outputs)

    def query(question: str) -> Any:
        response = of.query(question)
        if isinstance(response, StreamingResponse):
            response = response.get_response()
        answer = _answer(response)
        if len(names) == 1:
            return answer
        return dict(zip(names, (answer, hits_of(response.source_nodes)), strict=True))

    if len(names) > 2:
        raise InputError("a query engine gives an answer and hits: name one or two outputs")
    return Function(query, **options)


def _answer(response: Any) -> Any:
    """The text of a response; of a structured one its fields. Raises OutputError."""
    answer = getattr(response, "response", None)
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json")
    if answer is None or isinstance(answer, str):
        return answer or ""
    raise OutputError(f"a query engine answered with {type(answer).__name__}, which is no text")


def hits_of(nodes: Sequence[NodeWithScore]) -> list[Hit]:
    """Nodes as hits. Without scores of their own they get some that keep their order."""
    return [_hit(scored, place) for place, scored in enumerate(nodes)]


def _hit(scored: NodeWithScore, place: int) -> Hit:
    node = scored.node
    score = scored.score if scored.score is not None else 1 / (place + 1)
    named = node.metadata.get("file_name") or node.metadata.get("source") or node.ref_doc_id
    text = node.get_content(MetadataMode.NONE)
    return Hit(node.node_id, str(named or node.node_id), text, float(score), node.metadata)
