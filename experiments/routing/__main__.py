"""Which router serves which workload best? See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.routing import figures
from experiments.routing.measure import measure
from teola.policies.routing import ROUTING


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="replay this trace (Mooncake's format, the public one, Azure's CSV), by its own "
        "arrivals, with one seed unless told",
    )
    parser.add_argument("--policies", metavar="A,B", help=f"of {', '.join(ROUTING)} (all of them)")
    parser.add_argument("--instances", type=_count, metavar="N", help="4 and 8; for a trace 4")
    parser.add_argument(
        "--speedup", type=_factor, default=1.0, metavar="X", help="a trace's calls, X times as fast"
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="of the instances' LLM: a name, or a JSON file"
    )


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError("from 1 to 1000 instances")
    return int(text)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1e6:
        raise argparse.ArgumentTypeError("a number above 0")
    return factor


EXPERIMENT: Final = Experiment(
    name="routing",
    about="Replays workloads of LLM calls under routing policies, and compares them",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(1000, 200),
    seeds=(5, 1),
    arguments=arguments,
    told=("rows", "ratios", "routed_per_s"),
    elsewhere=figures.map_of,
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
