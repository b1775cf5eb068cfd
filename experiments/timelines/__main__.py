"""Whether timelines tell the truth: of agents, and of queries that did not end well.

python -m experiments.timelines [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from experiments.common import pages
from experiments.timelines.measure import measure

HEAD: Final = ("query", "state", "took, s", "unexplained", "spans", "listed", "made")
MOST: Final = 0.05
"""Of a query's time that may be unexplained."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.timelines", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    rows = measure()
    if options.json:
        print(json.dumps({"rows": rows}, indent=2))
    else:
        table = pages.terminal("What timelines tell", HEAD, list(map(_cells, rows)), left=2)
        Console().print(table)
        Console().print(f"at most {MOST:.0%} may be unexplained; every call made must be listed")


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [
        row["query"],
        row["state"],
        f"{row['took_s']:.2f}",
        f"{row['unexplained_share']:.1%}",
        str(row["spans"]),
        str(row["calls_listed"]),
        str(row["calls_made"]),
    ]


if __name__ == "__main__":
    main()
