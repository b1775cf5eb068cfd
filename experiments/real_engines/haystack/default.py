"""Haystack as its documentation builds it: an indexing pipeline, then a query pipeline, `run`.

DocumentSplitter, ChatPromptBuilder, OpenAIChatGenerator and (but for naive RAG) QueryExpander are
its own, with its own prompts; the passages go into a single call. It has no embedder, store or
ranker for these engines in its core, so those are components around the shared clients.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine, Sequence
from typing import Any

# Read when haystack is imported: a benchmark reports to nobody.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"

from haystack import Document, Pipeline, component
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.query import QueryExpander
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret

from experiments.real_engines.calls import Engines, llm_options, of_system, union
from experiments.real_engines.prompts import ANSWER_TOKENS, EXPANSION_TOKENS, rewritings
from experiments.real_engines.recording import Log
from experiments.real_engines.steps import Steps
from experiments.real_engines.workload import RERANK_TOP_K, Query
from teola.engine import Hit

PROMPT = """
Given the following information, answer the question.
{% if history %}
Conversation so far:
{{ history }}
{% endif %}
Context:
{% for document in documents %}
    {{ document.content }}
{% endfor %}

Question: {{ question }}
Answer:
"""


class Waiting:
    """Steps of a query for components that run in a thread."""

    def __init__(self, steps: Steps, loop: asyncio.AbstractEventLoop) -> None:
        self.steps, self.loop = steps, loop

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


@component
class Embedder:
    """Documents with their vectors."""

    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        texts = [document.content or "" for document in documents]
        vectors = self.waiting.wait(self.waiting.steps.embed(texts))
        pairs = zip(texts, vectors, strict=True)
        return {"documents": [Document(content=t, embedding=v.tolist()) for t, v in pairs]}


@component
class Writer:
    """Stores documents."""

    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting

    @component.output_types(written=int)
    def run(self, documents: list[Document]) -> dict[str, Any]:
        steps = self.waiting.steps
        texts = [document.content or "" for document in documents]
        vectors: Any = [document.embedding for document in documents]
        edition = steps.query.edition
        self.waiting.wait(steps.engines.store(steps.table, edition, texts, vectors, steps.log))
        return {"written": len(documents)}


@component
class Retriever:
    """The documents nearest to several queries."""

    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting

    @component.output_types(documents=list[Document])
    def run(self, queries: list[str]) -> dict[str, Any]:
        waiting = self.waiting
        vectors = waiting.wait(waiting.steps.embed(queries))
        found = [waiting.wait(waiting.steps.search(vector)) for vector in vectors]
        return {"documents": _documents(union(found))}


@component
class Ranker:
    """The best of them."""

    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        steps = self.waiting.steps
        hits = [Hit(d.id, "", d.content or "", d.score or 0.0) for d in documents]
        work = steps.engines.rerank(steps.query.question, hits, RERANK_TOP_K, steps.log)
        return {"documents": _documents(self.waiting.wait(work))}


def _documents(hits: Sequence[Hit]) -> list[Document]:
    return [Document(id=hit.id, content=hit.text, score=hit.score) for hit in hits]


class HaystackDefault:
    """See the module."""

    name, style = "haystack", "default"

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self.table = "haystack_default"

    async def answer(self, query: Query, log: Log) -> str:
        steps = Steps(self._engines, self.table, query, log)
        waiting = Waiting(steps, asyncio.get_running_loop())
        return await asyncio.to_thread(self._answer, waiting)

    def _answer(self, waiting: Waiting) -> str:
        query = waiting.steps.query
        _indexing(waiting).run({"splitter": {"documents": [Document(content=query.document)]}})
        pipeline = self._querying(waiting)
        prompt = {"question": query.question, "history": query.history or ""}
        first: dict[str, Any] = {"expander": {"query": query.question}}
        if query.tree:
            first = {"retriever": {"queries": [query.question]}}
        found = pipeline.run({**first, "prompt": prompt})
        return str(found["llm"]["replies"][0].text)

    def _querying(self, waiting: Waiting) -> Pipeline:
        query, log = waiting.steps.query, waiting.steps.log
        pipeline = Pipeline()
        pipeline.add_component("retriever", Retriever(waiting))
        template = [ChatMessage.from_user(PROMPT)]
        builder = ChatPromptBuilder(template=template, required_variables=["question", "documents"])
        pipeline.add_component("prompt", builder)
        generator = self._generator(None, ANSWER_TOKENS, lambda _: log.first_token())
        pipeline.add_component("llm", generator)
        last = "retriever"
        if not query.tree:
            choice = json.dumps({"queries": rewritings(query.question)})
            expander = QueryExpander(
                chat_generator=self._generator(choice, EXPANSION_TOKENS), n_expansions=3
            )
            pipeline.add_component("expander", expander)
            pipeline.add_component("ranker", Ranker(waiting))
            pipeline.connect("expander.queries", "retriever.queries")
            pipeline.connect("retriever.documents", "ranker.documents")
            last = "ranker"
        pipeline.connect(f"{last}.documents", "prompt.documents")
        pipeline.connect("prompt.prompt", "llm.messages")
        return pipeline

    def _generator(self, choice: str | None, limit: int, watch: Any = None) -> OpenAIChatGenerator:
        extra = of_system(self.table) | llm_options(choice)
        options = {"temperature": 0.0, "max_tokens": limit, "extra_body": extra}
        return OpenAIChatGenerator(
            api_key=Secret.from_token("none"),
            model=self._engines.model,
            api_base_url=self._engines.url,
            generation_kwargs=options,
            streaming_callback=watch,
        )


def _indexing(waiting: Waiting) -> Pipeline:
    pipeline = Pipeline()
    pipeline.add_component("splitter", DocumentSplitter())
    pipeline.add_component("embedder", Embedder(waiting))
    pipeline.add_component("writer", Writer(waiting))
    pipeline.connect("splitter.documents", "embedder.documents")
    pipeline.connect("embedder.documents", "writer.documents")
    return pipeline
