"""Figure 8: three applications, three LLM sizes, three loads, all systems. See README.md here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.progress import Progress

from experiments.common import command
from experiments.common.command import Experiment, Options, Report
from experiments.end_to_end import figures
from experiments.end_to_end.measure import arguments, measure


def _measure(options: Options, progress: Progress) -> Report:
    return figures.derive(measure(options, progress))


EXPERIMENT: Final = Experiment(
    name="end_to_end",
    about="Whole applications under load (figure 8 of the paper)",
    measure=_measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    queries=(2000, 500),
    seeds=(5, 2),
    arguments=arguments,
    told=("rows", "single_query", "worst_ratio"),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
