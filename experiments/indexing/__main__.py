"""Indexes files that change while others search and the indexing process is killed. See README.md
here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.indexing import figures
from experiments.indexing.measure import measure

EXPERIMENT: Final = Experiment(
    name="indexing",
    about="What a collection holds after its files changed, beside searches and kills",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    told=("rows",),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
