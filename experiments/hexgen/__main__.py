"""Queries with objectives on unequal instances. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.hexgen import figures
from experiments.hexgen.clusters import BUDGET
from experiments.hexgen.measure import OWN, SAME, measure
from experiments.hexgen.policies import POLICIES


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in POLICIES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(POLICIES)}")
    return names


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument(
        "--objective",
        choices=(OWN, SAME),
        default=OWN,
        help="five times a query's own base, or five times the mean of all (own)",
    )
    parser.add_argument(
        "--budget",
        type=command._positive,
        default=BUDGET,
        metavar="N",
        help=f"prompt tokens of a step ({BUDGET})",
    )
    parser.add_argument(
        "--policies", type=_policies, metavar="A,B", help="only those, and the bursts alone"
    )
    parser.add_argument("--bursts", action="store_true", help="leave out all but the bursts")


EXPERIMENT: Final = Experiment(
    name="hexgen",
    about="What order, routing and pacing are worth to queries with objectives on instances that "
    "differ threefold in speed",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    arguments=arguments,
    seeds=(5, 2),
    told=("rows", "tuned", "stages", "settings"),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
