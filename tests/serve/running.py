"""`teola serve` as a process, with applications in a file and its log lines in another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.serve.process import ready

APPS = """
from teola import App, Generate, QueryExpansion, component

@component(outputs="answer")
async def say(question: str) -> str:
    if "fail" in question:
        raise ValueError(f"cannot say {question}")
    return f"you said: {question}"

answers = {"answer": "answer"}
echo = App("echo", template=say, inputs={"question": "text"}, outputs=answers)
ask = App("ask", QueryExpansion(n=2) >> Generate(mode="simple", inputs={"context": "queries"}),
          inputs={"question": "text"}, outputs=answers)
"""


@dataclass
class Running:
    """A server that runs. url: without a slash at its end. log: its standard error."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    def ask(self, app: str, question: str, **headers: str) -> httpx.Response:
        """Ask a query and wait for its answer."""
        body = {"inputs": {"question": question}}
        where = f"{self.url}/v1/apps/{app}/queries"
        return httpx.post(where, json=body, headers=headers, timeout=60)

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """What was logged so far, or only such events. Every line must be JSON."""
        text = self.log.read_text()
        found = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [one for one in found if event in (None, one["event"])]

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def running(
    folder: Path, *words: str, apps: str = "echo", environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Serve some of APPS (names with commas), ready."""
    file, log = folder / "observed.py", folder / "stderr.log"
    file.write_text(APPS)
    named = [f"{file}:{name}" for name in apps.split(",")]
    known = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    log.unlink(missing_ok=True)
    given = {**known, **(environment or {})}
    with ready([*named, *words], log, environment=given) as (process, url):
        yield Running(url, process, log)
