"""1,000 instances, 100,000 queries: time and memory, and how they grow. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.scale import figures
from experiments.scale.measure import measure
from teola.policies.batching import BATCHING, DEFAULT


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument("--batching", choices=sorted(BATCHING), default=DEFAULT)


EXPERIMENT: Final = Experiment(
    name="scale",
    about="What the simulator costs as instances and queries grow",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(100_000, 1000),
    arguments=arguments,
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
