"""How agents at scale are shown: tables, plot and the section of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rich.console import Console

from experiments.agents_at_scale.measure import BELADY, DRAWN, OURS, STOCK
from experiments.common import pages, plots
from experiments.common.command import Report

HEAD: Final = (
    "router",
    "sessions",
    "served",
    "first token, s",
    "its p99, s",
    "mean, s",
    "hits",
)
COLOURS: Final = {OURS: "#1b6e5a", BELADY: "#c98524"}
Row = dict[str, Any]


def show(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    about = report["about"]
    title = (
        f"Agents in a closed loop, until {about['horizon_s']:.0f} s, of which the first "
        f"{about['warm_up_s']:.0f} s do not count"
    )
    console.print(pages.terminal(title, HEAD, _lines(report["rows"]), left=1))
    console.print(pages.terminal(f"{OURS}, in parts", HEAD, _lines(report["ablation"]), left=1))
    for line in _gains(report):
        console.print(line)


def _means(rows: Sequence[Row]) -> dict[tuple[int, str], Row]:
    """By count and policy, over all seeds."""
    found: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["sessions"], row["policy"]), []).append(row)
    return {
        key: {name: fmean(row[name] for row in some) for name in some[0] if name != "policy"}
        for key, some in found.items()
    }


def _lines(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            policy,
            str(sessions),
            f"{row['requests']:.0f}",
            f"{row['ttft_mean_s']:.2f}",
            f"{row['ttft_p99_s']:.1f}",
            f"{row['mean_s']:.1f}",
            f"{row['hit_ratio']:.3f}",
        ]
        for (sessions, policy), row in _means(rows).items()
    ]


def _gains(report: Report) -> list[str]:
    """Against the best stock router, for each count."""
    means, found = _means(report["rows"]), []
    for count in sorted({sessions for sessions, _ in means}):
        ours = means[count, OURS]
        stock = {name: means[count, name] for name in STOCK if (count, name) in means}
        quick = min(stock, key=lambda name: stock[name]["mean_s"])
        most = max(stock, key=lambda name: stock[name]["requests"])
        faster = stock[quick]["mean_s"] / ours["mean_s"]
        more = ours["requests"] / stock[most]["requests"]
        found.append(
            f"With {count} sessions the mean of {quick} is {faster:.2f} times that of {OURS}, "
            f"which answers {more:.2f} times as many requests as {most}"
        )
    return found


def plot(report: Report, path: Path) -> None:
    """Requests and mean latency over the number of sessions."""
    pyplot = plots.pyplot("agents_at_scale")
    figure, axes = pyplot.subplots(1, 2, figsize=(9.6, 3.4))
    means = _means(report["rows"])
    counts = sorted({sessions for sessions, _ in means})
    for name in dict.fromkeys(policy for _, policy in means):
        for axis, key in zip(axes, ("requests", "mean_s"), strict=True):
            heights = [means[count, name][key] for count in counts]
            label = name if name in COLOURS else "stock routers" if name == STOCK[0] else None
            axis.plot(counts, heights, marker="o", ms=3, label=label,
                      color=COLOURS.get(name, "#b8bcc4"))  # fmt: skip
    for axis, label in zip(axes, ("requests answered", "mean latency, s"), strict=True):
        axis.set_xlabel("sessions")
        axis.set_ylabel(label)
    axes[0].legend(frameon=False, fontsize=7)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about = report["about"]
    options = [] if about["sessions"] == DRAWN else ["--sessions FILE"]
    return "\n\n".join(
        [
            "## Agents whose sessions do not fit",
            pages.prose(
                f"{pages.called('agents_at_scale', about, *options)} replays sessions of",
                "coding agents in a closed loop, on four simulated instances with room for 1.5",
                f"million tokens of KV each, for {about['horizon_s']:.0f} s, of which the first",
                f"{about['warm_up_s']:.0f} s do not count. `{OURS}` holds calls back that would",
                "push out what others will soon read ([routing](routing.md)); servers are stock",
                f"ones, which evict the least recently used. `{BELADY}` is the same with servers",
                "that know the future.",
            ),
            pages.prose(*(f"{line}." for line in _gains(report))),
            f"![Requests and latency by sessions]({picture.as_posix()})",
            pages.table(HEAD, _lines(report["rows"])),
            f"### What each part of `{OURS}` is worth",
            pages.table(HEAD, _lines(report["ablation"])),
        ]
    )
