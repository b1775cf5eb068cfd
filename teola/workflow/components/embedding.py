"""Embedding: vectors of texts, by default of what is searched for."""

from __future__ import annotations

from typing import Literal

from teola.graph import EmbeddingParams, Op, Ref
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind


class EmbeddingConfig(Config):
    """role: models that embed queries and documents differently need to know which these are."""

    role: Literal["query", "document"] = "query"


class Embedding(Component):
    """One vector for each of `texts` (one text counts as a list of one)."""

    default_name = "embed"
    default_engine = "embedding"
    needs = {"texts": Kind.TEXTS}
    gives = {"vectors": Kind.VECTORS}
    config_type = EmbeddingConfig

    def decompose(self, block: Block) -> None:
        texts = block.read("texts")
        embedding = block.add(
            "embed",
            Op.EMBEDDING,
            {"texts": texts.ref},
            ("vectors",),
            EmbeddingParams(block.config.role),
            items=texts.items,
        )
        block.give("vectors", Ref(embedding, "vectors"), texts.items or 1, open=texts.open)
