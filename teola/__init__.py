"""Teola: primitive-level dataflow orchestration for LLM applications.

Each public name is imported when it is first used, so that a program which only lists what is
installed or prints its help need not wait for everything else.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from teola.app import App
    from teola.engine import Engine
    from teola.errors import TeolaError
    from teola.query.result import Result
    from teola.registering import register, unregister
    from teola.runtime.engines import EngineConfig
    from teola.runtime.live.query import Progress, Token
    from teola.runtime.runtime import Runtime
    from teola.workflow.component import Component
    from teola.workflow.components import (
        Agent,
        Aggregate,
        Ask,
        Condition,
        Each,
        Embedding,
        Generate,
        Indexing,
        Judge,
        Loop,
        QueryExpansion,
        Rerank,
        Search,
        Sql,
        WebSearch,
        Write,
        component,
    )
    from teola.workflow.inputs import Input

    __version__: str

__all__ = [
    "Agent",
    "Aggregate",
    "App",
    "Ask",
    "Component",
    "Condition",
    "Each",
    "Embedding",
    "Engine",
    "EngineConfig",
    "Generate",
    "Indexing",
    "Input",
    "Judge",
    "Loop",
    "Progress",
    "QueryExpansion",
    "Rerank",
    "Result",
    "Runtime",
    "Search",
    "Sql",
    "TeolaError",
    "Token",
    "WebSearch",
    "Write",
    "component",
    "register",
    "unregister",
]

_HOMES = {
    "App": "teola.app",
    "Component": "teola.workflow.component",
    "Engine": "teola.engine",
    "EngineConfig": "teola.runtime.engines",
    "Input": "teola.workflow.inputs",
    "Progress": "teola.runtime.live.query",
    "Result": "teola.query.result",
    "Runtime": "teola.runtime.runtime",
    "TeolaError": "teola.errors",
    "Token": "teola.runtime.live.query",
    "register": "teola.registering",
    "unregister": "teola.registering",
}
_COMPONENTS = "teola.workflow.components"


def __getattr__(name: str) -> _typing.Any:
    if name == "__version__":
        value = _import_module("importlib.metadata").version("teola")
    elif name in __all__:
        value = getattr(_import_module(_HOMES.get(name, _COMPONENTS)), name)
    else:
        raise AttributeError(f"module 'teola' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
