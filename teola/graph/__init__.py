"""The graph is data: primitives, references between them, prompts; rendering. No I/O."""

from teola.graph.graph import Edge, Graph
from teola.graph.growth import Grow, Grower, Growth, ToolStep
from teola.graph.inquiry import Inquiry, Wording
from teola.graph.ops import (
    AggregateParams,
    Aggregation,
    ByHand,
    ConditionParams,
    DecodeParams,
    EmbeddingParams,
    GrowParams,
    IngestionParams,
    OfferedTools,
    Op,
    PrefillParams,
    RerankParams,
    SearchParams,
    SqlParams,
    ToolParams,
    WaitParams,
    WebSearchParams,
)
from teola.graph.primitive import Const, Guard, Order, Primitive, Value
from teola.graph.prompt import QUERY, Part, Prompt, Ref, Role

__all__ = [
    "QUERY",
    "AggregateParams",
    "Aggregation",
    "ByHand",
    "ConditionParams",
    "Const",
    "DecodeParams",
    "Edge",
    "EmbeddingParams",
    "Graph",
    "Grow",
    "GrowParams",
    "Grower",
    "Growth",
    "Guard",
    "IngestionParams",
    "Inquiry",
    "OfferedTools",
    "Op",
    "Order",
    "Part",
    "PrefillParams",
    "Primitive",
    "Prompt",
    "Ref",
    "RerankParams",
    "Role",
    "SearchParams",
    "SqlParams",
    "ToolParams",
    "ToolStep",
    "Value",
    "WaitParams",
    "WebSearchParams",
    "Wording",
]
