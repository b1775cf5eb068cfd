"""Figure 10: fifo, per_invocation, topology and critical_path. See README.md here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.ablation_scheduling import figures
from experiments.ablation_scheduling.measure import measure
from experiments.common import command
from experiments.common.command import Experiment

EXPERIMENT: Final = Experiment(
    name="ablation_scheduling",
    about="What the batching policies gain on the same graphs (figure 10 of the paper)",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(2000, 500),
    seeds=(5, 2),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
