"""Asks all systems which passage answers each question of a set. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.retrieval import figures
from experiments.retrieval.measure import measure


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--file", type=Path, metavar="QUESTIONS", help="a set of questions")


EXPERIMENT: Final = Experiment(
    name="retrieval",
    about="Which passage answers a question, by Teola's searches and by others, and when the "
    "extractive reader declines",
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
