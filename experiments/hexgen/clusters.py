"""The two clusters of the paper, as profiles: three kinds of instances, whose speeds differ
threefold.

Times are fitted to the seconds that the authors' code tells of single calls of Llama-3.1-70B on
eight GPUs (prompt: seconds a token; decoding: seconds a step). Servers compute prompts in chunks,
2,048 tokens a step, and keep no prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Final

from experiments.hexgen.recorded import Call, RecordedQuery
from teola.cost import StepTime
from teola.policies.routing.call_seconds import call_s
from teola.profile import EngineProfile, Profile

BUDGET: Final = 2048
SEQUENCES: Final = 256
BLOCK: Final = 16
KINDS: Final = {
    "A100": EngineProfile(step=StepTime(0.022, per_token_s=0.245e-3), kv_blocks=1_200_000 // BLOCK),
    "L40": EngineProfile(step=StepTime(0.041, per_token_s=0.38e-3), kv_blocks=600_000 // BLOCK),
    "A6000": EngineProfile(step=StepTime(0.037, per_token_s=0.75e-3), kv_blocks=600_000 // BLOCK),
}
CLUSTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "hetero1": ("A100", "A100", "A6000", "A6000"),
    "hetero2": ("A100", "A100", "L40", "A6000"),
}


def profile_of(cluster: str, budget: int = BUDGET) -> Profile:
    """A cluster as one engine with a pool."""
    pool = tuple(
        replace(KINDS[kind], max_batch=budget, max_sequences=SEQUENCES, block_tokens=BLOCK)
        for kind in CLUSTERS[cluster]
    )
    mean = StepTime(
        fmean(one.step.base_s for one in pool),
        per_token_s=fmean(one.step.per_token_s for one in pool),
    )
    llm = replace(pool[0], step=mean, pool=pool, instances=len(pool), source="declared")
    functions = EngineProfile(max_batch=1, concurrency=1024)
    return Profile(cluster, {"llm": llm, "python": functions})


def base_s(query: RecordedQuery, profile: Profile) -> float:
    """The critical path of a query, each call at its mean over the instances."""
    return sum(max(mean_s(call, profile) for call in stage) for stage in query.stages)


def mean_s(call: Call, profile: Profile) -> float:
    """Seconds of a call, the mean over the instances."""
    pool = profile.engines["llm"].pool
    return fmean(call_s(one, call.prompt, call.answer) for one in pool)
