"""A server that keeps what it learns: its engines are probed before it is ready."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teola.runtime.remembering import mementos_in
from tests.serve.process import ready


@pytest.mark.server
def test_engines_are_probed_before_a_server_is_ready_and_remembered(
    tmp_path: Path, data_dir: Path
) -> None:
    folder, log = tmp_path / "learned", tmp_path / "stderr.log"
    words = ["naive-rag", "--data-dir", str(data_dir), "--learn", str(folder)]
    with ready(words, log) as (process, _):
        process.terminate()
        assert process.wait(60) == 0
    told = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert told[: told.index("ready")].count("engine_probed") == 3
    assert [one.engine for one in mementos_in(folder)] == ["embedding", "llm", "vectorstore"]

    log.unlink()
    with ready(words, log) as (process, _):
        process.terminate()
        process.wait(60)
    assert "engine_probed" not in log.read_text()
