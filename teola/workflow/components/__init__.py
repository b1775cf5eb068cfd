"""The components that come with Teola, one file each, and all that have a name."""

from typing import Any, Final

from teola.errors import InputError
from teola.registry import Registry
from teola.workflow.component import Component
from teola.workflow.components.aggregate import Aggregate
from teola.workflow.components.condition import Condition
from teola.workflow.components.embedding import Embedding
from teola.workflow.components.expansion import QueryExpansion
from teola.workflow.components.function import Function, component
from teola.workflow.components.generate import Generate
from teola.workflow.components.indexing import Indexing
from teola.workflow.components.judge import Judge
from teola.workflow.components.rerank import Rerank
from teola.workflow.components.search import Search
from teola.workflow.components.web_search import WebSearch


def _check(called: str, thing: Any) -> None:
    if not isinstance(thing, Component) and not (
        isinstance(thing, type) and issubclass(thing, Component)
    ):
        raise InputError(
            f"{called} must be a Component or a class of them (a function: wrap it by "
            f"component(...)), not {thing!r}"
        )


REGISTRY: Final[Registry[Component | type[Component]]] = Registry(
    "component",
    "teola.components",
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
        "web-search": WebSearch,
    },
    _check,
)


def named(name: str) -> Component:
    """The component called `name`, with the parameters that it has by default. Raises UnknownName,
    and InputError where it cannot be made without any."""
    found = REGISTRY.find(name)
    if isinstance(found, Component):
        return found
    try:
        return found()
    except TypeError as error:
        raise InputError(f"{REGISTRY.called(name)} needs parameters: {error}") from None


__all__ = [
    "REGISTRY",
    "Aggregate",
    "Condition",
    "Embedding",
    "Function",
    "Generate",
    "Indexing",
    "Judge",
    "QueryExpansion",
    "Rerank",
    "Search",
    "WebSearch",
    "component",
    "named",
]
