"""A server whose engines have not started: it keeps deadlines, and can be ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.serve.conftest import soon

SLOW = """
import asyncio
from teola import App, EngineConfig, Runtime, component
from teola.runtime.python_engine import PythonEngine

class Slow(PythonEngine):
    async def start(self):
        await asyncio.sleep(600)

@component(outputs="answer", engine="slow")
async def say(question: str) -> str:
    return question

app = App(
    "slow", template=say, inputs={"question": "text"}, outputs={"answer": "answer"},
    runtime=Runtime({"slow": EngineConfig(Slow)}),
)
"""


@pytest.mark.server
def test_sigterm_while_engines_start_is_an_end_like_any_other(tmp_path: Path) -> None:
    file, log = tmp_path / "served.py", tmp_path / "stderr.log"
    file.write_text(SLOW)
    words = ["serve", str(file), "--port", "0", "--data-dir", str(tmp_path / "data")]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "teola", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            soon(lambda: httpx.get(f"{url}/healthz").status_code == 200, 60)
            assert httpx.get(f"{url}/readyz").status_code == 503
            asked = {"inputs": {"question": "x"}, "deadline_s": 0.5}
            late = httpx.post(f"{url}/v1/apps/slow/queries", json=asked, timeout=60)
            assert late.json()["error"]["code"] == "deadline"
            (listed,) = httpx.get(f"{url}/v1/queries").json()["queries"]
            assert listed["state"] == "deadline"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()
    assert "CancelledError" not in log.read_text()
