"""How long bad input takes to be refused: everything that the hostile tests send, on the clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.serve.hostile.asking import TIMES
from tests.soak.forms import Figures

ROOT: Final = Path(__file__).resolve().parents[2]
SOON_S: Final = 1.0
PARSING_S: Final = 40.0
"""Of a document that a process of its own tries to read: it has 30 s of a CPU, and its start."""


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.timeout(3600)
def test_bad_input_is_refused_within_a_second(tmp_path: Path, figures: Figures) -> None:
    times = tmp_path / "times"
    words = ["-q", "-p", "no:cacheprovider", "tests/serve/hostile"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        env={**os.environ, TIMES: str(times)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    rows = [line.split("\t") for line in times.read_text().splitlines()]
    seen = [(float(seconds), code, test) for seconds, code, test in rows]
    parsed = [one for one in seen if one[1] == "unreadable_document"]
    others = [one for one in seen if one[1] != "unreadable_document"]
    slow = [one for one in others if one[0] > SOON_S]
    found = {"refused": len(seen), "slower_than_1_s": len(slow), "slowest_s": max(others)[0]}
    figures("refusals", {**found, "slowest_parsing_s": max(parsed)[0]})
    assert len(others) > 200
    assert not slow
    assert max(parsed)[0] <= PARSING_S
