"""Kills instances of engines while queries run on them. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.faults import figures
from experiments.faults.measure import measure


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--kills", type=int, metavar="N", help="one for every five queries")
    parser.add_argument("--hosts", default="process,ray", help="of process and ray")


EXPERIMENT: Final = Experiment(
    name="faults",
    about="Instances are killed while queries run on them",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(1500, 100),
    arguments=arguments,
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
