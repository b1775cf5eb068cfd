"""Many queries in a row in one process: does the resident set keep growing?

    python -m experiments.memory [--queries 1000] [--warm-up 100] [--json]
    python -m experiments.memory --held [--quick] [--out FOLDER] [--json]

Every query goes through advanced-rag on the default engines: the same small document, another
question. The growth is that from the end of the warm-up to the end. --held: instead, what a query
holds that waits for people, and what the pieces of a streamed answer hold.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.progress import track

from experiments.common import command
from experiments.common.scratch import scratch_runtime
from experiments.memory import held
from teola import App, Runtime
from teola.runtime import machine
from teola_apps.advanced_rag import app

LIMIT_MB = 20
"""Growth after the warm-up that a run of 1,000 queries must stay below."""
DOCUMENT = {
    "name": "harbour.md",
    "text": "\n\n".join(
        f"# Pier {i}\n\nPier {i} of the harbour is {40 + 7 * i} metres long and was built in "
        f"{1900 + 3 * i}. Its crane lifts {i + 2} tonnes. Ships of the {name} line moor there on "
        "weekdays, and fishermen sell their catch before dawn."
        for i, name in enumerate(("North", "Baltic", "Island"), 1)
    ),
}
CHUNKS = {"index.chunk_size": 64, "index.overlap": 0}
"""Small ones, so that every round of `refine` has a chunk of its own."""
SUBJECTS = ("length", "year of building", "crane", "shipping line", "catch", "weekday traffic")


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    console = Console(stderr=options.json)
    if options.held:
        _held(console, options)
        return
    with scratch_runtime() as runtime:
        report = measure(
            app_on(runtime),
            options.queries,
            options.warm_up,
            lambda numbers: track(numbers, "queries", total=options.queries, console=console),
        )
    if options.json:
        print(json.dumps(report | {"machine": machine.describe()}, indent=2))
    else:
        _print(console, report)


def app_on(runtime: Runtime) -> App:
    """advanced-rag, on `runtime`."""
    found: App = copy(app)
    found.runtime = runtime
    return found


def measure(
    app: App,
    queries: int,
    warm_up: int,
    watch: Callable[[Iterator[int]], Any] = iter,
) -> dict[str, float]:
    """Resident set after `warm_up` queries and after all `queries`, in MB (10^6 bytes).

    mapped_growth_mb: how much of the growth is pages of mapped files (libraries, weights), which
    the system can drop at any time (0 where it does not say).
    """
    samples: list[tuple[float, float]] = []
    for number in watch(iter(range(queries))):
        app.run(question=question(number), documents=DOCUMENT, overrides=CHUNKS)
        if number + 1 == warm_up:
            samples.append(resident_mb())
    samples.append(resident_mb())
    (first, first_mapped), (last, last_mapped) = samples
    return {
        "queries": queries,
        f"rss_after_{warm_up}_mb": round(first, 1),
        "rss_end_mb": round(last, 1),
        "growth_mb": round(last - first, 1),
        "mapped_growth_mb": round(last_mapped - first_mapped, 1),
    }


def resident_mb() -> tuple[float, float]:
    """Resident set of this process, and the mapped files in it."""
    gc.collect()
    memory = psutil.Process().memory_info()
    return memory.rss / 1e6, getattr(memory, "shared", 0) / 1e6


def question(number: int) -> str:
    """A question unlike those before it."""
    subject = SUBJECTS[number % len(SUBJECTS)]
    return f"What is known about the {subject} of pier {1 + number % 3}, in report {number}?"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.memory", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--queries", type=int, default=1000, metavar="N")
    parser.add_argument("--warm-up", type=int, default=100, metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a line")
    parser.add_argument("--held", action="store_true", help="what queries hold")
    parser.add_argument("--quick", action="store_true", help="with --held: fewer queries")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="with --held: for report.json")
    options = parser.parse_args(argv)
    if not 0 < options.warm_up < options.queries:
        parser.error("--warm-up must be at least 1 and less than --queries")
    return options


def _held(console: Console, options: argparse.Namespace) -> None:
    report = {"rows": held.rows(options.quick), "machine": machine.describe()}
    if options.out:
        command.save(report, options.out)
    if options.json:
        print(json.dumps(report, indent=2))
        return
    for row in report["rows"]:
        console.print(
            f"{row['what']}: {row['resident_bytes'] / 1024:,.1f} KiB a query in memory, "
            f"{row['counted_bytes'] / 1024:,.1f} KiB counted ({row['ratio']} times)"
        )


def _print(console: Console, report: dict[str, float]) -> None:
    first, last, growth, mapped = list(report.values())[1:]
    console.print(
        f"{report['queries']} queries: {first} MB after the warm-up, {last} MB at the end, "
        f"{growth:+} MB, of which {mapped:+} MB are mapped files "
        f"(the limit for 1,000 queries is {LIMIT_MB} MB)"
    )


if __name__ == "__main__":
    main()
