"""One query on each system, and the batch sizes that TO's tuning finds. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from experiments.baselines.systems import BASELINES, TEOLA
from experiments.baselines.tuning import tuned
from experiments.common import pages
from experiments.common.simulate import Setting, alone
from experiments.common.testbed import SIZES, testbed
from experiments.common.workloads import APPS, example


def main(argv: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(
        prog="python -m experiments.baselines",
        description="One query over 48 chunks on each simulated system, in seconds.",
    ).parse_args(argv)
    console = Console()
    systems, lines = (TEOLA, *BASELINES), []
    for app in APPS:
        for llm in SIZES:
            setting = Setting(app, testbed(llm))
            seconds = (alone(system, setting, example(app)) for system in systems)
            lines.append((app, llm, *(f"{found:.2f}" for found in seconds)))
    head = ("application", "LLM", *(system.name for system in systems))
    console.print(pages.terminal("One query alone, seconds", head, lines, left=2))
    engines = tuned(testbed("13b").profile).engines
    sizes = (f"{name} {engines[name].max_batch}" for name in ("embedding", "rerank", "vectorstore"))
    console.print(f"Batch sizes of TO by doubling: {', '.join(sizes)}")


if __name__ == "__main__":
    main()
