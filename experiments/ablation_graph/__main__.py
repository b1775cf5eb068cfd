"""Figure 9: no pass, parallelisation only, pipelining only, both. See README.md here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.ablation_graph import figures
from experiments.ablation_graph.measure import measure
from experiments.common import command
from experiments.common.command import Experiment

EXPERIMENT: Final = Experiment(
    name="ablation_graph",
    about="What parallelisation and pipelining gain (figure 9 of the paper)",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(1000, 150),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
