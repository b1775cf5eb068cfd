"""What it costs that a graph grows, by how long it already is.

    python -m experiments.growth [--json] [--rounds 12]

Queries of 1 to 5,000 parts are run in turn, so that a disturbance of the machine hits all alike;
the shorter ones several times a round, and each round's figure is the mean of them. A figure is the
median round's.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any, Final

from rich.console import Console

from experiments.common import pages
from experiments.growth.measure import Figures, Stopwatch, chain, items, listing, looping, turns
from teola import Runtime
from teola.runtime import machine

PARTS: Final = (1, 2, 10, 100, 1_000, 5_000)
LEAST: Final = 200
"""Parts in one round of each length."""
LIMIT_US: Final = 60.0


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.growth", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=12, metavar="N")
    options = parser.parse_args(argv)
    report = asyncio.run(measure(options.rounds))
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _print(report)


async def measure(rounds: int, lengths: Sequence[int] = PARTS) -> dict[str, Any]:
    """The report."""
    with Runtime() as runtime:
        watch, kinds = Stopwatch(), {"loop": (turns, looping), "each": (items, listing)}
        apps = {kind: (run, make(runtime)) for kind, (run, make) in kinds.items()}
        found: dict[tuple[str, int], list[Figures]] = {
            (kind, parts): [] for kind in apps for parts in lengths
        }
        for run, app in apps.values():
            await run(app, watch, 2)
        watch.watch(runtime.live)
        plain = []
        for _ in range(rounds):
            plain.append(await chain(runtime))
            for (kind, parts), figures in found.items():
                run, app = apps[kind]
                gc.collect()
                times = max(1, -(-LEAST // parts))
                figures.append(_mean([await run(app, watch, parts) for _ in range(times)]))
        alone = {kind: found[kind, lengths[0]] for kind in apps}
        return {
            "rows": [
                _row(kind, parts, figures, alone[kind], lengths[0])
                for (kind, parts), figures in found.items()
            ],
            "ten_primitives_us": round(median(plain), 1),
            "rounds": rounds,
            "machine": machine.describe(("teola",)),
        }


def _mean(figures: Sequence[Figures]) -> Figures:
    growth, part = fmean(f.growth_us for f in figures), fmean(f.part_us for f in figures)
    return Figures(growth, part)


def _row(
    kind: str, parts: int, figures: Sequence[Figures], alone: Sequence[Figures], least: int
) -> dict[str, Any]:
    """alone: of the shortest queries, which have `least` parts, by round as `figures`."""
    more = [
        (one.growth_us * parts - first.growth_us * least) / (parts - least)
        for one, first in zip(figures, alone, strict=True)
        if parts > least
    ]
    growth = sorted(one.growth_us for one in figures)
    tail = len(growth) // 10
    return {
        "kind": kind,
        "parts": parts,
        "growth_us": round(median(growth), 1),
        "more_us": round(median(more), 1) if more else None,
        "growth_p10_p90_us": [round(growth[tail], 1), round(growth[-1 - tail], 1)],
        "part_us": round(median(one.part_us for one in figures), 1),
    }


def _print(report: dict[str, Any]) -> None:
    lines = [
        (
            one["kind"],
            f"{one['parts']:,}",
            f"{one['growth_us']:.1f}",
            "" if one["more_us"] is None else f"{one['more_us']:.1f}",
            " to ".join(f"{end:.1f}" for end in one["growth_p10_p90_us"]),
            f"{one['part_us']:.0f}",
        )
        for one in report["rows"]
    ]
    head = (
        "parts of a",
        "parts",
        "growth, us a part",
        "a part more, us",
        "10th to 90th percentile",
        "all, us a part",
    )
    console = Console()
    console.print(pages.terminal("What growth costs", head, lines, left=1))
    console.print(
        f"at most {LIMIT_US:g} us; ten primitives by themselves take "
        f"{report['ten_primitives_us']:.0f} us"
    )
    about = report["machine"]
    console.print(f"{about['cpu']}, {about['cores']} cores, load {about['load_1min']}")


if __name__ == "__main__":
    main()
