"""Hits of a cache of prefixes by the order of the fields of a table. See README.md here.

python -m experiments.tables_orders [--files A.csv,B.csv] [--rows 4000] [--exhaustive] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from experiments.common import pages
from experiments.tables_orders.generated import TABLES
from experiments.tables_orders.measure import measure

DATA = "TEOLA_DATA"
FILES = ("tables/beer.csv", "tables/movies_small.csv")
HEAD = (
    *("table", "rows", "columns", "written", "score", "after", "exchanged", "groups", "chosen"),
    "of score",
)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tables_orders", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--files", default=None, metavar="A,B", help=f"of the folder {DATA}, by default {FILES}"
    )
    parser.add_argument("--rows", type=int, default=4000, metavar="N", help="of a generated table")
    parser.add_argument("--most", type=int, default=10**9, metavar="N", help="rows of a file")
    parser.add_argument(
        "--exhaustive", action="store_true", help="look at all orders, of at most 10 columns"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    folder = os.environ.get(DATA)
    files = options.files.split(",") if options.files else list(FILES) if folder else []
    sources = [(Path(folder or "") / one, options.most) for one in files if one]
    sources += [(name, options.rows) for name in TABLES]
    found = [measure(*one, exhaustive=options.exhaustive) for one in sources]
    if options.json:
        print(json.dumps({"tables": found}, indent=2))
        return
    cells = [
        (
            one["table"],
            f"{one['rows']:,}",
            str(one["columns"]),
            *(f"{share:.3f}" for share in one["hits"].values()),
            f"{one['chosen']} {one['chosen_hits']:.3f}",
            f"{one['of_score'] or 0:.2f}",
        )
        for one in found
    ]
    Console().print(pages.terminal("Blocks found, by order of the fields", HEAD, cells, left=1))


if __name__ == "__main__":
    main()
