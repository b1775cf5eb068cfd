"""Steps that shorten the path, with and without each. See README.md here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.shorter_path import figures
from experiments.shorter_path.measure import measure

EXPERIMENT: Final = Experiment(
    name="shorter_path",
    about="What reuse, prefilling ahead and speculation take off the latency, each on its own",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(500, 60),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
