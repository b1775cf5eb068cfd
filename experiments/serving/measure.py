"""Starts the servers, loads them one after the other, and makes the report."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.progress import Progress

from experiments.common.command import Options, Report
from experiments.common.latencies import percentile
from experiments.serving import load
from experiments.serving.apps import PLACES, SECONDS
from experiments.serving.load import LOST, Answers
from teola.runtime import machine

APPS: Final = Path(__file__).with_name("apps.py")
CLIENTS: Final = 200
BLOCK: Final = 50
"""Requests to one server before the other one's turn."""
LOADS: Final = (0.8, 1.0, 2.0, 10.0)
FULL_S: Final = (10.0, 5.0, 20.0, 60.0)
QUICK_S: Final = (2.0, 1.5, 2.5, 2.5)
"""See Lengths."""
START_S: Final = 120.0
DOCUMENT: Final = " ".join(
    f"The keeper of lamp {n} is called {name} and lives in house {n * 7 % 40}."
    for n, name in enumerate(["Mara", "Ivo", "Lena", "Odo", "Runa", "Tam"] * 20)
)
QUESTION: Final = "Who keeps lamp 7?"


@dataclass(frozen=True, slots=True)
class Served:
    """An application behind a URL, and a query for it."""

    name: str
    url: str
    body: dict[str, Any]

    @property
    def where(self) -> str:
        return f"{self.url}/v1/apps/{self.name}/queries"

    @property
    def request(self) -> bytes:
        return load.post(self.where, self.body)


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long everything takes, in seconds; singles: requests one at a time. each_s, slow_s: a
    load, on an application that answers dozens of queries a second, or one."""

    singles: int
    crowd_s: float
    warm_s: float
    each_s: float
    slow_s: float


def measure(options: Options, progress: Progress) -> Report:
    """The whole report."""
    lengths = Lengths(options.queries, *(QUICK_S if options.quick else FULL_S))
    task = progress.add_task("serving", total=2 + 2 * (len(LOADS) + 2))
    done = lambda: progress.advance(task)  # noqa: E731
    with ExitStack() as stack:
        asked = {"inputs": {"question": QUESTION}}
        bare = Served("null", stack.enter_context(_bare()), asked)
        null, waiting, rag = _teola(stack, asked)
        _warm([bare, null], lengths.warm_s)
        added = load.run(_added(bare, null, lengths.singles))
        done()
        crowd = {served.url: _crowd(served, lengths.crowd_s) for served in (bare, null)}
        done()
        overload, anew = [], []
        for served, peak, each_s in (
            (waiting, PLACES / SECONDS, lengths.each_s),
            (rag, None, lengths.slow_s),
        ):
            _warm([served], lengths.warm_s)
            *kept, new = _overloaded(served, peak, each_s, options.seed, done)
            overload += kept
            anew.append(new)
    return {
        "added": added,
        "crowd": {
            "clients": CLIENTS,
            "bare": crowd[bare.url],
            "null": crowd[null.url],
        },
        "overload": overload,
        "anew": anew,
        "about": {
            **options.about(),
            "machine": machine.describe(("teola", "uvicorn", "uvloop", "httptools", "fastapi")),
        },
    }


# --- servers --------------------------------------------------------------------------------


def _teola(stack: ExitStack, asked: dict[str, Any]) -> Iterator[Served]:
    """Null, waiting and RAG, each with a process of its own."""
    for name in ("null", "waiting"):
        yield Served(name, stack.enter_context(_serve(f"{APPS}:{name}")), asked)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="teola-"))
    url = stack.enter_context(_serve("naive-rag", "--data-dir", folder))
    rag = Served("naive-rag", url, {"inputs": {"question": QUESTION, "collection": "lamps"}})
    inputs = {**rag.body["inputs"], "documents": {"name": "lamps.md", "text": DOCUMENT}}
    _ask(rag.where, {"inputs": inputs})
    yield rag


@contextmanager
def _serve(*arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "teola", "serve", *arguments, "--port", "0"]
    command += ["--learn", "off"]
    with _process(command) as url:
        until = time.monotonic() + START_S
        while not _ready(url):
            if time.monotonic() > until:
                raise RuntimeError(f"{' '.join(command)} was not ready within {START_S:.0f} s")
            time.sleep(0.2)
        yield url


@contextmanager
def _bare() -> Iterator[str]:
    with _process([sys.executable, "-m", "experiments.serving.bare"]) as url:
        yield url


@contextmanager
def _process(command: Sequence[str]) -> Iterator[str]:
    """A server that prints its URL."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"{' '.join(command)} did not start")
            yield url
        finally:
            process.terminate()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=10):
            return True
    except OSError:  # not there yet, or 503
        return False


def _ask(url: str, body: Any) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=START_S):
        pass


# --- what is measured -----------------------------------------------------------------------


def _warm(servers: Sequence[Served], seconds: float) -> None:
    for served in servers:
        load.run(load.closed(served.where, served.request, 4, seconds))


async def _added(bare: Served, null: Served, count: int) -> dict[str, float]:
    """One client, one request at a time, to both servers in turn."""
    times: dict[str, list[float]] = {bare.url: [], null.url: []}
    clients = [(served, await load.connect(served.url)) for served in (bare, null)]
    while len(times[null.url]) < count:
        for served, connection in clients:
            for _ in range(BLOCK):
                status, latency_s = await load.one(connection, served.request)
                _check(status)
                times[served.url].append(latency_s)
    for _, connection in clients:
        connection.close()
    (bare_ms, null_ms) = (median(times[url]) * 1e3 for url in (bare.url, null.url))
    ends = {url: percentile(found, 99) * 1e3 for url, found in times.items()}
    return {
        "requests": count,
        "bare_p50_ms": round(bare_ms, 3),
        "null_p50_ms": round(null_ms, 3),
        "added_ms": round(null_ms - bare_ms, 3),
        "bare_p99_ms": round(ends[bare.url], 3),
        "null_p99_ms": round(ends[null.url], 3),
    }


def _check(status: int) -> None:
    if status != 200:
        raise AssertionError(f"a timed request was answered with {status}")


def _crowd(served: Served, seconds: float) -> dict[str, Any]:
    """`CLIENTS` at once, each with its next request as soon as it has an answer."""
    answers = load.run(load.closed(served.where, served.request, CLIENTS, seconds))
    good = answers.of(200)
    return {
        "queries_per_s": round(len(good) / answers.seconds, 1),
        "p50_ms": round(percentile(good, 50) * 1e3, 2),
        "p99_ms": round(percentile(good, 99) * 1e3, 2),
        "refused": len(answers.of(429)),
        "errors": _errors(answers),
    }


def _overloaded(
    served: Served, peak: float | None, each_s: float, seed: int, done: Any
) -> list[dict[str, Any]]:
    """A row for each load, in multiples of the most that it answers, and one more for the largest
    with a new connection for each query. peak: if that is known."""
    if peak is None:
        answers = load.run(load.closed(served.where, served.request, 8, each_s / 3))
        peak = max(1, len(answers.of(200))) / answers.seconds
    done()
    rows = []
    for times, keep in (*((times, True) for times in LOADS), (max(LOADS), False)):
        rate = times * peak
        opened = load.opened(served.where, served.request, rate, each_s, seed, keep=keep)
        before = load.overflows()
        answers, health = load.run(load.watched(served.url, opened))
        after = load.overflows()
        row = _row(served.name, times, rate, answers)
        row["health_p99_ms"] = round(percentile(health, 99) * 1e3, 2)
        row["health_max_ms"] = round(max(health) * 1e3, 2)
        row["listen_overflows"] = None if before is None or after is None else after - before
        rows.append(row)
        done()
    best = max(row["goodput_per_s"] for row in rows)
    calm = rows[0]["p99_s"]
    for row in rows:
        row["of_peak"] = round(row["goodput_per_s"] / best, 3)
        row["of_calm_p99"] = round(row["p99_s"] / calm, 2) if calm else 0.0
    return rows


def _row(app: str, times: float, rate: float, answers: Answers) -> dict[str, Any]:
    good, refused = answers.of(200), answers.of(429)
    return {
        "app": app,
        "load": times,
        "offered_per_s": round(rate, 1),
        "goodput_per_s": round(len(good) / answers.seconds, 1),
        "p50_s": round(percentile(good, 50), 4),
        "p99_s": round(percentile(good, 99), 4),
        "refused": len(refused),
        "refusal_p50_ms": round(percentile(refused, 50) * 1e3, 2),
        "refusal_p99_ms": round(percentile(refused, 99) * 1e3, 2),
        "errors": _errors(answers),
        "late_p99_ms": round(percentile(answers.late, 99) * 1e3, 2),
    }


def _errors(answers: Answers) -> dict[str, int]:
    """Answers that are neither good nor a refusal, by status."""
    return {
        "lost" if status == LOST else str(status): len(found)
        for status, found in sorted(answers.latencies.items())
        if status not in (200, 429)
    }
