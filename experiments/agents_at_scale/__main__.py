"""Agents whose sessions do not fit in the KV memory together. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.agents_at_scale import figures
from experiments.agents_at_scale.measure import COUNTS, measure
from experiments.common import command
from experiments.common.command import Experiment


def _counts(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdigit() and int(part) for part in parts):
        raise argparse.ArgumentTypeError("numbers of sessions are needed, such as 96,120")
    return tuple(map(int, parts))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    parser.add_argument(
        "--sessions", type=Path, metavar="FILE", help="recorded sessions (else drawn ones)"
    )
    parser.add_argument(
        "--count",
        type=_counts,
        metavar="A,B",
        help=f"sessions at a time ({','.join(map(str, COUNTS))})",
    )


EXPERIMENT: Final = Experiment(
    name="agents_at_scale",
    about="What seeing the graph is worth to agents whose sessions do not fit in the KV memory",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    arguments=arguments,
    told=("rows", "ablation"),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
