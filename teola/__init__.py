"""Teola: primitive-level dataflow orchestration for LLM applications."""

from teola.app import App
from teola.engine import Engine
from teola.errors import TeolaError
from teola.result import Result
from teola.runtime.engines import EngineConfig
from teola.runtime.live import Progress, Token
from teola.runtime.runtime import Runtime
from teola.workflow.component import Component
from teola.workflow.components import (
    Aggregate,
    Condition,
    Embedding,
    Generate,
    Indexing,
    QueryExpansion,
    Rerank,
    Search,
    component,
)

__all__ = [
    "Aggregate",
    "App",
    "Component",
    "Condition",
    "Embedding",
    "Engine",
    "EngineConfig",
    "Generate",
    "Indexing",
    "Progress",
    "QueryExpansion",
    "Rerank",
    "Result",
    "Runtime",
    "Search",
    "TeolaError",
    "Token",
    "component",
]
