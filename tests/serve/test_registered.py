"""A server uses what the file of its applications registers."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from teola.passes import PIPELINE
from tests.serve.process import ready

APPS = """
import teola
from teola import App, component
from teola.passes.rewrite import Rewrite
from teola.policies.batching import Fifo
from teola.runtime.python_engine import PythonEngine

@teola.register("batching", "mine")
class Mine(Fifo):
    pass

@teola.register("engine", "mine")
class Own(PythonEngine):
    pass

@teola.register("pass", "mine", before="prune_dependencies")
def declining(graph, profile):
    return graph, [Rewrite("mine", "", False, "a file said so")]

@component(outputs="said")
def say(question: str) -> str:
    return question

one = App("one", say, inputs={"question": "text"}, outputs={"said": "said"})
two = App("two", say, inputs={"question": "text"}, outputs={"said": "said"})
"""
CONFIG = """
apps = ["{file}:one", "{file}:two"]
[server]
journal = false
[engines.python]
type = "mine"
batching = "mine"
"""


@pytest.mark.server
def test_it_runs_and_shows_what_a_file_registers(tmp_path: Path) -> None:
    file, config = tmp_path / "own.py", tmp_path / "teola.toml"
    file.write_text(APPS)
    config.write_text(CONFIG.format(file=file))
    asked = {"inputs": {"question": "Why?"}}
    with ready(["--config", str(config)], tmp_path / "stderr.log") as (_, url):
        for name in ("one", "two"):
            answer = httpx.post(f"{url}/v1/apps/{name}/queries", json=asked, timeout=60).json()
            assert answer["outputs"] == {"said": "Why?"}
            shown = httpx.get(f"{url}/v1/queries/{answer['query_id']}/explanation").json()
            assert shown["passes"] == ["mine", *PIPELINE]
            assert "a file said so" in {one["reason"] for one in shown["rewrites"]}
