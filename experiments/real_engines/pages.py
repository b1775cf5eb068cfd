"""The plot, and the section of docs/benchmarks.md: both made from a report and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from experiments.common.pages import table, write
from experiments.real_engines.report import spread
from experiments.real_engines.systems import SAME
from experiments.real_engines.workload import APPS

NAME: Final = "real_engines"
COLOURS: Final = {
    "teola": "#1b6e5a",
    "asyncio": "#8a8f98",
    "llamaindex": "#8457a6",
    "langgraph": "#3a78b4",
    "haystack": "#c98524",
}
FADE: Final = {"": 1.0, "expert": 0.9, "matched": 0.6, "default": 0.35}
BOUND: Final = """\
The lower bound counts every call as in the fastest batch measured, along the longest path and for
all that each engine has to do ([how](../experiments/real_engines/bounds.py))."""


def plot(report: dict[str, Any], path: Path) -> None:
    """Median latencies with one query at a time, a panel for each application and size, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "real_engines"  # the same report makes the same file
    mpl.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    runs = [run for run in report["runs"] if run["load"] == "one"]
    panels = list(dict.fromkeys((run["app"], run["chunks"]) for run in runs))
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(3.2 * len(panels) + 1.2, 4.0), squeeze=False, sharey=True
    )
    for axis, (app, chunks) in zip(axes[0], panels, strict=True):
        shown = [run for run in runs if (run["app"], run["chunks"]) == (app, chunks)]
        names = [_label(run["system"], run["style"]) for run in shown]
        colours = [(COLOURS[run["system"]], FADE[run["style"]]) for run in shown]
        bars = axis.barh(names, [run["p50_s"] for run in shown], color=colours)
        axis.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
        axis.set_title(f"{app}, {chunks} chunks", fontsize=9)
        axis.set_xlabel("seconds", fontsize=8)
        axis.margins(x=0.15)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].invert_yaxis()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def write_section(report: dict[str, Any], page: Path, picture: Path) -> None:
    """Put the section into `page`, in place of the one that is there; the rest stays as it is."""
    write(NAME, section(report, picture), page)


def section(report: dict[str, Any], picture: Path) -> str:
    """The section as Markdown."""
    about = report["machine"]
    parameters = about["model_parameters"] / 1e6
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    parts = [
        "## The same engines under other orchestrators",
        f"`{_command(report)}`\n"
        "asks every system the same kind of query on one\n"
        f"vLLM (a random Llama of {parameters:.0f} M parameters, on a core of\n"
        "its own), one MiniLM in float32 and one pgvector. What `default`, `matched` and `expert`\n"
        "mean, and how everything is measured, is in\n"
        "[its README](../experiments/real_engines/README.md). Ratios are median latencies divided\n"
        "by Teola's: above 1, Teola is faster.",
        f"{about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB; {about['python']};\n"
        f"vLLM {about['vllm']}, {packages}. Load average at the end: {about['load_1min']}.\n"
        f"{spread(report)}",
        f"![Median latencies]({picture.as_posix()})",
    ]
    for load in dict.fromkeys(run["load"] for run in report["runs"]):
        title = "One query at a time" if load == "one" else f"Poisson arrivals, {load} of capacity"
        parts += [f"### {title}", _latencies(report, load)]
    if report["shared_model_path"]:
        parts += ["### What bounds it", BOUND, _paths(report)]
    parts += ["### Processor time", _busy(report)]
    return "\n\n".join(parts)


def _command(report: dict[str, Any]) -> str:
    """What was run, with the options by which it is more or less than by itself."""
    about, runs = report["machine"], report["runs"]
    apps = ",".join(dict.fromkeys(run["app"] for run in runs))
    chunks = ",".join(map(str, sorted({run["chunks"] for run in runs})))
    asked = [] if apps == ",".join(APPS) else [f"--apps {apps}"]
    asked += [
        f"--chunks {chunks}",
        f"--repetitions {','.join(map(str, about['repetitions']))}",
        f"--load-queries {about['load_queries']}",
    ]
    return " ".join(("python -m experiments.real_engines", *asked))


def _latencies(report: dict[str, Any], load: str) -> str:
    ratios = {
        (r["app"], r["chunks"], r["against"], r["style"]): f"{r['ratio']:.2f}"
        for r in report["ratios"]
        if r["load"] == load
    }
    head = ("application", "chunks", "system", "p50, s", "p95, s", "first token, s", "ratio", "n")
    rows = (
        (
            run["app"],
            run["chunks"],
            _label(run["system"], run["style"]),
            *(f"{run[key]:.2f}" for key in ("p50_s", "p95_s", "ttft_p50_s")),
            ratios.get((run["app"], run["chunks"], run["system"], run["style"]), ""),
            run["queries"],
        )
        for run in report["runs"]
        if run["load"] == load
    )
    return table(head, rows)


def _paths(report: dict[str, Any]) -> str:
    """Lower bounds, and how many times faster than the best of each style anybody could be."""
    best: dict[tuple[str, int, str], float] = {}
    for run in report["runs"]:
        if run["load"] == "one":
            key = (run["app"], run["chunks"], run["style"])
            best[key] = min(run["p50_s"], best.get(key, run["p50_s"]))
    paths = {(p["app"], p["chunks"]): p["bound_s"] for p in report["critical_path"]}
    head = (
        "application",
        "chunks",
        "longest path, s",
        "lower bound, s",
        "p50",
        "fastest query of all, s",
        *(f"no ratio to the best {style} above" for style in SAME),
    )
    rows = (
        (
            bound["app"],
            bound["chunks"],
            f"{paths[bound['app'], bound['chunks']]:.2f}",
            f"{bound['bound_s']:.2f}",
            f"{bound['p50_s']:.2f}",
            f"{bound['fastest_s']:.2f}",
            *(_ceiling(best, bound, style) for style in SAME),
        )
        for bound in report["shared_model_path"]
    )
    return table(head, rows)


def _ceiling(best: dict[tuple[str, int, str], float], bound: dict[str, Any], style: str) -> str:
    theirs = best.get((bound["app"], bound["chunks"], style))
    return "" if theirs is None else f"{theirs / bound['bound_s']:.2f}"


def _busy(report: dict[str, Any]) -> str:
    """Processor seconds a query, with one query at a time."""
    head = ("application", "chunks", "system", "vLLM's core, s", "this process, s", "PostgreSQL, s")
    rows = (
        (
            busy["app"],
            busy["chunks"],
            _label(busy["system"], busy["style"]),
            *(f"{busy[f'{name}_s']:.2f}" for name in ("vllm", "process", "postgres")),
        )
        for busy in report["busy"]
        if busy["load"] == "one" and busy["style"] in ("", "expert")
    )
    return table(head, rows)


def _label(system: str, style: str) -> str:
    return f"{'Teola' if system == 'teola' else system} {style}".strip()
