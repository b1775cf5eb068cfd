"""Indexing: embed the chunks of the query's documents and store them."""

from __future__ import annotations

from pydantic import Field

from teola.graph import EmbeddingParams, IngestionParams, Op, Ref
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind


class IndexingConfig(Config):
    """chunk_size, overlap: how documents are split, in tokens of the embedder."""

    chunk_size: int = Field(254, ge=16, le=8192)
    overlap: int = Field(30, ge=0)


class Indexing(Component):
    """Embedding + Ingestion of `chunks`; `store` names the vector database engine."""

    default_name = "index"
    default_engine = "embedding"
    needs = {"chunks": Kind.CHUNKS, "scope": Kind.SCOPE}
    gives = {"stored": Kind.ANY}
    effect = True
    config_type = IndexingConfig

    def __init__(self, name: str | None = None, *, store: str = "vectorstore", **rest: object):
        super().__init__(name, **rest)  # type: ignore[arg-type]
        self.store = store

    def decompose(self, block: Block) -> None:
        chunks, scope = block.read("chunks"), block.read("scope")
        embedding = block.add(
            "embed",
            Op.EMBEDDING,
            {"texts": chunks.ref},
            ("vectors",),
            EmbeddingParams("document"),
            items=chunks.items,
        )
        ingestion = block.add(
            "ingest",
            Op.INGESTION,
            {"vectors": Ref(embedding, "vectors"), "chunks": chunks.ref, "scope": scope.ref},
            ("stored",),
            IngestionParams(),
            items=chunks.items,
            engine=self.store,
        )
        block.give("stored", Ref(ingestion, "stored"), chunks.items)
