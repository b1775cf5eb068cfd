"""Every headline with each derived or assumed value halved and doubled. See README.md here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.sensitivity import figures
from experiments.sensitivity.measure import arguments, measure

EXPERIMENT: Final = Experiment(
    name="sensitivity",
    about="How far each headline moves with each derived or assumed value of the testbed",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(300, 15),
    arguments=arguments,
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
