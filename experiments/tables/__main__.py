"""The paper's queries over tables, simulated and on a real vLLM. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.tables import figures
from experiments.tables.measure import PARTS, SIMULATED, measure
from experiments.tables.runs import OUTPUTS


def _parts(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PARTS)}")
    return names


def _output(text: str) -> int:
    tokens = command._positive(text)
    if tokens > OUTPUTS[-1]:
        raise argparse.ArgumentTypeError(f"an answer has at most {OUTPUTS[-1]} tokens")
    return tokens


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument(
        "--parts",
        type=_parts,
        default=SIMULATED,
        metavar="A,B",
        help=f"of {', '.join(PARTS)}; by default those without a vLLM",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="REPORT",
        help="a report that has the parts which are not run",
    )
    parser.add_argument(
        "--rows", type=command._positive, metavar="N", help="of each query, in place of its own"
    )
    parser.add_argument(
        "--output", type=_output, metavar="N", help="tokens of all answers; nothing is fitted"
    )


EXPERIMENT: Final = Experiment(
    name="tables",
    about="The paper's queries over tables under its four systems and as Teola runs them",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    arguments=arguments,
    told=("rows", "ablations", "overheads"),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
