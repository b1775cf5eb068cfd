"""Loads `teola serve` until it has far too much. See README.md here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.serving import figures
from experiments.serving.measure import measure

EXPERIMENT: Final = Experiment(
    name="serving",
    about="A server under load: queries a second, what it adds to each, and overload",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(4000, 500),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
