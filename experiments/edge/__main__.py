"""Model servers that refuse, hang, slow down or come back. See README.md."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.edge import figures
from experiments.edge.measure import measure


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--cases", default="", metavar="A,B", help="these only")
    parser.add_argument("--systems", default="", metavar="A,B", help="these only")


EXPERIMENT: Final = Experiment(
    name="edge",
    about="Model servers that misbehave, asked by Teola, the OpenAI SDK and LiteLLM's Router",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    arguments=arguments,
    seeds=(3, 1),
    told=("rows", "versions"),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
