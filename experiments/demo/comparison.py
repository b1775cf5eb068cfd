"""The same question with and without the passes, each time over documents new to the system."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from experiments.demo.documents import Documents
from teola import App
from teola.explain import Explanation

PASSES = ("none", "all")
DEADLINE_S = 1200.0
"""A busy machine may take long; the demo then shows that instead of giving up."""


def measure(
    app: App, question: str, documents: Documents, repetitions: int, console: Console
) -> dict[str, list[float]]:
    """Latencies in seconds, by passes. The two take turns, and take turns at being first."""
    found: dict[str, list[float]] = {passes: [] for passes in PASSES}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("with and without the passes", total=2 * repetitions)
        for repetition in range(repetitions):
            for passes in PASSES if repetition % 2 else PASSES[::-1]:
                documents.renew()
                result = app.run(
                    question=question,
                    documents=documents.folder,
                    passes=passes,
                    deadline_s=DEADLINE_S,
                )
                found[passes].append(result.latency_s)
                progress.advance(task)
    return found


def show(console: Console, seconds: Mapping[str, Sequence[float]], estimate: Explanation) -> None:
    """Medians of the real runs, and the estimate for the paper's testbed beside them."""
    path = estimate.to_json()["critical_path_s"]
    repetitions = len(seconds["all"])
    table = Table(title="latency of one query, documents indexed each time", box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column(f"here, median of {repetitions}", justify="right")
    table.add_column("lowest to highest", justify="right")
    table.add_column("paper-13b, estimate", justify="right")
    for passes, graph in zip(PASSES, ("p_graph", "e_graph"), strict=True):
        times = seconds[passes]
        table.add_row(
            "without passes" if passes == "none" else "with all passes",
            f"{statistics.median(times):.2f} s",
            f"{min(times):.2f} to {max(times):.2f} s",
            f"{path[graph]:.2f} s",
        )
    here = statistics.median(seconds["none"]) / statistics.median(seconds["all"])
    table.add_row("ratio", f"{here:.2f}", "", f"{path['p_graph'] / path['e_graph']:.2f}")
    console.print()
    console.print(table)
    console.print(
        "Here all engines share the cores of this machine, and the extractive reader has no "
        "prefix to compute ahead and no tokens to wait for. The estimate is `teola explain "
        "--profile paper-13b`: the critical path on the paper's testbed, where every engine has an "
        "accelerator and the LLM has 13 billion parameters."
    )


def show_estimate(console: Console, estimate: Explanation) -> None:
    """What the passes are expected to save where every engine has an accelerator."""
    path = estimate.to_json()["critical_path_s"]
    console.print()
    console.print(
        f"On the paper's testbed (an estimate): {path['p_graph']:.1f} s without the passes, "
        f"{path['e_graph']:.1f} s with them. --repetitions 3 times both here."
    )
