"""What is routed: Preble's workloads and traces, from half of what instances sustain on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from experiments.common import datasets
from experiments.replay.calls import Recording, TracedCall
from experiments.replay.replay import LLM, Fleet, ReplayResult, replay
from experiments.replay.synthetic import PREBLE
from experiments.replay.traces import azure, mooncake, public
from experiments.routing.oracle import OraclePartition
from teola.errors import InputError
from teola.profile import load_profile
from teola.registering import register
from teola.runtime.values import Composite

MOONCAKE: Final = "mooncake-conversation"
AZURE: Final = "azure-arrivals"
FILES: Final = {
    MOONCAKE: datasets.TRACES["mooncake"],
    AZURE: datasets.TRACES["azure-conv"],
}
"""What the workloads that are no Preble's need of the folder with data."""
FACTORS: Final = (0.5, 0.8, 1.1)
"""Of saturation."""
CALIBRATING: Final = "marginal_cost"
CALIBRATED: Final = 1000
"""The seed by which saturation is found; no report begins so high."""
SERVED: Final = (0.1, 0.9)
"""Between these parts of the answers throughput is measured, when all calls come at once."""
AT_ONCE: Final = 1e6
"""Times as fast as one call a second."""
ORACLE: Final = "oracle_partition"
AZURE_MIX: Final = ("toolbench", "video-questions")
"""Preble's: a mix of two workloads, with the arrivals of a service."""
ANOTHER: Final = 1 << 40
Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Routing:
    """A policy as it is compared. name: what rows call it."""

    name: str
    policy: str
    options: Options
    batching: str = "fifo"


PER_REQUEST: Final = {"shifts": False, "prefill_decode": False}
ABLATION: Final = (
    Routing(ORACLE, ORACLE, {}),
    Routing("e2-per-request", "e2", PER_REQUEST),
    Routing("e2-shifts", "e2", {"prefill_decode": False}),
    Routing("e2", "e2", {}),
    Routing("e2-prefix-groups", "e2", {}, "prefix_groups"),
)
"""In the order of the paper, behind round robin."""


@dataclass(frozen=True, slots=True)
class Swept:
    """A workload on so many instances. data: the folder with traces. file: one to replay instead,
    by its own arrivals."""

    workload: str
    instances: int
    count: int
    data: Path | None = None
    profile: str | None = None
    file: Path | None = None

    @property
    def name(self) -> str:
        """What rows call it."""
        return f"{self.workload}/{self.instances}"

    def fleet(self, routing: Routing) -> Fleet:
        fleet = replace(
            Fleet(),
            instances=self.instances,
            batching=routing.batching,
            routing=routing.policy,
            routing_options=routing.options,
        )
        return replace(fleet, **_profiled(self.profile)) if self.profile else fleet

    def recording(self, rate: float, seed: int) -> Recording:
        """Its calls at that rate; of a file, its own arrivals that many times as fast."""
        if self.file is not None:
            return read(self.file, seed).first(self.count).faster(rate)
        if self.workload == MOONCAKE:
            made = read(_file(self.data, MOONCAKE), seed).first(self.count)
            return made.faster(rate * made.seconds / len(made.calls))
        if self.workload == AZURE:
            mixed = _mixed(self.count, seed)
            arrivals = read(_file(self.data, AZURE)).calls
            first = seed % 5 * self.count
            times = [call.at for call in arrivals[first : first + len(mixed.calls)]]
            made = mixed.arriving([at - times[0] for at in times])
            return made.faster(rate * made.seconds / len(made.calls))
        return PREBLE[self.workload](self.count, rate=rate, seed=seed)


def _mixed(count: int, seed: int) -> Recording:
    """Calls of two workloads in turn. Texts of the second get numbers that no other has."""
    tools, videos = (PREBLE[name](count // 2, rate=1.0, seed=seed) for name in AZURE_MIX)
    calls: list[TracedCall] = []
    for tool, video in zip(tools.calls, videos.calls, strict=False):
        parts = [part._replace(text=part.text + ANOTHER) for part in video.prompt.excerpts]
        calls += [tool, video._replace(prompt=Composite.made_of(parts))]
    return replace(tools, name=AZURE, calls=tuple(calls))


def played(swept: Swept, recording: Recording, routing: Routing) -> ReplayResult:
    """The workload under the policy."""
    fleet = swept.fleet(routing)
    if routing.policy != ORACLE:
        return replay(recording, fleet)
    profile = fleet.profile(recording.block_tokens).engine(LLM)
    knows = partial(OraclePartition, recording.calls, profile, fleet.instances)
    with register("routing", ORACLE, knows):
        return replay(recording, fleet)


def saturation(swept: Swept) -> float:
    """Calls a second that are answered when they come much faster than that."""
    routing = Routing(CALIBRATING, CALIBRATING, {})
    return sustained(played(swept, swept.recording(1.0, CALIBRATED).faster(AT_ONCE), routing))


def sustained(found: ReplayResult) -> float:
    """Calls a second that were answered, of many that came at once."""
    ends = sorted(call.at + call.latency_s for call in found.calls)
    first, last = (ends[int(part * (len(ends) - 1))] for part in SERVED)
    return (SERVED[1] - SERVED[0]) * len(ends) / (last - first)


def row(swept: Swept, rate: float, routing: Routing, seed: int) -> dict[str, Any]:
    """What the report has of one replay. Times are seconds, mean_s and p99_s to the last token."""
    found = played(swept, swept.recording(rate, seed), routing)
    calls = found.calls
    if not calls:
        raise InputError(f"{swept.name}: no call was answered; none fits an instance's KV memory")
    per_s = len(calls) / (calls[-1].at - calls[0].at) if len(calls) > 1 else 0.0
    return {
        "workload": swept.name,
        "rate": round(rate if swept.file is None else per_s, 4),
        "policy": routing.name,
        "seed": seed,
        "mean_s": found.mean("latency_s"),
        "p99_s": found.percentile("latency_s", 99),
        "ttft_mean_s": found.mean("ttft_s"),
        "ttft_p99_s": found.percentile("ttft_s", 99),
        "hit_ratio": round(found.hit_ratio, 5),
        "held_per_instance": round(found.served_well[0] / swept.instances, 3),
    }


@lru_cache(8)
def read(path: Path, seed: int = 0) -> Recording:
    """A trace in any of the formats: Azure's (CSV), the public one, else Mooncake's. Raises
    InputError."""
    reader: Callable[[Path], Recording] = partial(mooncake, seed=seed)
    if path.suffix == ".csv":
        reader = azure
    else:
        try:
            with path.open(encoding="utf-8") as file:
                reader = public if '"chat_id"' in file.readline() else reader
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {error}") from None
    return reader(path)


def _file(data: Path | None, workload: str) -> Path:
    if data is None:
        raise InputError(f"workload {workload!r} needs --data, a folder with {FILES[workload]}")
    return data / FILES[workload]


def _profiled(name: str) -> Options:
    """What a profile says of instances. Raises InputError."""
    engine = load_profile(name).engines.get(LLM)
    if engine is None:
        raise InputError(f"profile {name!r} knows no engine called {LLM!r}")
    told: dict[str, Any] = {"step": engine.step, "budget": engine.max_batch}
    told["sequences"] = engine.max_sequences
    if engine.kv_blocks is not None:
        told["kv_tokens"] = engine.kv_blocks * engine.block_tokens
    return told


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By workload, rate and seed; policies as they were given."""
    return sorted(rows, key=itemgetter("workload", "rate", "seed"))
