"""Pass 3, split prefilling (paper, section 5.2): compute early what of a prompt is known early.

    before    rerank ──▶ prefill[instruction, question, context]

    after     ahead1[instruction, question] ──▶ prefill[context]      ahead1 needs no rerank
                                     rerank ──────┘

Attention is causal, so only a prefix may go ahead. A prompt is cut wherever a part must wait for
something that the parts before it need not wait for, so it may have more than two pieces; not
where the profile says that a piece would not be done in time, or that it saves next to nothing:
every piece costs the engine a prefill of its own, in which other calls wait. Text that all queries
begin with saves nothing where the engine keeps it from one to the next; nor does, where it is one
instance, what is computed ahead of another call already. Partial prefilling is
pure: in the branch that is expected of a Condition it also runs before that is decided, and if what
it reads was begun on a guess, it is part of that guess. In a branch that is not expected it waits
for the decision: certain work would pay for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from math import ceil
from typing import Final

from teola.graph import QUERY, Graph, Guard, Op, Part, Primitive, Prompt, Ref
from teola.passes.estimate import expected, kept_tokens, part_tokens
from teola.passes.rewrite import EQUAL_S, Rewrite
from teola.passes.timetable import Timetable, timetable
from teola.profile import EngineProfile, Profile

NAME = "split_prefilling"
LEAST_SAVED: Final = 0.25
"""A piece must save its query at least this part of what a prefill takes whatever its length, for
which the others wait that run there. (With a ninth, which pays for one query alone, applications
whose instructions are computed each time were up to 4 % slower at half of what they sustain.)"""
UNTIMED_TOKENS: Final = 128
"""What a piece must have while an engine's times are not known: what it saves is a guess then."""
LATE: Final = "computed ahead, its prefix would make other calls of the query wait"

PromptPieces = list[tuple[Part, ...]]
"""The parts of a prompt, cut where the wait grows."""


def split_prefilling(graph: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
    """Split every Prefilling that has a prefix worth computing ahead."""
    rewrites: list[Rewrite] = []
    chosen: dict[str, PromptPieces] = {}
    before: Timetable | None = None
    ahead = _Ahead(graph, profile)
    for p in graph.primitives:
        if p.op is Op.PREFILLING:
            before = before or timetable(graph, profile)
            reason, pieces = _considered(graph, p, profile, before.ends_s, ahead)
            if pieces:
                chosen[p.id] = pieces
                ahead.add(p.engine, _split(graph, p, pieces)[:-1])
            else:
                rewrites.append(Rewrite(NAME, p.id, False, reason))
    if before is None or not chosen:
        return graph, rewrites
    kept = _never_later(graph, chosen, profile, before.length_s)
    for id, pieces in chosen.items():
        early, parts = sum(map(len, pieces[:-1])), sum(map(len, pieces))
        reason = (
            f"{early} of {parts} prompt parts are known before the rest" if id in kept else LATE
        )
        rewrites.append(Rewrite(NAME, id, id in kept, reason))
    return (_with(graph, kept) if kept else graph), rewrites


class _Ahead:
    """What is computed ahead of the calls to each engine that keeps prefixes."""

    def __init__(self, graph: Graph, profile: Profile) -> None:
        self.graph, self.profile = graph, profile
        self._known: dict[str, list[tuple[tuple[Part, ...], frozenset[Guard]]]] = {}
        partials = [p for p in graph.primitives if p.op is Op.PARTIAL_PREFILLING]
        for origin in dict.fromkeys(p.origin for p in partials):
            pieces = [p for p in partials if p.origin == origin]
            self.add(pieces[0].engine, pieces)

    def add(self, engine: str, pieces: Sequence[Primitive]) -> None:
        """`pieces` of one call, the first ones of its prompt."""
        parts = tuple(part for piece in pieces for part in _parts(piece))
        guards = frozenset(guard for piece in pieces for guard in piece.guards)
        self._known.setdefault(engine, []).append((parts, guards))

    def tokens(self, p: Primitive) -> int:
        """How many tokens at the beginning of its prompt, in whole blocks, are computed for others
        if `p` runs at all. Where there are several instances none are: `p` may run on another."""
        engine = self.profile.engine(p.engine)
        if not engine.keeps_prefixes or engine.instances > 1:
            return 0
        shared = (
            _tokens(self.graph, _common(_parts(p), parts))
            for parts, guards in self._known.get(p.engine, ())
            if guards <= set(p.guards)
        )
        return max(shared, default=0) // engine.block_tokens * engine.block_tokens


def _common(first: Sequence[Part], other: Sequence[Part]) -> list[Part]:
    return [
        a for a, b in takewhile(lambda pair: pair[0] == pair[1], zip(first, other, strict=False))
    ]


def _parts(p: Primitive) -> tuple[Part, ...]:
    prompt = p.input("prompt")
    assert isinstance(prompt, Prompt)
    return prompt.parts


def _considered(
    graph: Graph, p: Primitive, profile: Profile, ends_s: Mapping[str, float], ahead: _Ahead
) -> tuple[str, PromptPieces]:
    """Why its prompt stays whole, or the pieces into which it is worth cutting it."""
    engine = profile.engine(p.engine)
    if not engine.prefix_reuse:
        return f"engine {p.engine!r} gains nothing from a prefix computed ahead", []
    least, always, shared = _least_tokens(engine), kept_tokens(graph, p, engine), ahead.tokens(p)
    kept = max(always, shared)
    pieces = _pieces(graph, p, least, kept)
    if len(pieces) == 1:
        besides = f", besides what engine {p.engine!r} keeps anyway" if kept else ""
        if shared > always:
            besides = ", besides what is computed ahead of other calls"
        return f"no prefix is known earlier that is worth a prefill ({least} tokens){besides}", []
    if not _pays(graph, p, pieces, kept, profile, ends_s):
        return "computing a prefix ahead would take longer than waiting for the rest", []
    return "", pieces


def _never_later(
    graph: Graph, chosen: Mapping[str, PromptPieces], profile: Profile, length_s: float
) -> dict[str, PromptPieces]:
    """Those that delay no other call: all together if the query is done no later with them, else
    one after another."""

    def done_in_time(some: Mapping[str, PromptPieces]) -> bool:
        return timetable(_with(graph, some), profile).length_s <= length_s + EQUAL_S

    if done_in_time(chosen):
        return dict(chosen)
    kept: dict[str, PromptPieces] = {}
    for id, pieces in chosen.items():
        if done_in_time({**kept, id: pieces}):
            kept[id] = pieces
    return kept


def _with(graph: Graph, chosen: Mapping[str, PromptPieces]) -> Graph:
    primitives: list[Primitive] = []
    for p in graph.primitives:
        primitives += _split(graph, p, chosen[p.id]) if p.id in chosen else [p]
    return Graph(graph.name, primitives, graph.outputs, graph.inputs)


def _least_tokens(engine: EngineProfile) -> int:
    """From how many tokens on a piece is worth a prefill: one KV block at least."""
    if not engine.timed:
        return max(engine.block_tokens, UNTIMED_TOKENS)
    cost = engine.cost(Op.PREFILLING)
    if cost.per_token_s <= 0:
        return engine.block_tokens
    return max(engine.block_tokens, ceil(LEAST_SAVED * cost.base_s / cost.per_token_s))


def _pieces(graph: Graph, p: Primitive, least: int, kept: int) -> PromptPieces:
    """The prompt's parts, cut where the wait grows; pieces below `least` tokens, not counting the
    first `kept` ones of the prompt, join the next."""
    prompt = _parts(p)
    waited = _closure(graph, (order.producer for order in p.after))
    guards = _closure(graph, (guard.condition for guard in p.guards))
    if not expected(graph, p):
        waited |= guards
    pieces: list[list[Part]] = [[]]
    last = len(prompt) - 1
    for i, part in enumerate(prompt):
        ref = part.content
        waits = _closure(graph, (ref.producer,)) if isinstance(ref, Ref) else frozenset()
        if i == last:
            waits |= guards
        if not waits <= waited:
            waited |= waits
            pieces.append([])
        pieces[-1].append(part)
    return _join_small(graph, pieces, least, kept)


def _join_small(graph: Graph, pieces: list[list[Part]], least: int, kept: int) -> PromptPieces:
    joined: list[tuple[Part, ...]] = []
    pending: list[Part] = []
    for piece in pieces[:-1]:
        pending += piece
        if _tokens(graph, pending) - kept >= least:
            joined.append(tuple(pending))
            pending, kept = [], 0
    return [*joined, tuple(pending + pieces[-1])]


def _tokens(graph: Graph, parts: Iterable[Part]) -> int:
    return sum(part_tokens(graph, part) for part in parts)


def _pays(
    graph: Graph,
    p: Primitive,
    pieces: PromptPieces,
    kept: int,
    profile: Profile,
    ends_s: Mapping[str, float],
) -> bool:
    """Whether the call is prefilled no later in pieces than whole, by the profile's times."""
    engine = profile.engine(p.engine)
    hop = profile.dispatch_s
    ordered_s = max((ends_s[order.producer] for order in p.after), default=0.0)
    whole = max(ends_s[parent] for parent in graph.parents[p.id])
    whole += hop + engine.seconds(p.op, 1, _tokens(graph, chain(*pieces)) - kept)
    done = 0.0
    for i, piece in enumerate(pieces):
        last = i == len(pieces) - 1
        refs = [part.content for part in piece if isinstance(part.content, Ref)]
        waits = [ends_s[ref.producer] for ref in refs if ref.producer != QUERY]
        waits += [ends_s[guard.condition] for guard in p.guards] if last else []
        tokens = _tokens(graph, piece) - (0 if i else kept)
        done = max([done, ordered_s, *waits]) + hop + engine.seconds(p.op, 1, tokens)
    return done <= whole


def _closure(graph: Graph, producers: object) -> frozenset[str]:
    closure: frozenset[str] = frozenset()
    for producer in producers:  # type: ignore[attr-defined]
        if producer != QUERY:
            closure |= graph.ancestors[producer] | {producer}
    return closure


def _split(graph: Graph, p: Primitive, pieces: PromptPieces) -> list[Primitive]:
    primitives: list[Primitive] = []
    guessed: dict[Guard, None] = {} if expected(graph, p) else dict.fromkeys(p.guards)
    for i, piece in enumerate(pieces):
        final = i == len(pieces) - 1
        if expected(graph, p):
            guessed |= dict.fromkeys(_guessed(graph, piece))
        before = ((("sequence", Ref(primitives[-1].id, "sequence")),)) if primitives else ()
        primitives.append(
            replace(
                p,
                id=p.id if final else f"{p.id}.ahead{i + 1}",
                op=Op.FULL_PREFILLING if final else Op.PARTIAL_PREFILLING,
                inputs=(*before, ("prompt", Prompt(piece))),
                after=p.after if final else tuple(o for o in p.after if not o.effect),
                guards=p.guards if final else tuple(guessed),
                origin=p.origin or p.id,
            )
        )
    return primitives


def _guessed(graph: Graph, piece: tuple[Part, ...]) -> list[Guard]:
    """Speculative guards of the primitives that the piece reads. Under the same guards it need not
    wait for their conditions."""
    refs = [part.content for part in piece if isinstance(part.content, Ref)]
    producers = [graph[ref.producer] for ref in refs if ref.producer != QUERY]
    return [guard for q in producers for guard in q.guards if guard.speculative]
