"""Applications for the soak, as `teola serve` takes them: tests/soak/served.py:NAME.

null      answers at once
narrow    waits for an engine that takes two queries at a time, 0.2 s each
slow      writes for as long as its question says: "for 2.5 s"
flood     writes 12 MB
scribe    a small random language model, which writes nonsense; its folder is in SOAK_MODEL
steady    expansion, embeddings and an answer, on engines in child processes
"""

import asyncio
import os
from hashlib import sha256

from teola import App, Embedding, EngineConfig, Generate, QueryExpansion, Runtime, component
from teola.runtime.python_engine import PythonEngine
from tests.soak.engines import Embeddings, Flood, Slow, Writer

TEXT = {"question": "text"}
ANSWER = {"answer": "answer"}


@component(outputs="answer")
async def same(question: str) -> str:
    return question


@component(outputs="answer", engine="narrow")
async def in_line(question: str) -> str:
    await asyncio.sleep(0.2)
    return question


@component(outputs="context", pure=True)
async def digest(vectors: list) -> str:  # type: ignore[type-arg]
    return sha256(repr(vectors).encode()).hexdigest()


def app(name: str, template: object, **engines: EngineConfig) -> App:
    own = Runtime(engines) if engines else None
    return App(name, template=template, inputs=TEXT, outputs=ANSWER, runtime=own)


def elsewhere(factory: type) -> EngineConfig:
    return EngineConfig(factory, instances=2, host="process")


null = app("null", same)
narrow = app("narrow", in_line, narrow=EngineConfig(PythonEngine, {"concurrency": 2}))
slow = app("slow", Generate(engine="slow"), slow=EngineConfig(Slow))
flood = app("flood", Generate(engine="flood"), flood=EngineConfig(Flood))
scribe = app(
    "scribe",
    Generate(engine="model", max_tokens=400, ignore_eos=True),
    model=EngineConfig("transformers", {"model": os.environ.get("SOAK_MODEL", "")}),
)
steady = app(
    "steady",
    QueryExpansion(n=3, parser="lines", engine="writer")
    >> Embedding(inputs={"texts": "queries"}, engine="vectors")
    >> digest
    >> Generate(engine="writer"),
    writer=elsewhere(Writer),
    vectors=elsewhere(Embeddings),
)
