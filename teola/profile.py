"""Latency profiles: how long each op of an engine takes, and how far batching pays.

A profile is data (JSON, versioned). Passes read from it the maximum efficient batch size and
whether a prefix computed ahead is worth anything; policies, `explain` and the simulator read
times. `paper("13b")` is the testbed of the paper, fixed in specs (sections 1, 7 and 8 of the
paper; derived and assumed values are marked in docs/benchmarks.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from teola.engine import EngineKind, EngineSpec
from teola.errors import InputError, UnknownName
from teola.graph.ops import PREFILLS, Op

FORMAT_VERSION: Final = 1
GAIN_THRESHOLD: Final = 0.05
"""Doubling a batch must raise throughput by this fraction to be worth it (paper, section 7.1)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds for a batch: base + per_item x items + per_token x tokens.

    item_tokens: tokens of a typical item, for questions about batch sizes alone. sigma: the time is
    the median of a lognormal distribution of this shape (0: constant).
    """

    base_s: float = 0.0
    per_item_s: float = 0.0
    per_token_s: float = 0.0
    item_tokens: int = 0
    sigma: float = 0.0

    def seconds(self, items: float, tokens: float) -> float:
        """Time of one batch of `items` with `tokens` tokens in all."""
        return self.base_s + self.per_item_s * items + self.per_token_s * tokens

    def max_efficient(self, limit: int) -> int:
        """The batch size past which throughput gains less than 5 % by doubling, at most `limit`.

        `limit` where no time is known.
        """
        if self.seconds(1, self.item_tokens) <= 0:
            return limit
        size = 1
        while size * 2 <= limit:
            now = size / self.seconds(size, size * self.item_tokens)
            then = 2 * size / self.seconds(2 * size, 2 * size * self.item_tokens)
            if then < now * (1 + GAIN_THRESHOLD):
                break
            size *= 2
        return size


@dataclass(frozen=True)
class EngineProfile:
    """One engine: costs by op, `decode_step` per step of b sequences, and its limits.

    max_batch: items (an LLM: prefill tokens) of one batch. max_efficient: where it is known without
    a cost, else it is derived. instances: how many the profile assumes. pool: profiles of unequal
    instances, in order; those that it does not reach are as the engine.
    """

    costs: Mapping[Op, Cost] = field(default_factory=dict)
    decode_step: Cost = Cost()
    max_batch: int = 64
    max_sequences: int = 1024
    concurrency: int = 1
    instances: int = 1
    prefix_reuse: bool = False
    block_tokens: int = 16
    kv_blocks: int | None = None
    max_efficient: int | None = None
    pool: tuple[EngineProfile, ...] = ()

    def of(self, instance: int) -> EngineProfile:
        """The profile of one instance."""
        return self.pool[instance] if instance < len(self.pool) else self

    def cost(self, op: Op) -> Cost:
        """Cost of `op`; the three prefillings share one entry, free if nothing is known."""
        if op in PREFILLS:
            op = Op.PREFILLING
        return self.costs.get(op, Cost())

    def max_efficient_batch(self, op: Op) -> int:
        """Items of `op` past which a larger batch hardly raises throughput."""
        if self.max_efficient is not None:
            return self.max_efficient
        return self.cost(op).max_efficient(self.max_batch)

    def seconds(self, op: Op, items: int, tokens: int, out_tokens: int = 0) -> float:
        """Time that a primitive takes alone on the engine; more than one batch if it must.

        out_tokens: length of what a decoding generates; the first token comes from prefilling.
        """
        if op is Op.DECODING or op is Op.PARTIAL_DECODING:
            return max(0, out_tokens) * self.decode_step.seconds(1, 0)
        cost = self.cost(op)
        if op in PREFILLS or items <= self.max_batch:
            return cost.seconds(items, tokens)
        batches = -(-items // self.max_batch)
        return batches * cost.base_s + cost.per_item_s * items + cost.per_token_s * tokens


@dataclass(frozen=True)
class Profile:
    """Engine profiles by name, with fall-back to the kind ("llm", "embedding", ...).

    dispatch_s: time from a command to an engine and back, besides the work itself.
    """

    name: str
    engines: Mapping[str, EngineProfile]
    dispatch_s: float = 0.0
    structure: bool = True
    """Whether it decides batch limits and prefix reuse too, or only times (see `for_engines`)."""

    def engine(self, name: str, kind: EngineKind | None = None) -> EngineProfile:
        """Profile of engine `name`, else of its kind, else one that knows nothing."""
        found = self.engines.get(name)
        if found is None and kind is not None:
            found = self.engines.get(kind.value)
        return found or EngineProfile()

    def for_engines(self, specs: Iterable[EngineSpec]) -> Profile:
        """This profile with one entry for each engine by name.

        If the profile is not about structure, limits and prefix reuse come from the specs.
        """
        engines = {}
        for spec in specs:
            entry = self.engine(spec.name, spec.kind)
            if not self.structure or not (
                spec.name in self.engines or spec.kind.value in self.engines
            ):
                entry = replace(
                    entry,
                    max_batch=spec.max_batch,
                    max_sequences=spec.max_sequences,
                    concurrency=spec.concurrency,
                    prefix_reuse=spec.prefix_reuse,
                    block_tokens=spec.block_tokens,
                    max_efficient=spec.max_batch,
                )
            engines[spec.name] = entry
        return replace(self, engines=engines)


def _llm(prefill: Cost, step: Cost) -> EngineProfile:
    return EngineProfile(
        costs={Op.PREFILLING: prefill},
        decode_step=step,
        max_batch=1024,
        max_sequences=32,
        instances=2,
        prefix_reuse=True,
    )


@cache
def paper(size: str = "13b") -> Profile:
    """The paper's testbed for an LLM of `size` ("7b", "13b", "30b"); names: paper-7b, ...

    Raises UnknownName for another size. More engine names serve applications with several LLMs:
    `llm-7b`, `llm-13b`, and `proxy` and `judge`, the search agent's, which are 7B models.
    """
    thirteen = Cost(base_s=0.20, per_token_s=0.30 / 512, item_tokens=512)
    seven = Cost(base_s=0.18, per_token_s=0.27 / 512, item_tokens=512)
    thirty = Cost(base_s=0.12, per_token_s=0.17 / 512, item_tokens=512)
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


NAMED: Final = ("paper-7b", "paper-13b", "paper-30b")


def load(name: str) -> Profile:
    """A profile by name (`paper-13b`) or from a JSON file. Raises InputError."""
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
    del entry["pool"]
    entry["costs"] = {op.value: asdict(cost) for op, cost in engine.costs.items()}
    return {**entry, "pool": [_written(one) for one in engine.pool]} if engine.pool else entry


def from_json(data: Mapping[str, Any], where: str = "profile") -> Profile:
    """Read what `to_json` wrote. Raises InputError for another version or malformed data."""
    if not isinstance(data, Mapping) or data.get("version") != FORMAT_VERSION:
        raise InputError(f"{where}: expected a profile of version {FORMAT_VERSION}; make a new one")
    try:
        engines = {name: _read(entry) for name, entry in data["engines"].items()}
        return Profile(str(data["name"]), engines, float(data.get("dispatch_s", 0.0)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where}: malformed profile ({error})") from None


def _read(entry: Mapping[str, Any]) -> EngineProfile:
    costs = {Op(op): Cost(**cost) for op, cost in entry.get("costs", {}).items()}
    step = Cost(**entry.get("decode_step", {}))
    pool = tuple(_read(one) for one in entry.get("pool", ()))
    rest = {k: v for k, v in entry.items() if k not in ("costs", "decode_step", "pool")}
    return EngineProfile(costs=costs, decode_step=step, pool=pool, **rest)


def default(specs: Iterable[EngineSpec]) -> Profile:
    """Limits and prefix reuse as the engines declare them, with the paper's times for estimates."""
    return replace(paper("13b"), structure=False).for_engines(specs)
