"""Planned sizes and times of a graph under a profile, before anything has run.

Sizes are plans: literal text at four characters a token, chunks at 256 tokens, questions and
answers as long as those of the paper's workloads (section 7.1). What really flows is measured at
run time; these numbers serve passes and `explain` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final
from weakref import WeakKeyDictionary

from teola.graph import (
    QUERY,
    ConditionParams,
    DecodeParams,
    Graph,
    GrowParams,
    Op,
    Part,
    Primitive,
    Prompt,
    Ref,
    Role,
)
from teola.graph.ops import CONTROL, DECODES, PREFILLS, has_effect
from teola.profile import EngineProfile, Profile

CHUNK_TOKENS: Final = 256
ROLE_TOKENS: Final = {
    Role.INSTRUCTION: 64,
    Role.QUESTION: 16,
    Role.CONTEXT: CHUNK_TOKENS,
    Role.ANSWER: 16,
    Role.HISTORY: 1024,
}
ANSWER_TOKENS: Final = 16
ITEM_TOKENS: Final = 17


def part_tokens(graph: Graph, part: Part) -> int:
    """Planned tokens of one prompt part."""
    if isinstance(part.content, str):
        return len(part.content) // 4 + 1
    if part.role is Role.CONTEXT:
        return CHUNK_TOKENS * _length(graph, part.content)
    return ROLE_TOKENS[part.role]


def _length(graph: Graph, ref: Ref) -> int:
    """Planned number of items behind `ref`; 1 for a single value."""
    if ref.items is not None and ref.items[1] is not None:
        return ref.items[1] - ref.items[0]
    if ref.producer == QUERY:
        return 1
    producer = graph[ref.producer]
    k = getattr(producer.params, "k", None)
    return k or producer.items


def planned_tokens(graph: Graph, p: Primitive) -> int:
    """Planned input tokens of a primitive (0 where its engine does not count tokens)."""
    if p.op in PREFILLS:
        prompt = p.input("prompt")
        assert isinstance(prompt, Prompt)
        return sum(part_tokens(graph, part) for part in prompt.parts)
    if p.op is Op.EMBEDDING:
        from_query = any(r.producer == QUERY and r.port == "chunks" for r in p.refs())
        return p.items * (CHUNK_TOKENS if from_query else ITEM_TOKENS)
    return 0


def kept_tokens(graph: Graph, p: Primitive, engine: EngineProfile) -> int:
    """How many of them a prefilling need not compute: the text that its prompt begins with, equal
    in every query, in whole blocks; 0 where the engine keeps no prefixes."""
    if p.op not in PREFILLS or not engine.keeps_prefixes or "sequence" in dict(p.inputs):
        return 0
    prompt = p.input("prompt")
    assert isinstance(prompt, Prompt)
    literal = takewhile(lambda part: isinstance(part.content, str), prompt.parts)
    tokens = sum(part_tokens(graph, part) for part in literal)
    return tokens // engine.block_tokens * engine.block_tokens


def planned_output(p: Primitive) -> int:
    """Planned tokens that a decoding generates (the first one comes from its prefilling)."""
    params = p.params
    if not isinstance(params, DecodeParams):
        return 0
    if params.item is not None:
        return ITEM_TOKENS
    if params.items is not None:
        return ITEM_TOKENS * params.items
    return min(ANSWER_TOKENS, params.max_tokens)


def call_tokens(graph: Graph, p: Primitive) -> int:
    """Planned tokens that an LLM holds for a call when it ends: of the prompt of prefilling `p`,
    with those that it continues, and of the answer."""
    found = sum(planned_output(graph[id]) for id in graph.children[p.id])
    while True:
        found += planned_tokens(graph, p)
        before = next((value for name, value in p.inputs if name == "sequence"), None)
        if not isinstance(before, Ref):
            return found
        p = graph[before.producer]


def seconds(graph: Graph, p: Primitive, profile: Profile) -> float:
    """Estimated execution time of a primitive alone on its engine; of one that grows, from its
    beginning to the end of its last part."""
    if p.op is Op.GROW:
        return growth(graph, p, profile).length_s
    if p.op in CONTROL:
        return 0.0
    engine, habit = profile.engine(p.engine), profile.habit(graph.name, p.component)
    if p.op in DECODES:
        return engine.seconds(p.op, p.items, 0, round(planned_output(p) * habit.output))
    if p.op is Op.TOOL_CALL and habit.seconds is not None:
        return habit.seconds
    tokens = planned_tokens(graph, p)
    if p.op in PREFILLS:
        kept = float(kept_tokens(graph, p, engine))
        if habit.calls and "sequence" not in dict(p.inputs):  # what it continues is not in it
            kept = habit.cached
        tokens = max(1, round(tokens * habit.prompt - kept))
    return profile.dispatch_s + engine.seconds(p.op, p.items, tokens)


def item_s(graph: Graph, p: Primitive, profile: Profile) -> float:
    """By how much each of its items makes a batch longer (0 of LLM calls, which share steps)."""
    if p.op in CONTROL or p.op in PREFILLS or p.op in DECODES:
        return 0.0
    cost = profile.engine(p.engine).cost(p.op)
    return cost.per_item_s + cost.per_token_s * planned_tokens(graph, p) / max(1, p.items)


def total(graph: Graph, profile: Profile) -> float:
    """Seconds of all primitives one after another, with those of the parts that they are expected
    to grow, and without branches that are not expected."""
    return sum(weight(graph, p, profile) for p in graph.primitives if expected(graph, p, profile))


def weight(graph: Graph, p: Primitive, profile: Profile) -> float:
    """Seconds of a primitive, or of all primitives of its parts one after another."""
    if p.op is Op.GROW:
        return growth(graph, p, profile).total_s
    return seconds(graph, p, profile)


def timed(graph: Graph, profile: Profile) -> bool:
    """Whether the times of all engines are known that the graph is expected to need, its parts
    included. (A function counts as nothing until it was seen.)"""
    return all(_timed(graph, p, profile) for p in graph.primitives if expected(graph, p, profile))


def _timed(graph: Graph, p: Primitive, profile: Profile) -> bool:
    if type(p.params) is GrowParams:
        return _part(graph, p.params, profile).timed
    return p.op in CONTROL or p.op is Op.TOOL_CALL or profile.engine(p.engine).timed


# --- what grows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GrowthEstimate:
    """What a primitive that grows is expected to become.

    times: parts (turns of a Loop, items of an Each). part_s: seconds of one, along its longest
    path; part_total_s: of all its primitives one after another. beside: parts side by side.
    """

    times: float = 0.0
    part_s: float = 0.0
    part_total_s: float = 0.0
    beside: int = 1

    @property
    def length_s(self) -> float:
        """Seconds until the last part has ended."""
        return self.in_turn_s(self.times)

    @property
    def total_s(self) -> float:
        """Seconds of all primitives of all parts, one after another."""
        return self.times * self.part_total_s

    def in_turn_s(self, times: float) -> float:
        """Seconds that so many parts take, as many at once as there may be."""
        return self.part_s * (times / self.beside if times > self.beside else min(1.0, times))


@dataclass(frozen=True, slots=True)
class _Part:
    """One part. timed: the times are known of what it needs. room: parts that its engines can run
    at once."""

    part_s: float
    total_s: float
    room: int
    timed: bool


_PARTS: Final[WeakKeyDictionary[Any, tuple[Profile, str, _Part]]] = WeakKeyDictionary()
"""Of each template what was estimated last: passes ask for one profile again and again."""


def growth(graph: Graph, p: Primitive, profile: Profile) -> GrowthEstimate:
    """What primitive `p` is expected to grow: as many parts as runs of it had until now, on
    average; before there are any, as its author expects, or as its list is planned to have."""
    params = p.params
    assert isinstance(params, GrowParams)
    repeated, part = params.grower.repeated, _part(graph, params, profile)
    times = profile.habit(graph.name, p.component).turns_after(0)
    if times is None:
        times = float(p.items if repeated.times is None else repeated.times)
    beside = min(repeated.at_once, part.room)
    return GrowthEstimate(times, part.part_s, part.total_s, beside)


def _part(graph: Graph, params: GrowParams, profile: Profile) -> _Part:
    grower = params.grower
    body = grower.bodies[grower.repeated.body]
    last = _PARTS.get(body)
    if last is not None and last[0] is profile and last[1] == graph.name:
        return last[2]
    inner = body.planned(graph.name)
    made = _Part(
        _longest(inner, profile),
        total(inner, profile),
        _room(inner, profile),
        timed(inner, profile),
    )
    _PARTS[body] = (profile, graph.name, made)
    return made


def _longest(graph: Graph, profile: Profile) -> float:
    """Seconds of the longest path: a part is small, and its engines are others', too."""
    ends: dict[str, float] = {}
    for id in graph.order:
        p = graph[id]
        taken_s = seconds(graph, p, profile) if expected(graph, p, profile) else 0.0
        ends[id] = max((ends[q] for q in graph.parents[id]), default=0.0) + taken_s
    return max(ends.values(), default=0.0)


def _room(graph: Graph, profile: Profile) -> int:
    """How many parts like this its engines can run at once, at least 1."""
    rooms = []
    for p in graph.primitives:
        if p.op in CONTROL or p.op in DECODES:
            continue
        engine = profile.engine(p.engine)
        if p.op in PREFILLS:
            shared = engine.calls_at_once(call_tokens(graph, p))
        else:
            shared = engine.concurrency * max(1, engine.max_batch // max(1, p.items))
        rooms.append(engine.instances * shared)
    return max(1, min(rooms, default=1))


def expected(graph: Graph, p: Primitive, profile: Profile | None = None) -> bool:
    """Whether `p` runs if every condition takes the branch that it is expected to take: by the
    developer's word, or as it mostly does."""
    return all(g.branch == _likeliest(graph, g.condition, profile) for g in p.guards)


def taken_share(graph: Graph, p: Primitive, profile: Profile | None = None) -> float:
    """How often `p` runs: the part of the decisions that led to it. A condition that has not
    decided yet takes the branch that is expected."""
    found = 1.0
    for guard in p.guards:
        seen = _seen(graph, guard.condition, profile)
        if decided := sum(seen.values()):
            found *= seen.get(guard.branch, 0) / decided
        elif guard.branch != _likeliest(graph, guard.condition, profile):
            return 0.0
    return found


def _likeliest(graph: Graph, condition: str, profile: Profile | None) -> str:
    params = graph[condition].params
    assert isinstance(params, ConditionParams)
    seen = _seen(graph, condition, profile)
    return max(params.branches, key=lambda b: (seen.get(b, 0) + (b == params.prefer), b))


def _seen(graph: Graph, condition: str, profile: Profile | None) -> Mapping[str, int]:
    """How often a condition has taken each branch."""
    if profile is None:
        return {}
    return profile.habit(graph.name, graph[condition].component).branches


Branches = frozenset[tuple[str, str]]
"""(condition, branch) pairs."""


def chances(graph: Graph, profile: Profile | None = None) -> dict[str, float]:
    """How likely it is, when a primitive begins, that what it gives will be read: less than 1 for
    what begins before a condition has decided whether it is wanted.

    By Laplace's rule of succession, the developer's word for a branch being an observation beside
    those that the profile has: before there are any, of two branches the expected one has 2/3.
    """
    needs: dict[str, Branches] = {}
    found: dict[str, float] = {}
    for id in reversed(graph.order):
        p = graph[id]
        decided = graph.ancestors[id] | {id} | {g.condition for g in p.guards if not g.speculative}
        own = {(g.condition, g.branch) for g in p.guards}
        readers = [needs[q] | _hard(graph[q]) for q in graph.children[id]]
        if not readers or has_effect(p.op, p.params):
            readers = [frozenset()]
        open = [frozenset(b for b in need | own if b[0] not in decided) for need in readers]
        needs[id] = max(open, key=lambda need: _chance(graph, need, profile))
        found[id] = _chance(graph, needs[id], profile)
    return found


def _hard(p: Primitive) -> Branches:
    return frozenset((g.condition, g.branch) for g in p.guards if not g.speculative)


def _chance(graph: Graph, branches: Branches, profile: Profile | None) -> float:
    chance = 1.0
    for condition, branch in branches:
        params = graph[condition].params
        assert isinstance(params, ConditionParams)
        seen = _seen(graph, condition, profile)
        taken, decided = seen.get(branch, 0), sum(seen.values())
        chance *= (1 + (branch == params.prefer) + taken) / (1 + len(params.branches) + decided)
    return chance
