"""Measures routers on sessions of coding agents: closed loop, four instances."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.progress import Progress

from experiments.agents_at_scale.clairvoyant import Clairvoyant, Future
from experiments.agents_at_scale.drawn import drawn_sessions
from experiments.common import pool
from experiments.common.command import Options, Report
from experiments.replay.replay import AGENTS_AT_SCALE, HORIZON_S, WARM_UP_S, replay_sessions
from experiments.replay.sessions import AgentThread, agent_sessions
from teola.policies.routing.graph_aware import SWITCHES
from teola.registering import register

COUNTS: Final = (72, 96, 120, 150)
"""Sessions: below what fits, where the stock routers begin to thrash, and 1.25 times that."""
DRAWN: Final = "drawn"
"""What a report says of its sessions where no file of recorded ones was given."""
QUICK_S: Final = (600.0, 60.0)
"""Horizon and warm-up of a small run."""
STOCK: Final = (
    "round_robin",
    "join_shortest",
    "lmetric",
    "dynamo",
    "dynamo_two_tier",
    "sglang",
    "llm_d",
    "aibrix",
    "production_stack",
    "ray_serve",
    "mooncake",
    "dualmap",
    "e2",
)
OURS: Final = "graph_aware"
BELADY: Final = "belady"
BOUNDED_S: Final = 60.0
"""`held_s`, which bounds the time to the first token."""


class Setting(NamedTuple):
    """A router as it is measured. clairvoyant: servers know the future. tells: sessions say what
    they wait for, and when they have ended."""

    name: str
    routing: str
    options: Mapping[str, Any] = {}
    eviction: str = "lru"
    clairvoyant: bool = False
    tells: bool = True


COMPARED: Final = (
    *(Setting(name, name) for name in STOCK),
    Setting(OURS, OURS),
    Setting(BELADY, OURS, clairvoyant=True),
)
ABLATION: Final = (
    *(Setting(f"without {switch}", OURS, {switch: False}) for switch in SWITCHES),
    Setting("without any switch", OURS, dict.fromkeys(SWITCHES, False)),
    Setting("marginal_cost", "marginal_cost"),
    Setting("sessions tell nothing", OURS, tells=False),
    Setting("servers evict by next_use", OURS, eviction="next_use"),
    Setting("held no longer than 60 s", OURS, {"held_s": BOUNDED_S}),
)


def measure(options: Options, progress: Progress) -> Report:
    """The report: rows for each count, router and seed, and the ablation at the largest count."""
    given: Path | None = options.given.sessions
    counts: Sequence[int] = options.given.count or COUNTS
    horizon, warm_up = QUICK_S if options.quick else (HORIZON_S, WARM_UP_S)
    places = [
        (setting, count, seed)
        for settings, some in ((COMPARED, counts), (ABLATION, [max(counts)]))
        for count in sorted(some, reverse=True)
        for setting in settings
        for seed in range(options.seed, options.seed + options.seeds)
    ]
    jobs: list[pool.Job[Report]] = [(_row, (given, *place, horizon, warm_up)) for place in places]
    begun = time.perf_counter()
    found = pool.run(jobs, options.workers, progress, "sessions")
    several = len(counts) * len(COMPARED) * options.seeds
    about = options.about() | {
        "sessions": given.name if given else DRAWN,
        "counts": list(counts),
        "horizon_s": horizon,
        "warm_up_s": warm_up,
        "took_s": round(time.perf_counter() - begun, 1),
    }
    return {"about": about, "rows": found[:several], "ablation": found[several:]}


def _row(
    given: Path | None,
    setting: Setting,
    count: int,
    seed: int,
    horizon_s: float,
    warm_up_s: float,
) -> Report:
    threads = agent_sessions(given) if given else drawn_sessions()
    return row(threads, setting, count, seed, horizon_s, warm_up_s)


def row(
    threads: Sequence[AgentThread],
    setting: Setting,
    count: int,
    seed: int,
    horizon_s: float,
    warm_up_s: float,
) -> Report:
    """One replay: what is counted, and means over it."""
    fleet = replace(
        AGENTS_AT_SCALE,
        routing=setting.routing,
        routing_options=setting.options,
        eviction=setting.eviction,
    )
    future = Future() if setting.clairvoyant else None
    timing = {"seed": seed, "horizon_s": horizon_s, "warm_up_s": warm_up_s}
    if future is None:
        found = replay_sessions(threads, count, fleet, **timing, tells=setting.tells)
    else:
        fleet = replace(fleet, eviction=BELADY, eviction_options={"future": future})
        with register("eviction", BELADY, Clairvoyant):
            found = replay_sessions(threads, count, fleet, **timing, reads=future.reads)
    served, sessions = found.served_well
    return {
        "sessions": count,
        "policy": setting.name,
        "seed": seed,
        "requests": len(found.calls),
        "ttft_mean_s": found.mean("ttft_s"),
        "ttft_p99_s": found.percentile("ttft_s", 99),
        "mean_s": found.mean("latency_s"),
        "hit_ratio": found.hit_ratio,
        "held_per_instance": round(count * served / max(1, sessions) / fleet.instances, 3),
    }
