"""Asks a real server six queries over real sockets, and reads their timelines."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiments.timelines.model import Model

APPS: Final = Path(__file__).with_name("apps.py")
WAIT_S: Final = 240.0
CANCELLED_AFTER_S: Final = 1.5
DEADLINE_S: Final = 2.0
PAUSE_S: Final = 0.05
OUTSIDE: Final = ("grow", "tool_call", "web_search", "sql")
"""What a primitive that contains others does by itself, and work that no engine of ours does."""
CONFIG: Final = """
[server]
journal = false

[engines.websearch]
type = "searxng"
options = {{ url = "{url}" }}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A query that is asked. until: the state in which its timeline is read. cancel: it is asked to
    end while its model writes."""

    name: str
    app: str
    question: str
    until: str
    deadline_s: float | None = None
    cancel: bool = False


CASES: Final = (
    Case("agent of ten calls", "agent", "How high are the stones?", "ok"),
    Case("research agent", "research-agent", "How high is the tower?", "ok"),
    Case("cancelled", "plain", "Tell it at length.", "cancelled", cancel=True),
    Case("late", "plain", "Tell it at length.", "deadline", deadline_s=DEADLINE_S),
    Case("waiting", "asking", "How high is the tower?", "waiting"),
    Case("failed", "plain", "Are you out of memory?", "failed"),
)


def measure(cases: tuple[Case, ...] = CASES) -> list[dict[str, Any]]:
    """A row for each."""
    with Model() as model, _served(model) as url:
        return [row(case, model, url) for case in cases]


def row(case: Case, model: Model, url: str) -> dict[str, Any]:
    """What the timeline of one query says, and how many calls its model was sent."""
    before = model.calls
    body: dict[str, Any] = {"inputs": {"question": case.question}, "mode": "background"}
    if case.deadline_s is not None:
        body["deadline_s"] = case.deadline_s
    query = f"{url}/v1/queries/{_sent(f'{url}/v1/apps/{case.app}/queries', body)['query_id']}"
    if case.cancel:
        _until(lambda: _writes(query), f"{case.name}: nothing was written")
        _until(lambda: _timeline(query)["end_s"] > CANCELLED_AFTER_S, f"{case.name}: it ended")
        _sent(query, None, "DELETE")
    _until(lambda: _sent(query)["state"] == case.until, f"{case.name}: it is not {case.until}")
    timeline = _timeline(query)
    if case.until == "waiting":
        _until(lambda: _timeline(query)["end_s"] > CANCELLED_AFTER_S, f"{case.name}: it ended")
        timeline = _timeline(query)
        _sent(query, None, "DELETE")
    return {
        "query": case.name,
        "state": case.until,
        "took_s": round(timeline["end_s"], 4),
        "unexplained_share": round(unexplained_share(timeline), 4),
        "spans": len(timeline["spans"]),
        "calls_listed": len(timeline["calls"]),
        "calls_made": model.calls - before,
    }


def unexplained_share(timeline: Mapping[str, Any]) -> float:
    """Of the critical path: what is between primitives, or outside of the engines."""
    path = timeline["critical_path"]
    whole = sum(one["end"] - one["start"] for one in path)
    apart = sum(
        one["end"] - one["start"]
        for one in path
        if one["kind"] == "between" or (one["kind"] == "ran" and one["op"] in OUTSIDE)
    )
    # The stretches fill the query's time; what they leave out would be unexplained, too.
    share: float = (apart + abs(timeline["end_s"] - whole)) / timeline["end_s"]
    return share


def _timeline(query: str) -> Any:
    return _sent(f"{query}/timeline")


def _writes(query: str) -> bool:
    """Whether a decoding is in flight."""
    try:
        spans = _timeline(query)["spans"]
    except urllib.error.HTTPError:  # not admitted yet
        return False
    return any((one["op"], one["state"]) == ("decoding", "running") for one in spans)


def _until(holds: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > until:
            raise RuntimeError(otherwise)
        time.sleep(PAUSE_S)


def _sent(url: str, body: Any = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=WAIT_S) as response:
        return json.loads(response.read() or b"null")


@contextmanager
def _served(model: Model) -> Iterator[str]:
    """`teola serve` as a process of its own: its URL, when its engines run."""
    with tempfile.TemporaryDirectory(prefix="teola-") as folder:
        config = Path(folder) / "teola.toml"
        config.write_text(CONFIG.format(url=model.url.removesuffix("/v1")))
        apps = [f"{APPS}:{name}" for name in ("agent", "plain", "asking")]
        options = ["--config", str(config), "--llm", model.url, "--data-dir", folder]
        command = [sys.executable, "-m", "teola", "serve", *apps, "research-agent", *options]
        command += ["--learn", "off", "--port", "0"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            try:
                assert process.stdout is not None
                url = process.stdout.readline().strip()
                if not url:
                    raise RuntimeError(f"{' '.join(command)} did not start")
                _until(lambda: _ready(url), "the server was not ready in time")
                yield url
            finally:
                process.terminate()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=WAIT_S):
            return True
    except OSError:  # not there yet, or 503
        return False
