"""The ten questions of SemBench's movie scenario. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.sembench import figures
from experiments.sembench.measure import measure


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--questions", default="", metavar="Q1,Q2", help="these only")


EXPERIMENT: Final = Experiment(
    name="sembench",
    about="The ten questions of SemBench's movie scenario, asked by Teola, and what others took",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    arguments=arguments,
    told=("rows",),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
