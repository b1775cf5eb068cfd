"""Twenty agents at once on a real vLLM call tools as their schemas say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.agents_on_vllm.measure import measure, server
from experiments.agents_on_vllm.tools_asked import LOOK_UP_S
from teola.runtime.hosts.model_server import PYTHON
from tests.architecture.tree import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.nightly]

AGENTS = 20


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    if not (ROOT / PYTHON).exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"there is no vLLM at {PYTHON}: run `make vllm`")
        pytest.skip("no vLLM here: run `make vllm` for these tests")
    folder: Path = tmp_path_factory.mktemp("agents") / "tiny"
    with server(folder) as running:
        yield measure(running.url, AGENTS, rounds=1)


@pytest.mark.parametrize("system", ["teola", "langgraph"])
def test_agents_make_valid_calls_only(report: dict[str, Any], system: str) -> None:
    (row,) = (row for row in report["rows"] if row["system"] == system)
    assert row["agents"] == AGENTS
    assert row["calls"] > 0
    assert row["invalid"] == 0
    # A random model may fill its turn before it has called anything.
    assert row["unfinished"] <= (0 if system == "teola" else AGENTS - 1), row["why"]
    assert row["mean_s"] > LOOK_UP_S
