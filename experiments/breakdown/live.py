"""The breakdown on real engines, in this process or in Ray actors.

Embedding, reranking, the embedded pgvector and the extractive reader answer one query at a time,
each about a document of its own; the engines themselves record when they work.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from experiments.breakdown import timed
from experiments.breakdown.path import Parts, parts
from experiments.breakdown.simulated import row
from experiments.common import workloads
from teola import App, EngineConfig, Runtime
from teola.runtime.observe.trace import Span, Trace

APPS: Final = ("naive-rag", "advanced-rag")
QUESTIONS: Final = (
    "How does the interpreter look up a name?",
    "When is an exception handler left?",
    "What does the with statement guarantee?",
)
CHARACTERS: Final = 42_000
"""Of a document: about 48 chunks."""
QUICK_CHARACTERS: Final = 12_000
WARM_UP: Final = 1
REPETITIONS: Final = 50


def rows(
    queries: int, characters: int, ray: bool | str, told: Callable[[], None]
) -> list[dict[str, Any]]:
    """Mean parts of `queries` queries to each application, about documents of so many characters.
    ray: False, True or an address."""
    found = []
    text = _text()[:characters]
    with _runtime(ray) as (runtime, log):
        for name in APPS:
            app = workloads.find_app(name)
            app.runtime = runtime
            try:
                count = WARM_UP + queries
                traces = [_ask(app, i, text, told) for i in range(count)][WARM_UP:]
                planning = cached_planning(app)
            finally:
                app.runtime = None
            worked = timed.read(log)
            together = sum((parts(t, _inside(t, worked), planning) for t in traces), start=Parts())
            kind = "Ray actors" if ray else "local"
            found.append(row(name, kind, "one query", together, len(traces)))
    return found


def runs(queries: int) -> int:
    """How often `rows` tells that it has got further."""
    return len(APPS) * (WARM_UP + queries)


@contextmanager
def _runtime(ray: bool | str) -> Iterator[tuple[Runtime, Path]]:
    database, records = (Path(tempfile.mkdtemp(prefix="teola-")) for _ in range(2))
    log = records / "worked.jsonl"
    log.touch()
    options = {"log": str(log)}
    model = {**options, "dtype": "float32", "threads": 1}
    store = {**options, "data_dir": str(database)}
    engines = {
        "embedding": EngineConfig(timed.TimedMiniLM, model),
        "rerank": EngineConfig(timed.TimedMaxSim, {**model, "name": "rerank"}),
        "vectorstore": EngineConfig(timed.TimedPgVector, {**store, "name": "vectorstore"}),
        "llm": EngineConfig(timed.TimedReader, {**model, "name": "llm"}),
    }
    try:
        with Runtime(engines, ray=ray) as runtime:
            yield runtime, log
    finally:
        for folder in (database, records):
            shutil.rmtree(folder, ignore_errors=True)


def _ask(app: App, number: int, text: str, told: Callable[[], None]) -> Trace:
    question = f"{QUESTIONS[number % len(QUESTIONS)]} ({app.name} {number})"
    document = {"name": f"edition {number}", "text": f"{app.name} {number}.\n\n{text}"}
    result = app.run(question=question, documents=document, deadline_s=600.0)
    told()
    assert result.trace is not None
    return result.trace


def _text() -> str:
    """Python's language reference, which every interpreter carries."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def _inside(trace: Trace, worked: timed.Worked) -> Callable[[Span], float]:
    """How long the engine of a span worked for this query within it."""

    def inside(span: Span) -> float:
        if not span.engine:
            return span.end - span.start
        times = worked.get((trace.query_id, span.engine), [])
        begin, end = span.start + trace.admitted, span.end + trace.admitted
        return sum(max(0.0, min(b, end) - max(a, begin)) for a, b in times)

    return inside


def cached_planning(app: App) -> float:
    """Seconds to plan a query whose shape was seen before: median of many."""
    optimiser = app.optimiser(app.home, None)
    optimiser.plan({}, {"chunks": 48}, app.passes)
    times = []
    for i in range(REPETITIONS):
        began = time.perf_counter()
        optimiser.plan({}, {"chunks": 48 + i % 16}, app.passes)
        times.append(time.perf_counter() - began)
    return statistics.median(times)
