"""Latency profiles: how long each op of an engine takes, and how far batching pays.

A batch engine has a `Cost` for each op, an LLM the time of a `StepTime`: how long one step of its
continuous batching takes, by what is in it.

A profile is data (JSON, versioned). Passes read from it the maximum efficient batch size and
whether a prefix computed ahead is worth anything, or kept anyway; policies, `explain` and the
simulator read times, in whose place comes what is learned (teola.learning). `paper("13b")` is the
testbed of the paper, fixed in specs (sections 1, 7 and 8 of the paper; derived and assumed values
are marked in docs/benchmarks.md). `published("llama-8b-h100")` has an LLM of today (`PUBLISHED`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from teola.cost import GAIN_THRESHOLD, NO_COST, UNTIMED, Cost, StepTime
from teola.engine import EngineKind, EngineSpec
from teola.errors import InputError, UnknownName
from teola.graph.ops import DECODES, PREFILLS, Op
from teola.habit import UNSEEN, Habit
from teola.published_llms import PUBLISHED

FORMAT_VERSION: Final = 2
"""Version 1, with two costs for an LLM (of a prefill batch, of a decoding step), is read too."""


DIFFER: Final = 1.2
"""Instances of which none takes so many times as long as another are alike."""


def unlike(seconds: Sequence[float]) -> bool:
    """Whether one instance is so much slower than another that work should go by that. seconds: of
    typical work on each (0: not known)."""
    least = min(seconds, default=0.0)
    return least > 0 and max(seconds) > DIFFER * least


def weights_of(profiles: Sequence[EngineProfile]) -> list[float]:
    """What instances are compared by: how slow they are found to be, else seconds of typical
    work."""
    if any(one.slowness is not None for one in profiles):
        return [1.0 if one.slowness is None else one.slowness for one in profiles]
    return [one.typical_s for one in profiles]


@dataclass(frozen=True)
class EngineProfile:
    """One engine: costs by op (an LLM: of a `step`), and its limits.

    max_batch: items of one batch (an LLM: prompt tokens of one step). max_efficient: where it is
    known without a cost, else it is derived. instances: how many the profile assumes. kv_blocks:
    what an LLM's KV memory holds, in blocks of `block_tokens` tokens (None: without bound); host:
    of a tier below, for what is evicted, with what bringing one back takes (its bytes by the link's
    bandwidth) and each step with any (swap). window: of an LLM (None: not known). pool: profiles of
    unequal instances, in order; those that it does not reach are as the engine. slowness: how many
    times as long as on average of its engine an instance takes, where that is known. crowding: how
    much longer its work takes for each other instance, of any engine, that works at the same time,
    because they share processors (0.25: with two others half as long again). source: where the
    times come from, for `explain`.
    """

    costs: Mapping[Op, Cost] = field(default_factory=dict)
    step: StepTime = UNTIMED
    max_batch: int = 64
    max_sequences: int = 1024
    concurrency: int = 1
    instances: int = 1
    prefix_reuse: bool = False
    keeps_prefixes: bool = False
    block_tokens: int = 16
    kv_blocks: int | None = None
    host_blocks: int = 0
    host_block_s: float = 0.0
    host_swap_s: float = 0.0
    window: int | None = None
    max_efficient: int | None = None
    pool: tuple[EngineProfile, ...] = ()
    slowness: float | None = None
    crowding: float = 0.0
    source: str = field(default="", compare=False)

    @property
    def timed(self) -> bool:
        """Whether it knows times at all."""
        return bool(self.costs) or self.step != UNTIMED

    @property
    def typical_s(self) -> float:
        """Seconds that typical work takes alone: a call with a prompt of 512 tokens and an answer
        of 128, or 16 items of each op. 0 where no time is known."""
        if self.step != UNTIMED:
            return self.step.prefill(512) + 128 * self.step.seconds(1, 576)
        return sum(cost.seconds(16, 16 * cost.item_tokens) for cost in self.costs.values())

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that its KV memory holds (None: without bound)."""
        return None if self.kv_blocks is None else self.kv_blocks * self.block_tokens

    def calls_at_once(self, tokens: int) -> int:
        """How many calls of so many tokens each, prompt and answer, one instance of an LLM runs at
        once, at least 1: as its KV memory and its limit allow."""
        if self.kv_blocks is None:
            return self.max_sequences
        blocks = max(1, -(-tokens // self.block_tokens))
        return max(1, min(self.max_sequences, self.kv_blocks // blocks))

    def slowed(self, factor: float, limits: EngineProfile) -> EngineProfile:
        """What an instance with these limits takes that is so much slower than this."""
        costs = {op: cost.times(factor) for op, cost in self.costs.items()}
        step = self.step.times(factor)
        return replace(
            limits, costs=costs, step=step, slowness=factor, crowding=self.crowding,
            source=self.source,
        )  # fmt: skip

    def of(self, instance: int) -> EngineProfile:
        """The profile of one instance."""
        return self.pool[instance] if instance < len(self.pool) else self

    def untimed(self) -> EngineProfile:
        """What such an engine declares, without the times: nobody knows them yet."""
        return replace(
            self,
            costs={},
            step=UNTIMED,
            crowding=0.0,
            max_efficient=self.max_efficient or self.max_batch,
            pool=tuple(one.untimed() for one in self.pool),
            source="not known yet",
        )

    def __post_init__(self) -> None:
        for op in self.costs.keys() & (PREFILLS | DECODES):
            raise ValueError(f"no cost of {op.value}: an LLM's times are those of its step")

    def cost(self, op: Op) -> Cost:
        """Cost of `op`, free if nothing is known; of a prefilling, what is in proportion to its
        tokens and what is not."""
        if op in PREFILLS:
            step = self.step
            return Cost(step.base_s + step.prefill_s, per_token_s=step.per_token_s)
        return self.costs.get(op, NO_COST)

    def max_efficient_batch(self, op: Op) -> int:
        """Items of `op` past which a larger batch hardly raises throughput."""
        if self.max_efficient is not None:
            return self.max_efficient
        return self.cost(op).max_efficient(self.max_batch)

    def seconds(self, op: Op, items: int, tokens: int, out_tokens: int = 0) -> float:
        """Time that a primitive takes alone on the engine; more than one batch if it must.

        out_tokens: length of what a decoding generates; the first token comes from prefilling.
        """
        if op in DECODES:
            return max(0, out_tokens) * self.step.seconds(1)
        if op in PREFILLS:
            return self.step.prefill(tokens)
        cost = self.cost(op)
        if items <= self.max_batch:
            return cost.seconds(items, tokens)
        batches = -(-items // self.max_batch)
        return batches * cost.base_s + cost.per_item_s * items + cost.per_token_s * tokens


@dataclass(frozen=True)
class Profile:
    """Engine profiles by name, with fall-back to the kind ("llm", "embedding", ...).

    dispatch_s: time from a command to an engine and back, besides the work itself. habits: of
    components, by application and component. epoch: how often what was learned had changed by then.
    """

    name: str
    engines: Mapping[str, EngineProfile]
    dispatch_s: float = 0.0
    habits: Mapping[tuple[str, str], Habit] = field(default_factory=dict)
    epoch: int = 0

    def engine(self, name: str, kind: EngineKind | None = None) -> EngineProfile:
        """Profile of engine `name`, else of its kind, else one that knows nothing."""
        found = self.engines.get(name)
        if found is None and kind is not None:
            found = self.engines.get(kind.value)
        return found or EngineProfile()

    def untimed(self) -> Profile:
        """What engines like these declare, without the times: nobody knows them yet."""
        engines = {name: entry.untimed() for name, entry in self.engines.items()}
        return replace(self, engines=engines, dispatch_s=0.0)

    def habit(self, app: str, component: str) -> Habit:
        """What calls of a component turned out to be."""
        return self.habits.get((app, component), UNSEEN)

    def for_engines(self, specs: Iterable[EngineSpec]) -> Profile:
        """This profile with one entry for each engine by name: as the engine declares itself where
        the profile knows nothing of it (or of its window, or its KV memory)."""
        engines = {}
        for spec in specs:
            entry = self.engines.get(spec.name, self.engines.get(spec.kind.value))
            if entry is None:
                entry = declared(spec)
            elif not entry.source:
                entry = replace(entry, source=f"profile {self.name}")
            blocks = entry.kv_blocks
            if blocks is None and spec.kv_blocks is not None:
                blocks = max(1, spec.kv_blocks * spec.block_tokens // entry.block_tokens)
            window = entry.window or spec.window
            engines[spec.name] = replace(entry, window=window, kv_blocks=blocks)
        return replace(self, engines=engines)


def _llm(prefill: Cost, step: Cost) -> EngineProfile:
    """An LLM of the paper's. kv_blocks: room for all its sequences, of 2,048 tokens each."""
    return EngineProfile(
        step=StepTime.of(prefill, step),
        max_batch=1024,
        max_sequences=32,
        kv_blocks=32 * 2048 // 16,
        instances=2,
        prefix_reuse=True,
        keeps_prefixes=True,
    )


@cache
def paper(size: str = "13b") -> Profile:
    """The paper's testbed for an LLM of `size` ("7b", "13b", "30b"); names: paper-7b, ...

    Raises UnknownName for another size. More engine names serve applications with several LLMs:
    `llm-7b`, `llm-13b`, and `proxy` and `judge`, the search agent's, which are 7B models.
    """
    thirteen = Cost(base_s=0.20, per_token_s=0.30 / 512)
    seven = Cost(base_s=0.18, per_token_s=0.27 / 512)
    thirty = Cost(base_s=0.12, per_token_s=0.17 / 512)
    llms = {
        "7b": _llm(seven, Cost(base_s=0.018, per_item_s=0.00015)),
        "13b": _llm(thirteen, Cost(base_s=0.0215, per_item_s=0.0002)),
        "30b": _llm(thirty, Cost(base_s=0.0246, per_item_s=0.0002)),
    }
    if size not in llms:
        raise UnknownName("LLM size", size, llms, "profile 'paper'")
    embed = Cost(base_s=0.05, per_token_s=0.025 / 256, item_tokens=256)
    engines = {
        "llm": llms[size],
        "llm-7b": llms["7b"],
        "llm-13b": llms["13b"],
        "proxy": llms["7b"],
        "judge": llms["7b"],
        "embedding": EngineProfile(costs={Op.EMBEDDING: embed}, max_batch=32),
        "rerank": EngineProfile(
            costs={Op.RERANKING: Cost(base_s=0.05, per_item_s=0.028)}, max_batch=32
        ),
        "vectorstore": EngineProfile(
            costs={
                Op.INGESTION: Cost(base_s=0.002, per_item_s=0.0001),
                Op.SEARCHING: Cost(per_item_s=0.003),
            },
            max_batch=256,
        ),
        "websearch": EngineProfile(
            costs={Op.WEB_SEARCH: Cost(base_s=0.45, sigma=0.3)}, max_batch=1, concurrency=64
        ),
        "tool": EngineProfile(max_batch=1, concurrency=64),
    }
    return Profile(f"paper-{size}", engines, dispatch_s=0.0007)


@cache
def published(name: str) -> Profile:
    """An LLM on a machine of today, whose step was fitted to published runs; everything else as in
    the paper's testbed. Raises UnknownName for one that PUBLISHED has not."""
    if name not in PUBLISHED:
        raise UnknownName("published LLM", name, PUBLISHED)
    known = PUBLISHED[name]
    llm = EngineProfile(
        step=known.step,
        max_batch=known.token_budget,
        max_sequences=known.sequences,
        prefix_reuse=True,
        keeps_prefixes=True,
        kv_blocks=known.kv_tokens and known.kv_tokens // 16,
        source=known.source,
    )
    others = {key: one for key, one in paper().engines.items() if one.costs}
    return Profile(name, {"llm": llm, **others})


NAMED: Final = ("paper-7b", "paper-13b", "paper-30b", *PUBLISHED)


def load_profile(name: str) -> Profile:
    """A profile by name (`paper-13b`, `llama-8b-h100`) or from a JSON file. Raises InputError."""
    if name in PUBLISHED:
        return published(name)
    if name in NAMED:
        return paper(name.removeprefix("paper-"))
    path = Path(name)
    if not path.is_file():
        raise UnknownName("profile", name, [*NAMED, "a JSON file"])
    try:
        data = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise InputError(f"profile {name!r} is no JSON file: {error}") from None
    return from_json(data, name)


def to_json(profile: Profile) -> dict[str, Any]:
    """The profile as JSON values; `from_json` reads it back."""
    return {
        "version": FORMAT_VERSION,
        "name": profile.name,
        "dispatch_s": profile.dispatch_s,
        "engines": {name: _written(engine) for name, engine in profile.engines.items()},
    }


def _written(engine: EngineProfile) -> dict[str, Any]:
    entry = asdict(replace(engine, pool=()))
    del entry["pool"], entry["source"], entry["slowness"]
    entry["costs"] = {op.value: asdict(cost) for op, cost in engine.costs.items()}
    return {**entry, "pool": [_written(one) for one in engine.pool]} if engine.pool else entry


def from_json(data: Mapping[str, Any], where: str = "profile") -> Profile:
    """Read what `to_json` wrote, now or in version 1. Raises InputError for another version or
    malformed data."""
    version = data.get("version") if isinstance(data, Mapping) else None
    if version not in (1, FORMAT_VERSION):
        raise InputError(f"{where}: expected a profile of version {FORMAT_VERSION}; make a new one")
    try:
        engines = {name: _read(entry, version) for name, entry in data["engines"].items()}
        return Profile(str(data["name"]), engines, float(data.get("dispatch_s", 0.0)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: malformed profile ({error})") from None


def _read(entry: Mapping[str, Any], version: int) -> EngineProfile:
    costs = {Op(op): Cost(**cost) for op, cost in entry.get("costs", {}).items()}
    if version == 1:
        decode = Cost(**entry.get("decode_step", {}))
        step = StepTime.of(costs.pop(Op.PREFILLING, Cost()), decode)
    else:
        step = StepTime(**entry.get("step", {}))
    pool = tuple(_read(one, version) for one in entry.get("pool", ()))
    apart = ("costs", "decode_step" if version == 1 else "step", "pool")
    rest = {key: value for key, value in entry.items() if key not in apart}
    # Profiles of earlier versions do not tell: the engines that they are of kept what they reused.
    rest.setdefault("keeps_prefixes", rest.get("prefix_reuse", False))
    return EngineProfile(costs=costs, step=step, pool=pool, **rest)


def declared(spec: EngineSpec) -> EngineProfile:
    """Limits and prefix reuse as an engine declares them; no times."""
    return EngineProfile(
        max_batch=spec.max_batch,
        max_sequences=spec.max_sequences,
        concurrency=spec.concurrency,
        prefix_reuse=spec.prefix_reuse,
        keeps_prefixes=spec.keeps_prefixes,
        block_tokens=spec.block_tokens,
        kv_blocks=spec.kv_blocks,
        window=spec.window,
        max_efficient=spec.max_batch,
        source="not known yet",
    )


def default(specs: Iterable[EngineSpec]) -> Profile:
    """What the engines declare: nobody knows their times until they have worked."""
    return Profile("declared", {}).for_engines(specs)


__all__ = [
    "FORMAT_VERSION",
    "GAIN_THRESHOLD",
    "NAMED",
    "NO_COST",
    "PUBLISHED",
    "Cost",
    "EngineProfile",
    "Profile",
    "StepTime",
    "declared",
    "default",
    "from_json",
    "load_profile",
    "paper",
    "published",
    "to_json",
]
