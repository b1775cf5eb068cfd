"""Runs every workload under every policy on the servers, and in the simulator.

A run is predicted by what the runs of the other policies with the same seed have taught: nothing
of its own, and nothing of a time at which the machine had other things to do. Policies take turns,
in another order with each seed, so that a disturbance does not always meet the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any, Final

from rich.progress import Progress

from experiments.common.command import Options, Report
from experiments.live_routing import live, pair, simulated
from experiments.live_routing.live import Known, Routed
from experiments.live_routing.pair import Pair
from experiments.live_routing.workload import ANSWER_TOKENS, GROUPS, ZIPF, asked, recording
from experiments.replay.calls import Recording
from experiments.replay.replay import Fleet
from experiments.routing.sweep import CALIBRATED
from teola.errors import UnknownName
from teola.policies.routing import ROUTING
from teola.runtime import machine

POLICIES: Final = ("round_robin", "least_loaded", "sglang", "e2", "graph_aware")
TAUGHT: Final = 2000
"""The seed of the calls that teach; no report begins so high."""
TEACHING: Final = (100, 40)
"""How many they are, and with --quick."""
TOLD: Final = {"hit_tokens": "simulated_hit_tokens", "mean_s": "simulated_mean_s"}
"""What the simulator predicts, and what it calls it."""
Row = Mapping[str, Any]


def measure(options: Options, progress: Progress) -> Report:
    """rows: of each policy and seed. profile: what policies were told of each server at first.
    learned: what each run has taught, in the order in which they were made."""
    given, policies = options.given, chosen(options.given.policies)
    seeds = range(options.seed, options.seed + options.seeds)
    task = progress.add_task("", total=pair.COUNT + 1 + len(seeds) * len(policies))

    def told(what: str) -> None:
        progress.update(task, description=what, advance=1)

    idle = machine.describe()
    runs: list[tuple[str, int, Routed]] = []
    with pair.running(given.python, given.model, told) as servers:
        told("learning")
        known, calls = _known(servers, [*seeds, CALIBRATED], options)
        fleet = simulated.fleet(known.spec, known.learned)
        rate = simulated.rate(calls[CALIBRATED], fleet, given.load)
        profile = fleet.profile(known.spec.block_tokens)
        for turn, seed in enumerate(seeds):
            coming = asked(options.queries, rate, seed)
            for policy in turned(policies, turn):
                told(f"{policy}, seed {seed}")
                runs.append((policy, seed, live.routed(servers, policy, profile, coming)))
    rows = []
    for policy, seed, run in sorted(runs, key=lambda run: (run[1], policies.index(run[0]))):
        others = [other.learned for name, turn, other in runs if turn == seed and name != policy]
        step, crowding = simulated.mean_of(others or [known.learned])
        like = replace(fleet, step=step, crowding=crowding)
        predicted = simulated.predicted(calls[seed].faster(rate), like, policy)
        rows.append({"policy": policy, "seed": seed, **run.row(), **predicted})
    about = {**options.about(), "load": given.load, "rate": round(rate, 4), "seeds": len(seeds)}
    about |= {"groups": GROUPS, "zipf": ZIPF, "answer_tokens": ANSWER_TOKENS}
    return {
        "rows": rows,
        "worst_error": {name: worst(rows, name) for name in TOLD},
        "profile": _written(fleet),
        "learned": [
            {
                "policy": policy,
                "seed": seed,
                "others": round(run.others, 2),
                "crowding": run.learned.crowding,
                **asdict(run.learned.step),
            }
            for policy, seed, run in runs
        ],
        "about": {key: value for key, value in about.items() if key != "lengths"},
        "machine": {**machine.describe(), "load_before": idle["load_1min"]},
    }


def chosen(given: str | None) -> tuple[str, ...]:
    """Policies by their names. Raises UnknownName."""
    names = POLICIES if given is None else tuple(name.strip() for name in given.split(","))
    for name in names:
        if name not in ROUTING:
            raise UnknownName("routing policy", name, ROUTING)
    return tuple(dict.fromkeys(names))


def turned(policies: Sequence[str], turn: int) -> list[str]:
    """The policies, beginning with another one each turn."""
    first = turn % len(policies)
    return [*policies[first:], *policies[:first]]


def _known(
    servers: Pair, seeds: Sequence[int], options: Options
) -> tuple[Known, Mapping[int, Recording]]:
    """What is learned of the servers, and the workloads of these seeds, at one call a second."""
    teaching = asked(TEACHING[options.quick], 1.0, TAUGHT)
    coming = {seed: asked(options.queries, 1.0, seed) for seed in seeds}
    known = live.known(servers, teaching, [*coming.values()])
    block_tokens = known.spec.block_tokens
    return known, {
        seed: recording(calls, sizes, block_tokens)
        for (seed, calls), sizes in zip(coming.items(), known.sizes, strict=True)
    }


def _written(fleet: Fleet) -> dict[str, Any]:
    """What the simulator was told of each server."""
    return {
        "step": asdict(fleet.step),
        "crowding": fleet.crowding,
        "kv_tokens": fleet.kv_tokens,
        "sequences": fleet.sequences,
        "step_tokens": fleet.budget,
        "block_tokens": fleet.block_tokens,
    }


# --- what is compared -----------------------------------------------------------------------


def error(row: Row, name: str) -> float:
    """How far the simulator's figure is from the measured one, which it is a fraction of."""
    return float(row[TOLD[name]] / row[name] - 1) if row[name] else 0.0


def worst(rows: Sequence[Row], name: str) -> float:
    """Of all rows, either way."""
    return round(max(abs(error(row, name)) for row in rows), 4)


def means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """By policy, the quickest first: each figure's mean over the seeds."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["policy"], []).append(row)
    figures = [name for name in rows[0] if name not in ("policy", "seed")]
    together = [
        {"policy": policy, **{name: fmean(row[name] for row in some) for name in figures}}
        for policy, some in found.items()
    ]
    return sorted(together, key=lambda one: one["mean_s"])
