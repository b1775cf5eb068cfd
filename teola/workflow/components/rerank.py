"""Rerank: score hits against the question with a stronger model and keep the best."""

from __future__ import annotations

from pydantic import Field

from teola.graph import AggregateParams, Aggregation, Op, Ref, RerankParams
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind


class RerankConfig(Config):
    """top_k: hits to keep. lexical_weight: what the best lexical score among the hits adds to the
    reranker's score; the others add as much less as they are lower. Only hits of a search in mode
    `hybrid` have one."""

    top_k: int = Field(3, ge=1, le=200)
    lexical_weight: float = Field(0.0, ge=0.0, allow_inf_nan=False)


class Rerank(Component):
    """The `top_k` best of `hits` for `question`, best first."""

    default_name = "rerank"
    default_engine = "rerank"
    needs = {"hits": Kind.HITS, "question": Kind.TEXT}
    gives = {"context": Kind.HITS}
    config_type = RerankConfig

    def decompose(self, block: Block) -> None:
        hits, top_k = block.read("hits"), block.config.top_k
        rerank = block.add(
            "rerank",
            Op.RERANKING,
            {"hits": hits.ref, "question": block.read("question").ref},
            ("scores",),
            RerankParams(),
            items=hits.items,
        )
        best = block.add(
            "best",
            Op.AGGREGATE,
            {"hits": hits.ref, "scores": Ref(rerank, "scores")},
            ("out",),
            AggregateParams(Aggregation.TOP_K, top_k, block.config.lexical_weight),
        )
        planned = top_k if hits.open else min(top_k, hits.items or 1)
        block.give("context", Ref(best, "out"), planned)
