"""LlamaIndex as its documentation builds it: its own prompts, modes and adapters.

naive-rag     VectorStoreIndex.from_documents, as_query_engine(response_mode="tree_summarize")
advanced-rag  QueryFusionRetriever of four queries, a reranking postprocessor, "refine"
chat-rag      CondensePlusContextChatEngine over the same retriever

The adapters are its own: PGVectorStore, HuggingFaceEmbedding (the same weights, loaded once more),
OpenAILike. Only the reranker is ours, as a node postprocessor. Chunks have the size that the
embedder reads; the expansion's text is fixed, as everybody's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import CondensePlusContextChatEngine
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index.llms.openai_like import OpenAILike
from llama_index.vector_stores.postgres import PGVectorStore
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from experiments.real_engines.calls import Engines, llm_options, of_system
from experiments.real_engines.prompts import ANSWER_TOKENS, EXPANSION_TOKENS, expansion_text
from experiments.real_engines.recording import Log
from experiments.real_engines.servers import WINDOW
from experiments.real_engines.workload import NAIVE_TOP_K, RERANK_TOP_K, SEARCH_TOP_K, Query
from teola.engine import Hit, Splitting
from teola_engines.embedding.weights import locate

QUERIES = 4


class Rerank(BaseNodePostprocessor):
    """The shared reranker as LlamaIndex wants one."""

    engines: Any
    loop: Any
    log: Any

    @classmethod
    def class_name(cls) -> str:
        return "Rerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        by_id = {node.node_id: node for node in nodes}
        hits = [Hit(id, "", node.get_content(), node.score or 0.0) for id, node in by_id.items()]
        question = query_bundle.query_str if query_bundle else ""
        work = self.engines.rerank(question, hits, RERANK_TOP_K, self.log)
        best = asyncio.run_coroutine_threadsafe(work, self.loop).result()
        return [by_id[hit.id] for hit in best]


class LlamaIndexDefault:
    """See the module. Its synchronous API runs in a thread, so that others can be measured."""

    name, style = "llamaindex", "default"

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._embedding = HuggingFaceEmbedding(model_name=str(locate(None)), device="cpu")
        self._tables = count(1)
        self._salt = f"{self.name}_{self.style}"

    async def answer(self, query: Query, log: Log) -> str:
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self._answer, query, log, loop)

    def _answer(self, query: Query, log: Log, loop: asyncio.AbstractEventLoop) -> str:
        store = self._store()
        try:
            index = self._index(query, store)
            rerank = Rerank(engines=self._engines, loop=loop, log=log)
            pieces = []
            for piece in self._stream(query, index, rerank):
                log.first_token()
                pieces.append(piece)
            return "".join(pieces)
        finally:
            asyncio.run(store.close())

    def _index(self, query: Query, store: PGVectorStore) -> VectorStoreIndex:
        splitting = Splitting()
        splitter = SentenceSplitter(
            chunk_size=splitting.chunk_size,
            chunk_overlap=splitting.overlap,
            tokenizer=self._engines.shared.encode,
        )
        return VectorStoreIndex.from_documents(
            [Document(text=query.document)],
            storage_context=StorageContext.from_defaults(vector_store=store),
            embed_model=self._embedding,
            transformations=[splitter],
        )

    def _stream(self, query: Query, index: VectorStoreIndex, rerank: Rerank) -> Iterator[str]:
        llm = self._llm(None, ANSWER_TOKENS)
        if query.tree:
            engine = index.as_query_engine(
                llm=llm,
                similarity_top_k=NAIVE_TOP_K,
                response_mode="tree_summarize",
                streaming=True,
            )
            return _tokens(engine.query(query.question).response_gen)
        retriever = QueryFusionRetriever(
            [index.as_retriever(similarity_top_k=SEARCH_TOP_K)],
            llm=self._llm(expansion_text(query.question), EXPANSION_TOKENS),
            num_queries=QUERIES,
            similarity_top_k=QUERIES * SEARCH_TOP_K,
            use_async=False,  # its own loop in a thread would outlive its connections
        )
        if query.history is None:
            refine = RetrieverQueryEngine.from_args(
                retriever,
                llm=llm,
                node_postprocessors=[rerank],
                response_mode="refine",
                streaming=True,
            )
            return _tokens(refine.query(query.question).response_gen)
        chat = CondensePlusContextChatEngine.from_defaults(
            retriever=retriever, llm=llm, node_postprocessors=[rerank]
        )
        history = [ChatMessage(role=MessageRole.USER, content=query.history)]
        return _tokens(chat.stream_chat(query.question, chat_history=history).response_gen)

    def _llm(self, choice: str | None, max_tokens: int) -> OpenAILike:
        return OpenAILike(
            model=self._engines.model,
            api_base=self._engines.url,
            api_key="none",
            temperature=0.0,
            max_tokens=max_tokens,
            context_window=WINDOW,
            additional_kwargs={"extra_body": of_system(self._salt) | llm_options(choice)},
        )

    def _store(self) -> PGVectorStore:
        where = conninfo_to_dict(self._engines.dsn)
        found = {
            driver: URL.create(
                f"postgresql+{driver}",
                username=str(where["user"]),
                database=str(where["dbname"]),
                query={"host": str(where["host"])},
            ).render_as_string(hide_password=False)
            for driver in ("psycopg2", "asyncpg")
        }
        return PGVectorStore.from_params(
            connection_string=found["psycopg2"],
            async_connection_string=found["asyncpg"],
            table_name=f"llamaindex_default_{next(self._tables)}",
            embed_dim=self._engines.shared.dimensions,
        )


def _tokens(pieces: Any) -> Iterator[str]:
    for piece in pieces:
        if piece:
            yield str(piece)
