"""Twenty agents at once on one real vLLM, Teola's and LangGraph's.

    python -m experiments.agents_on_vllm [--json] [--agents 20] [--rounds 3]

It starts a vLLM of a small random model (`make vllm`), which is held to schemas: what it calls is
valid, and how long it writes is chance. One round of one system is followed by one of the other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console

from experiments.agents_on_vllm.measure import AGENTS, ROUNDS, measure, server
from experiments.common import pages

COLUMNS: Final = (
    "system", "agents", "mean_s", "p90_s", "ms_a_token", "tokens", "calls", "invalid", "unfinished",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.agents_on_vllm")
    parser.description, parser.formatter_class = __doc__, argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--agents", type=int, default=AGENTS, metavar="N")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    options = parser.parse_args(argv)
    with (
        TemporaryDirectory(prefix="teola-agents-") as folder,
        server(Path(folder) / "tiny") as running,
    ):
        report = measure(running.url, options.agents, options.rounds)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _print(report)


def _print(report: dict[str, Any]) -> None:
    console = Console()
    lines = [[one[name] for name in COLUMNS] for one in report["rows"]]
    console.print(pages.terminal("Agents at once on one vLLM", COLUMNS, lines, left=1))
    for one in report["rows"]:
        for why in one["why"]:
            console.print(f"{one['system']}: {why}")
    about = report["machine"]
    console.print(f"{about['cpu']}, {about['cores']} cores, load {about['load_1min']}")


if __name__ == "__main__":
    main()
