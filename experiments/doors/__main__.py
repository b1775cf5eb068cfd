"""Sends hostile contents to a server and watches its loop. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.doors import figures
from experiments.doors.measure import measure


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--door", default="", metavar="TEXT", help="doors with this in their name")
    parser.add_argument("--content", default="", metavar="TEXT", help="the same of contents")


EXPERIMENT: Final = Experiment(
    name="doors",
    about="Hostile contents through every door of a server, and the gaps of its loop",
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
