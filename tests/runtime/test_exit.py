"""A plain script that ends without closing its runtime: engines are closed all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

from teola.threads import LastingPool

SCRIPT = """
import asyncio
from teola import App, Generate, Runtime
from teola.runtime import default_runtime
from teola.testing.hash_engines import HashEmbedder, HashModel

class Plain(HashModel):
    def start(self): pass
    def close(self): print("a sync one is closed")

class Reader(HashEmbedder):
    async def close(self): await asyncio.to_thread(print, "one that closes in a thread is closed")

default_runtime._default = runtime = Runtime({"llm": Plain, "embedding": Reader})
app = App("a", Generate(), inputs={"question": "text"}, outputs={"answer": "answer"})
print(app.run(question="Why?").state)
runtime.start(runtime.ensure(["embedding"])).result()
"""


def ended(script: str) -> list[str]:
    """Lines that a script wrote, on both outputs."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60
    )
    return sorted((done.stdout + done.stderr).splitlines())


def test_engines_are_closed_when_a_script_ends() -> None:
    assert ended(SCRIPT) == ["a sync one is closed", "ok", "one that closes in a thread is closed"]


def test_a_pool_that_was_closed_takes_nothing() -> None:
    pool = LastingPool(1)
    pool.shutdown()
    with pytest.raises(RuntimeError):
        pool.submit(print)
