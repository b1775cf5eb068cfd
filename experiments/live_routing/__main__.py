"""Routing policies on two real vLLMs, beside what the simulator predicts. See README.md here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from experiments.common import command, pages, plots
from experiments.common.command import Experiment, Report
from experiments.live_routing.measure import POLICIES, error, means, measure
from experiments.live_routing.pair import MODEL
from teola.runtime.hosts.model_server import PYTHON

LOAD: Final = 0.4
HEAD: Final = (
    "policy", "hit tokens", "simulated", "error", "mean, s", "simulated, s", "error",
    "p99, s", "first token, s",
)  # fmt: skip
SHORT: Final = tuple("sim." if name.startswith("simulated") else name for name in HEAD[:-1])
"""For 80 columns."""


def _lines(report: Report) -> list[list[str]]:
    return [
        [
            one["policy"],
            f"{one['hit_tokens']:,.0f}",
            f"{one['simulated_hit_tokens']:,.0f}",
            f"{error(one, 'hit_tokens'):+.1%}",
            f"{one['mean_s']:.2f}",
            f"{one['simulated_mean_s']:.2f}",
            f"{error(one, 'mean_s'):+.1%}",
            f"{one['p99_s']:.2f}",
            f"{one['ttft_mean_s']:.2f}",
        ]
        for one in means(report["rows"])
    ]


def _sentences(report: Report) -> list[str]:
    together, worst = means(report["rows"]), report["worst_error"]
    most = max(together, key=lambda one: one["hit_tokens"])
    first = together[0]["policy"]
    both = "" if most["policy"] == first else f"{most['policy']} "
    return [
        f"{first} has the lowest mean latency, and {both}finds the most",
        f"tokens. The prediction that is furthest off, of all {len(report['rows'])} runs, is so",
        f"by {worst['hit_tokens']:.1%} of the hit tokens, and by {worst['mean_s']:.1%} of the",
        "mean latency.",
    ]


def _disturbed(report: Report) -> str:
    """What the runs were measured on."""
    about, others = report["machine"], [run["others"] for run in report["learned"]]
    return (
        f"{about['cpu']}, {about['cores']} cores; load average {about['load_before']} before, "
        f"{about['load_1min']} at the end; other processes used {min(others):.2f} to "
        f"{max(others):.2f} cores."
    )


def show(report: Report, console: Console) -> None:
    """The table on the terminal."""
    lines = [line[: len(SHORT)] for line in _lines(report)]
    console.print(pages.terminal("Two vLLMs under routing policies", SHORT, lines, left=1))
    console.print(" ".join(_sentences(report)))
    console.print(_disturbed(report))


def plot(report: Report, path: Path) -> None:
    """Hit tokens and mean latency by policy, live beside simulated."""
    pyplot = plots.pyplot("live_routing")
    figure, axes = pyplot.subplots(1, 2, figsize=(7.2, 2.6))
    together = means(report["rows"])
    told = (("hit_tokens", "tokens found"), ("mean_s", "mean latency, s"))
    for axis, (name, label) in zip(axes, told, strict=True):
        for k, (kind, figure_of) in enumerate((("live", name), ("simulated", f"simulated_{name}"))):
            places = [i + 0.38 * (k - 0.5) for i in range(len(together))]
            heights = [one[figure_of] for one in together]
            axis.bar(places, heights, width=0.36, label=kind, color=plots.SHADES[k])
        axis.set_xticks(range(len(together)), [one["policy"] for one in together], rotation=20)
        axis.set_ylabel(label)
    axes[0].legend(frameon=False)
    plots.save(figure, path)


def section(report: Report, picture: Path) -> str:
    """The section of docs/benchmarks.md."""
    about, profile = report["about"], report["profile"]
    rate, load = about["rate"], about["load"]
    return "\n\n".join(
        [
            "## Routers on two real vLLMs",
            pages.prose(
                f"{pages.called('live_routing', about)} sends {about['queries']:,} LLM calls about",
                f"{about['groups']} manuals (popular by Zipf's law with {about['zipf']}) to two",
                f"vLLMs of a small random model, each with room for {profile['kv_tokens']:,}",
                f"tokens of KV, at {rate:.2f} calls a second, {load:g} of what they",
                "sustain as the simulator says. Figures are means of",
                f"{pages.plural(about['seeds'], 'seed')}; caches are emptied between runs.",
                "Hit tokens are those that the servers count themselves. The simulator gets the",
                "same calls, and step times that a runtime learned of the servers before.",
                "[More](../experiments/live_routing/README.md).",
            ),
            _disturbed(report),
            f"![Tokens found and mean latency, live and simulated]({picture.as_posix()})",
            pages.table(HEAD, _lines(report)),
            pages.prose(*_sentences(report)),
        ]
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policies", metavar="A,B", help=f"by default {','.join(POLICIES)}")
    parser.add_argument(
        "--load", type=_part, default=LOAD, metavar="X", help=f"of what is sustained ({LOAD:g})"
    )
    parser.add_argument("--python", type=Path, default=PYTHON, help="of the vLLM environment")
    parser.add_argument("--model", type=Path, default=MODEL, metavar="DIR", help=f"({MODEL})")


def _part(text: str) -> float:
    try:
        part = float(text)
    except ValueError:
        part = 0.0
    if not 0 < part <= 2:
        raise argparse.ArgumentTypeError("a number above 0, at most 2")
    return part


EXPERIMENT: Final = Experiment(
    name="live_routing",
    about="Routing policies on two real vLLMs, beside what the simulator predicts",
    measure=measure,
    table=show,
    plot=plot,
    section=section,
    queries=(200, 40),
    seeds=(3, 1),
    arguments=_arguments,
    told=("rows", "machine"),
)


def main(argv: Sequence[str] | None = None) -> None:
    command.main(EXPERIMENT, argv)


if __name__ == "__main__":
    main()
