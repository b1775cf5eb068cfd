"""Times every case of every side in turn, so that a disturbance of the machine hits all alike.

    python -m experiments.overhead [--json] [--sides teola,langgraph,haystack] [--repetitions 40]
                                   [--waiting 1000]

A side is a module `<name>_side.py` here with `prepare() -> list[Case | Footprint]`. After the
warm-up, one repetition of each case is run before the next of any; the figure is that of the median
time. When all are timed, the memory of waiting queries is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from rich.console import Console

from experiments.common import pages
from experiments.overhead.case import Case, Footprint, kib_each
from teola.runtime import machine

SIDES = ("teola", "langgraph", "haystack")
KEYS = (
    "teola_chain_us",
    "teola_fanout_us",
    "langgraph_chain_us",
    "langgraph_fanout_us",
    "haystack_chain_us",
    "optimise_cold_ms",
    "optimise_cached_ms",
    "sim_primitives_per_s",
    "teola_chain_2_us",
    "teola_chain_8_us",
    "teola_fanout_2_us",
    "teola_fanout_8_us",
    "langgraph_chain_2_us",
    "langgraph_chain_8_us",
    "langgraph_fanout_2_us",
    "langgraph_fanout_8_us",
    "teola_query_kib",
    "langgraph_query_kib",
)
WARM_UP = 5


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    prepared = [one for side in options.sides for one in _prepare(side)]
    cases = [one for one in prepared if isinstance(one, Case)]
    seconds = asyncio.run(measure(cases, options.repetitions))
    kib = {
        one.key: round(asyncio.run(kib_each(one, options.waiting)), 3)
        for one in prepared
        if isinstance(one, Footprint)
    }
    report = _report(cases, seconds, options.repetitions) | kib | {"waiting": options.waiting}
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _print_table(report)


async def measure(cases: Sequence[Case], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each repetition of each case, interleaved; the warm-up is left out."""
    seconds: dict[str, list[float]] = {case.key: [] for case in cases}
    for repetition in range(-WARM_UP, repetitions):
        for case in cases:
            elapsed = await case.once()
            if repetition >= 0:
                seconds[case.key].append(elapsed)
    return seconds


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.overhead", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--repetitions", type=_positive, default=40, metavar="N")
    parser.add_argument("--waiting", type=_positive, default=1000, metavar="QUERIES")
    parser.add_argument("--sides", type=_sides, default=SIDES, metavar=",".join(SIDES))
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


def _sides(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in SIDES]:
        raise argparse.ArgumentTypeError(f"unknown side {unknown[0]!r} (valid: {', '.join(SIDES)})")
    return names


def _prepare(side: str) -> list[Case | Footprint]:
    found: list[Case | Footprint] = import_module(f"experiments.overhead.{side}_side").prepare()
    return found


def _report(
    cases: Sequence[Case], seconds: dict[str, list[float]], repetitions: int
) -> dict[str, Any]:
    """Every key of `KEYS` (null where its side was left out), the spread, and the machine."""
    report: dict[str, Any] = dict.fromkeys(KEYS)
    spread: dict[str, list[float]] = {}
    for case in cases:
        times = sorted(seconds[case.key])
        report[case.key] = round(case.figure(statistics.median(times)), 3)
        tail = len(times) // 10
        ends = (case.figure(times[tail]), case.figure(times[-1 - tail]))
        spread[case.key] = [round(end, 3) for end in sorted(ends)]
    return {
        **report,
        "p10_p90": spread,
        "repetitions": repetitions,
        "machine": machine.describe(("teola", "langgraph", "langchain-core", "haystack-ai")),
    }


def _print_table(report: dict[str, Any]) -> None:
    lines = []
    for key in KEYS:
        if report[key] is not None:
            spread = [f"{end:,.2f}" for end in report["p10_p90"].get(key, ())]
            lines.append((key, f"{report[key]:,.2f}", " to ".join(spread)))
    console = Console()
    head = ("figure", "median", "10th to 90th percentile")
    console.print(pages.terminal("Overhead of orchestration, medians", head, lines, left=1))
    about = report["machine"]
    console.print(f"{about['cpu']}, {about['cores']} cores, load {about['load_1min']}")
    console.print(f"{about['python']}, {report['repetitions']} repetitions, {about['packages']}")


if __name__ == "__main__":
    main()
