"""One query over tables, by Teola and by what else people use for it. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.tables_peers import figures
from experiments.tables_peers.data import DATA
from experiments.tables_peers.installed import SYSTEMS
from experiments.tables_peers.measure import measure


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--rows", type=command._positive, metavar="N", help="of each data set")
    parser.add_argument("--server", metavar="URL", help="a vLLM, in place of the scripted server")
    parser.add_argument("--systems", default="", metavar="A,B", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--sets", default="", metavar="A,B", help=f"of {', '.join(DATA)}")


EXPERIMENT: Final = Experiment(
    name="tables_peers",
    about="One query over tables, by Teola, plain asyncio and frameworks for it, on one server",
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
