"""Which eviction policy finds most, on public and synthetic traces. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.eviction import figures
from experiments.eviction.measure import measure


def _capacities(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdigit() and int(part) for part in parts):
        raise argparse.ArgumentTypeError("blocks are needed, such as 1000,4000")
    return tuple(map(int, parts))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--trace", type=Path, metavar="FILE", help="replay this trace alone")
    parser.add_argument(
        "--capacities", type=_capacities, metavar="A,B", help="of the caches, in blocks"
    )


EXPERIMENT: Final = Experiment(
    name="eviction",
    about="Which eviction policy finds most, on public and synthetic traces",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    arguments=arguments,
    told=("rows", "belady"),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
