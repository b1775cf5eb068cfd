"""WebSearch: what a search engine of the web finds."""

from __future__ import annotations

from pydantic import Field

from teola.graph import AggregateParams, Aggregation, Op, Ref, WebSearchParams
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind


class WebSearchConfig(Config):
    """top_k: hits for each query."""

    top_k: int = Field(4, ge=1, le=200)


class WebSearch(Component):
    """The union of the `top_k` first hits of each of `queries` (one text is a list of one)."""

    default_name = "search"
    default_engine = "websearch"
    needs = {"queries": Kind.TEXTS}
    gives = {"hits": Kind.HITS}
    config_type = WebSearchConfig

    def decompose(self, block: Block) -> None:
        queries, top_k = block.read("queries"), block.config.top_k
        search = block.add(
            "search",
            Op.WEB_SEARCH,
            {"queries": queries.ref},
            ("hits",),
            WebSearchParams(top_k),
            items=queries.items,
        )
        union = block.add(
            "union",
            Op.AGGREGATE,
            {"parts": (Ref(search, "hits"),)},
            ("out",),
            AggregateParams(Aggregation.UNION),
        )
        planned = (queries.items or 1) * top_k
        block.give("hits", Ref(union, "out"), planned, open=queries.open)
