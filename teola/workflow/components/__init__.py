"""The components that come with Teola, one file each, and all that have a name."""

from teola.workflow.component import COMPONENT_TYPES, named
from teola.workflow.components.agent import Agent
from teola.workflow.components.aggregate import Aggregate
from teola.workflow.components.ask import Ask
from teola.workflow.components.condition import Condition
from teola.workflow.components.each import Each
from teola.workflow.components.embedding import Embedding
from teola.workflow.components.expansion import QueryExpansion
from teola.workflow.components.function import Function, component
from teola.workflow.components.generate import Generate
from teola.workflow.components.indexing import Indexing
from teola.workflow.components.judge import Judge
from teola.workflow.components.loop import Loop
from teola.workflow.components.rerank import Rerank
from teola.workflow.components.search import Search
from teola.workflow.components.sql import Sql
from teola.workflow.components.web_search import WebSearch
from teola.workflow.components.write import Write

COMPONENT_TYPES.ship(
    {
        "condition": Condition,
        "embed": Embedding,
        "expand": QueryExpansion,
        "gather": Aggregate,
        "generate": Generate,
        "index": Indexing,
        "judge": Judge,
        "rerank": Rerank,
        "search": Search,
        "sql": Sql,
        "web-search": WebSearch,
    }
)

__all__ = [
    "COMPONENT_TYPES",
    "Agent",
    "Aggregate",
    "Ask",
    "Condition",
    "Each",
    "Embedding",
    "Function",
    "Generate",
    "Indexing",
    "Judge",
    "Loop",
    "QueryExpansion",
    "Rerank",
    "Search",
    "Sql",
    "WebSearch",
    "Write",
    "component",
    "named",
]
