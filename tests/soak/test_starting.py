"""How soon a server answers that starts from nothing: no database, no processes, nothing stored."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import pytest

from tests.engines.vectorstore.conftest import temporary_folder
from tests.serve.process import await_ready, started
from tests.soak.forms import Figures

HEALTHY_S: Final = 2.0
READY_S: Final = 8.0


def start(folder: Path) -> tuple[float, float]:
    """Seconds until /healthz and until /readyz say yes."""
    folder.chmod(0o755)  # the account that serves root must come in
    log, began = folder / "stderr.log", time.monotonic()
    words = ["naive-rag", "--data-dir", str(folder / "data")]
    with started(words, log) as (process, url):
        assert httpx.get(f"{url}/healthz", timeout=60).json() == {"status": "ok"}
        healthy = time.monotonic() - began
        await_ready(process, url, log)
        seconds = healthy, time.monotonic() - began
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
    return seconds


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_server_answers_soon(figures: Figures) -> None:
    found = []
    for _ in range(3):
        with temporary_folder() as folder:
            found.append(start(folder))
    healthy, ready = ([round(s, 2) for s in seconds] for seconds in zip(*found, strict=True))
    figures("starting", {"healthz_s": healthy, "readyz_s": ready})
    assert median(healthy) <= HEALTHY_S, found
    assert median(ready) <= READY_S, found
