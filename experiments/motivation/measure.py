"""One query in simulation: as a chain of modules, and for the running example as an e-graph."""

from __future__ import annotations

from typing import Any, Final

from rich.progress import Progress

from experiments.baselines.systems import SYSTEMS
from experiments.common.command import Options, Report
from experiments.common.simulate import Setting, alone
from experiments.common.testbed import SIZES, testbed
from experiments.common.workloads import APPS, example
from teola.runtime.in_flight import Query
from teola.runtime.observe.trace import Span
from teola.runtime.sim import SimulatedQuery

CHAIN: Final = "llamadist_po"
"""A chain of modules that does not wait for batches to fill."""
OURS: Final = "teola"
RUNNING: Final = "advanced-rag"
RUNNING_LLM: Final = "13b"


def measure(options: Options, progress: Progress) -> Report:
    """Shares for every application and LLM, and both timelines of the running example."""
    task = progress.add_task("one query", total=len(APPS) * len(SIZES) + 2)
    shares: list[dict[str, Any]] = []
    for app in APPS:
        for llm in SIZES:
            shares += _shares(app, llm)
            progress.advance(task)
    example: dict[str, Any] = {"app": RUNNING, "llm": RUNNING_LLM, "timeline": []}
    for name in (CHAIN, OURS):
        spans, latency = _run(name, RUNNING, RUNNING_LLM)
        example[f"{name}_s"] = round(latency, 4)
        example["timeline"] += [{"system": name, **_bar(span)} for span in spans]
        progress.advance(task)
    return {"shares": shares, "example": example, "about": {"queries": 1, "chunks": 48}}


def _run(system: str, app: str, llm: str) -> tuple[list[Span], float]:
    """Spans and latency of the example query."""
    kept: list[Span] = []

    def keep(query: Query, result: SimulatedQuery) -> None:
        kept.extend(s for s in query.trace.spans if s.state == "done" and s.end > s.start)

    latency = alone(SYSTEMS[system], Setting(app, testbed(llm)), example(app), keep)
    return kept, latency


def _shares(app: str, llm: str) -> list[dict[str, Any]]:
    """Seconds of each module of the chain: modules do not overlap, so they add up."""
    spans, latency = _run(CHAIN, app, llm)
    modules = list(dict.fromkeys(span.component for span in spans))
    found = []
    for module in modules:
        mine = [span for span in spans if span.component == module]
        seconds = max(span.end for span in mine) - min(span.start for span in mine)
        found.append(
            {
                "app": app,
                "llm": llm,
                "module": module,
                "seconds": round(seconds, 4),
                "share": round(seconds / latency, 4),
            }
        )
    return found


def _bar(span: Span) -> dict[str, Any]:
    return {
        "primitive": span.primitive,
        "module": span.component,
        "engine": span.engine,
        "start_s": round(span.start, 4),
        "end_s": round(span.end, 4),
    }
