"""Applications whose own vLLM is killed while it writes what others already work with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from teola import App, Embedding, EngineConfig, Progress, QueryExpansion, Result, Runtime
from tests.scripted_model import make_scripted_model

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(420)]

STEPS = (20, 1500, 1500)
"""Tokens of the answer's lines: the later ones take long enough to be killed in."""
PIECES = [
    f"way {line} step {step}" + (", " if step < steps - 1 else "\n")
    for line, steps in enumerate(STEPS)
    for step in range(steps)
]


def worker(runtime: Runtime) -> psutil.Process:
    engine: Any = runtime.host("llm").engine
    return psutil.Process(engine._process.pid)


@pytest.mark.nightly
def test_a_model_killed_between_two_partial_decodings(python: str, tmp_path: Path) -> None:
    """It comes back, writes its answer again, and what the first item was used for stays."""
    model = make_scripted_model(tmp_path / "model", PIECES, chat_template=True)
    llm = {"model": str(model), "python": python, "dtype": "float32", "kv_gib": 1}
    llm |= {"max_model_len": 4096, "load_timeout_s": 500.0}
    configs = {
        "llm": EngineConfig("vllm-inprocess", llm),
        "embedding": EngineConfig("embedding", {"dtype": "float32"}),
    }
    lines = "".join(PIECES).splitlines()
    with Runtime(configs) as runtime:
        embed = Embedding(inputs={"texts": "queries"})
        shared = {"outputs": {"queries": "queries", "vectors": "vectors"}, "runtime": runtime}
        expand = QueryExpansion(n=len(STEPS), max_tokens=3500)
        app = App("expanding", expand >> embed, inputs={"question": "text"}, **shared)
        started, killed = [], None
        for event in app.stream(question="Why?", deadline_s=600):
            if isinstance(event, Progress) and event.state == "started":
                started.append(event.op)
                if event.op == "embedding" and killed is None:
                    killed = worker(runtime)
                    killed.kill()
        assert started[:2] == ["prefilling", "embedding"]
        assert sorted(started) == ["embedding"] * 3 + ["prefilling"] * 2, "each text once"
        assert killed != worker(runtime)
        assert isinstance(event, Result)
        assert event["queries"] == lines
        alone = App("embedding", embed, inputs={"queries": "texts"}, **shared).run(queries=lines)
        assert np.abs(np.stack(event["vectors"]) - np.stack(alone["vectors"])).max() < 1e-5
