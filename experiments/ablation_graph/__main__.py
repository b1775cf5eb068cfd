"""Every pass left out, one at a time; and figure 9 of the paper. See README.md here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.ablation_graph import figures
from experiments.ablation_graph.measure import measure
from experiments.common import command
from experiments.common.command import Experiment

EXPERIMENT: Final = Experiment(
    name="ablation_graph",
    about="What each pass gains (and figure 9 of the paper)",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(2000, 500),
    seeds=(5, 2),
    told=("rows",),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
