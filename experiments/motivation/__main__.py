"""Figure 1: each module's share of the latency. Figure 3: the running example. See README.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from experiments.baselines.systems import SYSTEMS
from experiments.common import command, pages, plots
from experiments.common.command import Experiment, Options, Report
from experiments.common.simulate import Setting, alone
from experiments.common.testbed import SIZES, testbed
from experiments.common.workloads import APPS, example
from teola.runtime.driver import Query
from teola.runtime.sim import SimResult
from teola.runtime.trace import Span

CHAIN: Final = "llamadist_po"
"""A chain of modules that does not wait for batches to fill."""
RUNNING: Final = "advanced-rag"
RUNNING_LLM: Final = "13b"
PAPER_S: Final = (4.1, 2.4)
"""The paper's running example: chain of modules, and finer orchestration."""


def measure(options: Options, progress: Progress) -> Report:
    """Shares for every application and LLM, and both timelines of the running example."""
    task = progress.add_task("one query", total=len(APPS) * len(SIZES) + 2)
    shares: list[dict[str, Any]] = []
    for app in APPS:
        for llm in SIZES:
            shares += _shares(app, llm)
            progress.advance(task)
    example: dict[str, Any] = {"app": RUNNING, "llm": RUNNING_LLM, "timeline": []}
    for name in (CHAIN, "teola"):
        spans, latency = _run(name, RUNNING, RUNNING_LLM)
        example[f"{name}_s"] = round(latency, 4)
        example["timeline"] += [{"system": name, **_bar(span)} for span in spans]
        progress.advance(task)
    return {"shares": shares, "example": example, "about": {"queries": 1, "chunks": 48}}


def _run(system: str, app: str, llm: str) -> tuple[list[Span], float]:
    """Spans and latency of the example query."""
    kept: list[Span] = []

    def keep(query: Query, result: SimResult) -> None:
        kept.extend(s for s in query.trace.spans if s.state == "done" and s.end > s.start)

    latency = alone(SYSTEMS[system], Setting(app, testbed(llm)), example(app), keep)
    return kept, latency


def _shares(app: str, llm: str) -> list[dict[str, Any]]:
    """Seconds of each module of the chain: modules do not overlap, so they add up."""
    spans, latency = _run(CHAIN, app, llm)
    modules = list(dict.fromkeys(span.component for span in spans))
    found = []
    for module in modules:
        mine = [span for span in spans if span.component == module]
        seconds = max(span.end for span in mine) - min(span.start for span in mine)
        found.append(
            {
                "app": app,
                "llm": llm,
                "module": module,
                "seconds": round(seconds, 4),
                "share": round(seconds / latency, 4),
            }
        )
    return found


def _bar(span: Span) -> dict[str, Any]:
    return {
        "primitive": span.primitive,
        "engine": span.engine,
        "start_s": round(span.start, 4),
        "end_s": round(span.end, 4),
    }


def _share_lines(report: Report) -> list[list[str]]:
    """A row for each application and LLM: its modules with their shares."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in report["shares"]:
        text = f"{one['module']} {one['share']:.0%}"
        found.setdefault((one["app"], one["llm"]), []).append(text)
    return [[app, llm, ", ".join(parts)] for (app, llm), parts in found.items()]


def _example_lines(report: Report) -> list[list[str]]:
    example = report["example"]
    chain, ours = example[f"{CHAIN}_s"], example["teola_s"]
    lines = [("here, simulated", chain, ours), ("paper", *PAPER_S)]
    return [[who, f"{a:.2f}", f"{b:.2f}", f"{a / b:.2f}"] for who, a, b in lines]


SHARES_HEAD: Final = ("application", "LLM", "share of each module of the latency")
EXAMPLE_HEAD: Final = ("running example", "chain of modules, s", "Teola, s", "ratio")


def show(report: Report, console: Console) -> None:
    """Both figures as tables."""
    for head, lines in (
        (SHARES_HEAD, _share_lines(report)),
        (EXAMPLE_HEAD, _example_lines(report)),
    ):
        table = Table(*head)
        for line in lines:
            table.add_row(*line)
        console.print(table)


def plot(report: Report, path: Path) -> None:
    """Shares as stacked bars above, the two timelines below, a line for each engine."""
    pyplot = plots.pyplot("motivation")
    figure, (top, *below) = pyplot.subplots(
        3, 1, figsize=(8.4, 7.6), height_ratios=(3, 2, 2), squeeze=True
    )
    _draw_shares(top, report)
    spans = report["example"]["timeline"]
    last = max(span["end_s"] for span in spans)
    for axis, system in zip(below, (CHAIN, "teola"), strict=True):
        mine = [span for span in spans if span["system"] == system]
        engines = sorted({span["engine"] for span in spans if span["engine"]}, reverse=True)
        for span in mine:
            if span["engine"]:
                width = span["end_s"] - span["start_s"]
                axis.barh(
                    span["engine"], width, left=span["start_s"], alpha=0.55, edgecolor="white"
                )
        axis.set_yticks(range(len(engines)), engines)
        axis.set_xlim(0, last * 1.02)
        axis.set_title(f"{RUNNING}, {RUNNING_LLM}, {system}")
    below[-1].set_xlabel("seconds")
    plots.save(figure, path)


def _draw_shares(axis: Any, report: Report) -> None:
    colours = dict(zip(_modules(report), plots.SHADES, strict=False))
    for app, llm in dict.fromkeys((one["app"], one["llm"]) for one in report["shares"]):
        left = 0.0
        for one in report["shares"]:
            if (one["app"], one["llm"]) == (app, llm):
                name, share = one["module"], one["share"]
                axis.barh(f"{app}, {llm}", share, left=left, color=colours[name])
                if share > 0.06:
                    axis.text(left + share / 2, f"{app}, {llm}", name, ha="center", va="center")
                left += share
    axis.set_xlabel("share of the latency")
    axis.invert_yaxis()


def _modules(report: Report) -> list[str]:
    return list(dict.fromkeys(one["module"] for one in report["shares"]))


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    return "\n\n".join(
        [
            "## Where a chain of modules spends its time",
            "`python -m experiments.motivation` simulates figures 1 and 3 of the paper with one\n"
            "query over 48 chunks: how the latency of LlamaDist is made up, and the running\n"
            "example with modules one after the other and as an e-graph.\n"
            "[More](../experiments/motivation/README.md).",
            f"![Shares and timelines]({picture.as_posix()})",
            pages.table(SHARES_HEAD, _share_lines(report)),
            pages.table(EXAMPLE_HEAD, _example_lines(report)),
        ]
    )


EXPERIMENT: Final = Experiment(
    name="motivation",
    about="Shares of each module, and the running example (figures 1 and 3 of the paper)",
    measure=measure,
    table=show,
    plot=plot,
    section=section,
    queries=(1, 1),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
