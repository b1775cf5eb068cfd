"""Where does a router fall off a cliff? See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.cliffs import figures
from experiments.cliffs.measure import HALVES, POLICIES, measure
from experiments.common import command
from experiments.common.command import Experiment
from teola.policies.routing import ROUTING


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this experiment alone."""
    add = parser.add_argument
    add("files", nargs="*", type=Path, metavar="FILE", help="traces in the public format")
    add("--policies", type=_policies, default=POLICIES, metavar="A,B", help=", ".join(POLICIES))
    add(
        "--half",
        choices=HALVES,
        help="replay half of the sessions on half of the instances; which, is drawn by --seed",
    )
    add("--kept", type=Path, metavar="FILE", help="rows that were measured before are kept there")


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in ROUTING:
            known = ", ".join(ROUTING)
            raise argparse.ArgumentTypeError(f"no routing policy is called {name!r}: {known}")
    return names


EXPERIMENT: Final = Experiment(
    name="cliffs",
    about="Replays traces of agents by memory and load, and compares routers in each cell",
    measure=measure,
    table=figures.show,
    plot=figures.plot,
    section=figures.section,
    arguments=arguments,
    told=("rows",),
    elsewhere=figures.table_of,
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
