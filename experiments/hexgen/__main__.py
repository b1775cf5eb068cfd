"""Queries with objectives on unequal instances. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.hexgen import figures
from experiments.hexgen.cases import KINDS, OWN, SAME
from experiments.hexgen.clusters import BUDGET
from experiments.hexgen.measure import measure
from experiments.hexgen.policies import POLICIES
from teola.runtime.tuning.tuner import SAMPLES


def _some_of(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """Reads some of the names that are known, with commas between them."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return read


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
        "--policies",
        type=_some_of(POLICIES),
        metavar="A,B",
        help="only those of bursts, steady runs and changes of rate",
    )
    parser.add_argument(
        "--only", type=_some_of(KINDS), metavar="A,B", help=f"only such runs: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--sample",
        choices=SAMPLES,
        default=SAMPLES[-1],
        help=f"what the tuner replays: the paper's window, or queries drawn ({SAMPLES[-1]})",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="runs go there as they end, and those that it has are not made again",
    )


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
    elsewhere=figures.elsewhere,
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
