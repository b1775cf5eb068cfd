"""Figure 1: each module's share of the latency. Figure 3: the running example. See README.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.common import command
from experiments.common.command import Experiment
from experiments.motivation import figures
from experiments.motivation.measure import measure

EXPERIMENT: Final = Experiment(
    name="motivation",
    about="Shares of each module, and the running example (figures 1 and 3 of the paper)",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(1, 1),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
