"""Replays a trace under routing, eviction and batching policies by name. See README.md here."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from experiments.common import datasets, pages
from experiments.replay.calls import Recording
from experiments.replay.replay import (
    AGENTS_AT_SCALE,
    HORIZON_S,
    WARM_UP_S,
    Fleet,
    ReplayResult,
    replay,
    replay_sessions,
)
from experiments.replay.sessions import agent_sessions
from experiments.replay.synthetic import PREBLE, trace_a, trace_b
from experiments.replay.traces import azure, mooncake, public
from teola.errors import InputError, TeolaError, UnknownName
from teola.kv import policies as eviction_policies
from teola.policies import batching as batching_policies
from teola.policies import routing as routing_policies
from teola.profile import load_profile

SESSIONS: Final = ("agents", "agents_at_scale")
SESSIONS_FILE: Final = "llm_serving/agent_sessions.jsonl"
MADE: Final[Mapping[str, Callable[..., Recording]]] = {"trace-a": trace_a, "trace-b": trace_b}
TRACES: Final = ("mooncake", "azure-code", "azure-conv", *MADE, *PREBLE, *SESSIONS, "FILE.jsonl")
HEADS: Final = ("routing", "eviction", "batching", "calls", "hits", "TTFT", "p99", "latency", "p99")


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        report = measure(given)
    except TeolaError as error:
        parser.error(str(error))
    if given.json:
        print(json.dumps(report, indent=1))
    else:
        Console().print(_table(report))


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """A row for each combination of policies. Raises TeolaError."""
    run, about = _runner(given)
    rows = []
    for routing, eviction, batching in product(given.routing, given.eviction, given.batching):
        found = run(_fleet(given, routing, eviction, batching))
        names = {"routing": routing, "eviction": eviction, "batching": batching}
        rows.append({**names, **_figures(found)})
    return {"trace": given.trace, "seed": given.seed, **about, "rows": rows}


def _figures(found: ReplayResult) -> dict[str, float]:
    return {
        "calls": len(found.calls),
        "refused": found.refused,
        "hit_ratio": round(found.hit_ratio, 4),
        "ttft_s": round(found.mean("ttft_s"), 4),
        "ttft_p99_s": round(found.percentile("ttft_s", 99), 4),
        "latency_s": round(found.mean("latency_s"), 4),
        "latency_p99_s": round(found.percentile("latency_s", 99), 4),
    }


def _runner(
    given: argparse.Namespace,
) -> tuple[Callable[[Fleet], ReplayResult], dict[str, Any]]:
    """What replays the trace, and what a report says of it."""
    if given.trace in SESSIONS:
        threads = agent_sessions(_in_data(given, SESSIONS_FILE))
        about = {"sessions": given.sessions, "threads": len(threads)}
        times = {"horizon_s": given.horizon, "warm_up_s": WARM_UP_S}

        def closed(fleet: Fleet) -> ReplayResult:
            return replay_sessions(
                threads, given.sessions, fleet, seed=given.seed, horizon_s=given.horizon
            )

        return closed, {**about, **times}
    recording = _recording(given)
    if given.calls:
        recording = recording.first(given.calls)
    about = {"speedup": given.speedup, "block_tokens": recording.block_tokens}
    return lambda fleet: replay(recording, fleet, speedup=given.speedup), about


def _recording(given: argparse.Namespace) -> Recording:
    name, seed = given.trace, given.seed
    if name == "mooncake":
        return mooncake(_in_data(given, datasets.TRACES[name]), seed=seed)
    if name in datasets.TRACES:
        return azure(_in_data(given, datasets.TRACES[name]))
    if name in MADE:
        return MADE[name](given.seconds, seed=seed)
    if name in PREBLE:
        return PREBLE[name](given.calls or 2000, rate=given.rate, seed=seed)
    if name.endswith(".jsonl"):
        return public(Path(name))
    raise UnknownName("trace", name, TRACES)


def _fleet(given: argparse.Namespace, routing: str, eviction: str, batching: str) -> Fleet:
    fleet = AGENTS_AT_SCALE if given.trace == "agents_at_scale" else Fleet()
    wanted = {
        "instances": given.instances,
        "kv_tokens": given.kv_tokens,
        "sequences": given.sequences,
        "budget": given.budget,
    }
    if given.profile:
        step = load_profile(given.profile).engine("llm").step
        fleet = replace(fleet, step=step)
    fleet = replace(fleet, **{name: value for name, value in wanted.items() if value})
    return replace(fleet, routing=routing, eviction=eviction, batching=batching)


def _in_data(given: argparse.Namespace, name: str) -> Path:
    folder = given.data or os.environ.get("TEOLA_DATA")
    if not folder:
        raise InputError(f"trace {given.trace!r} needs a data folder: --data FOLDER or TEOLA_DATA")
    return Path(folder) / name


def _table(report: Mapping[str, Any]) -> Any:
    rows = [
        (
            row["routing"],
            row["eviction"],
            row["batching"],
            str(row["calls"]),
            f"{row['hit_ratio']:.1%}",
            *(
                f"{row[name]:.2f} s"
                for name in ("ttft_s", "ttft_p99_s", "latency_s", "latency_p99_s")
            ),
        )
        for row in report["rows"]
    ]
    told = ", ".join(f"{name} {value}" for name, value in report.items() if name != "rows")
    return pages.terminal(told, HEADS, rows, left=3)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.replay",
        description="Replays a trace on simulated LLM instances under policies by name: a row for "
        "each combination.",
    )
    add = parser.add_argument
    add("trace", metavar="TRACE", help=", ".join(TRACES))
    for kind, default in (
        ("routing", routing_policies.DEFAULT),
        ("eviction", eviction_policies.DEFAULT),
        ("batching", batching_policies.DEFAULT),
    ):
        add(f"--{kind}", metavar="NAME", nargs="+", default=[default], help=f"by default {default}")
    add("--data", type=Path, metavar="FOLDER", help="where the public traces are (TEOLA_DATA)")
    add("--seed", type=int, default=0, metavar="N")
    add("--calls", type=int, metavar="N", help="only the first so many; of a workload, how many")
    add("--rate", type=float, default=8.0, metavar="X", help="calls a second, of a workload")
    add("--seconds", type=float, default=600.0, metavar="S", help="of trace-a and trace-b")
    add("--speedup", type=float, default=1.0, metavar="X", help="so many times the calls a second")
    add("--sessions", type=int, default=72, metavar="N", help="at a time, of agents")
    add("--horizon", type=float, default=HORIZON_S, metavar="S", help="until when agents ask")
    add("--profile", metavar="NAME|FILE", help="whose LLM's step times to take (llama-8b-h100)")
    for name in ("instances", "kv-tokens", "sequences", "budget"):
        add(f"--{name}", type=int, metavar="N", help="of the fleet, if not by default")
    add("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    main()
