"""Search: what the vector database finds for query vectors, and for the words of a question."""

from __future__ import annotations

from typing import Any, Final, Literal, cast

from pydantic import Field

from teola.errors import InputError
from teola.graph import AggregateParams, Aggregation, Op, Ref, SearchParams, Value
from teola.workflow.block import Block
from teola.workflow.component import Component, Config
from teola.workflow.kinds import Kind

WORDS: Final = ("hybrid", "auto")
"""Modes that search by words, too."""


class SearchConfig(Config):
    """top_k: hits for each vector. mode: `vector`, the nearest chunks; `hybrid`, those fused with
    what a full-text search finds; or `auto`, `hybrid` where the engine has a full text and `vector`
    elsewhere. language: that the full-text search cuts words by, a text search configuration of
    PostgreSQL (`english`, `german`, ...; `simple`: words as they are)."""

    top_k: int = Field(4, ge=1, le=200)
    mode: Literal["vector", "hybrid", "auto"] = "vector"
    language: str = Field("simple", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")


class Search(Component):
    """The union of the `top_k` best chunks for each vector, within the query's scope. In the modes
    `hybrid` and `auto` it also reads `question`, a text, and hits have a lexical score."""

    default_name = "search"
    default_engine = "vectorstore"
    needs = {"vectors": Kind.VECTORS, "scope": Kind.SCOPE}
    gives = {"hits": Kind.HITS}
    config_type = SearchConfig

    def __init__(self, name: str | None = None, **options: Any) -> None:
        # By vectors alone, what a template calls `question` is none of a search's business.
        if options.get("mode") in WORDS:
            self.needs = {**type(self).needs, "question": Kind.TEXT}  # type: ignore[misc]
        super().__init__(name, **options)

    @property
    def mode(self) -> str:
        """As it was declared: `vector`, `hybrid` or `auto`."""
        return cast("SearchConfig", self.config).mode

    def decompose(self, block: Block) -> None:
        vectors, config = block.read("vectors"), block.config
        inputs: dict[str, Value] = {"vectors": vectors.ref, "scope": block.read("scope").ref}
        if config.mode in WORDS:
            if "question" not in self.needs:
                raise InputError(
                    f"{self.name}.mode: its template has it search by vectors only; declare it "
                    'as Search(mode="hybrid"), then a query may choose either mode'
                )
            inputs["question"] = block.read("question").ref
        search = block.add(
            "search",
            Op.SEARCHING,
            inputs,
            ("hits",),
            SearchParams(config.top_k, config.language if config.mode in WORDS else None),
            items=vectors.items,
        )
        union = block.add(
            "union",
            Op.AGGREGATE,
            {"parts": (Ref(search, "hits"),)},
            ("out",),
            AggregateParams(Aggregation.UNION),
        )
        planned = (vectors.items or 1) * config.top_k
        block.give("hits", Ref(union, "out"), planned, open=vectors.open)
