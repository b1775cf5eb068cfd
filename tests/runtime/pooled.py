"""Applications on one engine, and engines made of servers."""

from __future__ import annotations

from typing import Any

from teola import App, Embedding, Generate, Runtime
from teola.runtime.engines import EngineConfig
from tests.fake_openai import FakeOpenAI


def asking(runtime: Runtime, engine: str = "llm") -> App:
    template = Generate(engine=engine, context_required=False)
    inputs, outputs = {"question": "text"}, {"answer": "answer"}
    return App("ask", template, inputs=inputs, outputs=outputs, runtime=runtime)


def embedding(runtime: Runtime) -> App:
    outputs = {"vectors": "vectors"}
    return App("embed", Embedding(), inputs={"texts": "texts"}, outputs=outputs, runtime=runtime)


def servers(*given: FakeOpenAI, type: str = "vllm", **options: Any) -> EngineConfig:
    return EngineConfig(type, options, pool=[{"url": server.url} for server in given])
