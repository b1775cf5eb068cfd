"""Who goes first. See README.md here.

python -m experiments.ordering [--cases urgent,map_beside_chat,overload] [--seeds 3] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Final

from experiments.ordering.measure import rows

CASES: Final = ("urgent", "map_beside_chat", "overload")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.ordering", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--cases", default=",".join(CASES), metavar="A,B")
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(argv)
    cases = options.cases.split(",")
    if unknown := set(cases) - set(CASES):
        parser.error(f"unknown cases {sorted(unknown)}: there are {', '.join(CASES)}")
    found = [*rows(cases, options.seeds)]
    if options.json:
        print(json.dumps({"rows": found}, indent=2))
        return
    for row in found:
        told = (
            f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
            for name, value in row.items()
        )
        print("  ".join(told))


if __name__ == "__main__":
    main()
