"""Search: nearest neighbours of query vectors in the vector database."""

from __future__ import annotations

from pydantic import Field

from teola.graph import AggregateParams, Aggregation, Op, Ref, SearchParams
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind


class SearchConfig(Config):
    """top_k: hits for each vector."""

    top_k: int = Field(4, ge=1, le=200)


class Search(Component):
    """The union of the `top_k` nearest chunks of each vector, within the query's scope."""

    default_name = "search"
    default_engine = "vectorstore"
    needs = {"vectors": Kind.VECTORS, "scope": Kind.SCOPE}
    gives = {"hits": Kind.HITS}
    config_type = SearchConfig

    def decompose(self, block: Block) -> None:
        vectors, top_k = block.read("vectors"), block.config.top_k
        search = block.add(
            "search",
            Op.SEARCHING,
            {"vectors": vectors.ref, "scope": block.read("scope").ref},
            ("hits",),
            SearchParams(top_k),
            items=vectors.items,
        )
        union = block.add(
            "union",
            Op.AGGREGATE,
            {"parts": (Ref(search, "hits"),)},
            ("out",),
            AggregateParams(Aggregation.UNION),
        )
        planned = (vectors.items or 1) * top_k
        block.give("hits", Ref(union, "out"), planned, open=vectors.open)
