"""`teola serve` as a process of its own: started, asked until it is ready, gone in the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 240.0
"""Of a machine that does much besides."""


@contextmanager
def started(
    words: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its URL, without a slash at its end, as soon as it listens; killed where it
    has not ended by itself. words: behind `teola serve`; without --learn among them it learns
    nothing, and probes no engine. log: what its stderr is added to. environment: in place of this
    process's. prefix: a command that becomes it."""
    command = [*prefix, sys.executable, "-m", "teola", "serve", *words, "--port", "0"]
    command += [] if "--learn" in words else ["--learn", "off"]
    with (
        log.open("a") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=dict(os.environ if environment is None else environment),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http"), log.read_text(errors="replace")
            yield process, url
        finally:
            process.kill()


def await_ready(process: subprocess.Popen[str], url: str, log: Path) -> None:
    """Ask until its engines run."""
    until = time.monotonic() + START_S
    while httpx.get(f"{url}/readyz", timeout=60).status_code != 200:
        told = log.read_text(errors="replace")
        assert process.poll() is None, told
        assert time.monotonic() < until, f"it is not ready: {told}"
        time.sleep(0.05)


@contextmanager
def ready(
    words: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """As `started`, when its engines run."""
    with started(words, log, environment=environment) as (process, url):
        await_ready(process, url, log)
        yield process, url
