"""Interactive queries beside a run of rows. See README.md here.

python -m experiments.tables_beside [--quick] [--loads "calls,calls beside rows"] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from rich.console import Console

from experiments.common import pages
from experiments.tables_beside.measure import LIVE, measure

HEAD = ("load", "policy", "p50, ms", "p99, ms", "rows/s")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tables_beside", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--loads", default=",".join(LIVE), metavar="A,B", help="of these")
    parser.add_argument("--queries", type=int, default=200, metavar="N", help="interactive ones")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each load")
    parser.add_argument("--call-ms", type=float, default=20.0, help="what a live call takes")
    parser.add_argument("--quick", action="store_true", help="one run of each")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    loads = options.loads.split(",")
    if unknown := set(loads) - set(LIVE):
        parser.error(f"unknown loads {sorted(unknown)}: there are {', '.join(LIVE)}")
    runs = 1 if options.quick else options.runs
    rows = measure(loads, options.queries, runs, options.call_ms / 1000)
    if options.json:
        print(json.dumps({"rows": rows}, indent=2))
        return
    cells = [
        [
            one["load"],
            one["policy"],
            *(
                "" if one[name] is None else f"{1000 * one[name]:.1f}"
                for name in ("interactive_p50_s", "interactive_p99_s")
            ),
            f"{one['rows_per_s']:.0f}",
        ]
        for one in rows
    ]
    Console().print(pages.terminal("Beside a run of rows", HEAD, cells, left=2))


if __name__ == "__main__":
    main()
