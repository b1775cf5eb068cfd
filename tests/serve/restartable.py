"""Applications for servers that do not live long, to be named on the command line of `teola serve`.

Their engines are small but real, and wait a little for each batch, so that there is something to
interrupt. The database is the real one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from experiments.tables_scale.stub import Stub
from teola import Agent, App, Ask, EngineConfig, QueryExpansion, Runtime, component
from teola.engine import (
    Call,
    Delta,
    EngineKind,
    EngineResult,
    EngineSpec,
    Fingerprint,
    Request,
    Source,
    Splitting,
)
from teola.graph import Op
from teola.testing.hash_engines import HashModel
from teola.tools import tool
from teola.workflow.components import Indexing

PAUSE_S: Final = float(os.environ.get("TEOLA_PAUSE_S", "0.05"))
"""For each batch of texts."""
LOG: Final = os.environ.get("TEOLA_EFFECTS", os.devnull)
"""File that queries note their effects in."""
AT_ONCE: Final = int(os.environ.get("TEOLA_AT_ONCE", "16"))
"""Calls that the model of tables works on at once."""
DIMENSIONS: Final = 384


class Lines:
    """A loader for which each line is a chunk."""

    def __init__(self, name: str = "documents") -> None:
        self.spec = EngineSpec(name, EngineKind.DOCUMENTS, frozenset(), concurrency=2)

    def start(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing is held."""

    def pipeline(self, splitting: Splitting) -> str:
        """Of any sizes."""
        return "lines"

    def fingerprint(self, source: Source) -> Fingerprint:
        """Of the text."""
        text = _text(source).encode()
        return Fingerprint(hashlib.sha256(text).hexdigest(), len(text))

    def split(
        self, source: Source, splitting: Splitting, encode: Callable[[str], list[int]]
    ) -> Sequence[str]:
        """The lines."""
        return _text(source).splitlines()


def _text(source: Source) -> str:
    return source.text if source.text is not None else Path(str(source.path)).read_text()


class Embedder:
    """A vector out of each text's digest, after PAUSE_S for a batch of eight."""

    identity, dimensions, max_tokens = "digests", DIMENSIONS, 512

    def __init__(self, name: str = "embedding") -> None:
        kind, ops = EngineKind.EMBEDDING, frozenset({Op.EMBEDDING})
        self.spec = EngineSpec(name, kind, ops, max_batch=8, concurrency=4)

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def execute(self, requests: Sequence[Request]) -> Sequence[EngineResult | Exception]:
        """One vector a text. What a server asks to get warm has none of the tests' lines, and it
        does not wait for that."""
        if any("line" in str(text) for request in requests for text in _texts(request)):
            await asyncio.sleep(PAUSE_S)
        return [{"vectors": [vector(str(t)) for t in _texts(r)]} for r in requests]

    def encode(self, text: str) -> list[int]:
        """A token a character."""
        return [ord(c) for c in text]


def _texts(request: Request) -> list[str]:
    return [getattr(text, "text", text) for text in request.inputs["texts"]]


def vector(text: str) -> np.ndarray:
    """Depends on the text and nothing else."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    return np.random.default_rng(seed).normal(size=DIMENSIONS).astype(np.float32)


ingesting = App(
    "ingesting",
    Indexing(),
    inputs={"documents": "documents"},
    outputs={"stored": "stored"},
    runtime=Runtime({"documents": EngineConfig(Lines), "embedding": EngineConfig(Embedder)}),
)


def note(what: str) -> None:
    """One line, whole, also among processes."""
    line = f"{what} {os.getpid()}\n".encode()
    descriptor = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


@component(outputs="answer", pure=True)
async def work(token: str, seconds: str) -> str:
    """Notes that it begins, waits, and notes that it has ended."""
    note(f"begin {token}")
    await asyncio.sleep(float(seconds))
    note(f"end {token}")
    return f"did {token}"


working = App(
    "working",
    work,
    inputs={"token": "text", "seconds": "text"},
    outputs={"answer": "answer"},
)


@component(outputs="draft")
async def prepare(token: str) -> str:
    """Changes the world, as the line in the file shows, and takes its time."""
    note(f"prepare {token}")
    await asyncio.sleep(PAUSE_S)
    return f"draft of {token}"


@component(outputs="answer")
async def act(token: str, draft: str, verdict: str) -> str:
    """The same, when a person has agreed."""
    note(f"act {token}")
    await asyncio.sleep(PAUSE_S)
    return f"{verdict} to the {draft}"


asking = App(
    "asking",
    prepare
    >> Ask("Shall this be done?\n\n{draft}", schema={"enum": ["yes"]}, gives="verdict")
    >> act,
    inputs={"token": "text"},
    outputs={"answer": "answer"},
)


@tool(pure=True)
def look_up(what: str) -> str:
    """Look something up.

    Args:
        what: its name
    """
    return f"{what} costs $$1"


@tool
async def post(text: str) -> str:
    """Post a letter, which takes its time.

    Args:
        text: what it says
    """
    note(f"post {text}")
    await asyncio.sleep(PAUSE_S)
    return f"posted {text}"


class Clerk(HashModel):
    """Looks something up, posts what it gave, and then answers."""

    async def generate(self, call: Call) -> AsyncIterator[Delta]:
        """See the class."""
        prompt = "".join(part.text for part in call.all_parts)
        token = prompt.partition("Question: ")[2].partition("\n")[0]
        made = [
            {"tool": "look_up", "args": {"what": token}},
            {"tool": "post", "args": {"text": "$1"}},
        ]
        done = "Calls so far" in prompt
        yield Delta(json.dumps({"answer": prompt} if done else {"thought": "", "calls": made}))
        yield Delta("", "stop")


posting = App(
    "posting",
    Agent([look_up, post]),
    inputs={"question": "text"},
    outputs={"answer": "answer", "steps": "steps"},
    runtime=Runtime({"llm": EngineConfig(Clerk)}),
)


class Reader(Stub):
    """Answers after 10 to 100 ms, AT_ONCE calls at once, and notes each prompt."""

    def __init__(self, name: str = "llm") -> None:
        super().__init__(name, spread=True, told=LOG)
        self.spec = replace(self.spec, max_sequences=AT_ONCE)


reading = App(
    "reading",
    QueryExpansion(n=2),
    inputs={"question": "text"},
    outputs={"queries": "queries"},
    runtime=Runtime({"llm": EngineConfig(Reader)}),
)
