"""Pass 3, split prefilling (paper, section 5.2): compute early what of a prompt is known early.

    before    rerank ──▶ prefill[instruction, question, context]

    after     ahead1[instruction, question] ──▶ prefill[context]      ahead1 needs no rerank
                                     rerank ──────┘

Attention is causal, so only a prefix may go ahead. A prompt is cut wherever a part must wait for
something that the parts before it need not wait for, so it may have more than two pieces; not
where the profile says that a piece would not be done in time, or that it saves next to nothing:
every piece costs the engine a prefill of its own, in which other calls wait. Partial prefilling is
pure: it also runs before a Condition has decided whether its call is wanted, and if what it reads
was begun on a guess, it is part of that guess.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from teola.graph import QUERY, Graph, Guard, Op, Part, Primitive, Prompt, Ref
from teola.passes.estimate import finish_times, part_tokens
from teola.passes.rewrite import Rewrite
from teola.profile import EngineProfile, Profile

NAME = "split_prefilling"
LEAST_GAIN: Final = 0.1
"""A piece must save its query at least this part of the time that it costs the engine."""


def split_prefilling(graph: Graph, profile: Profile) -> tuple[Graph, list[Rewrite]]:
    """Split every Prefilling that has a prefix worth computing ahead."""
    rewrites: list[Rewrite] = []
    primitives: list[Primitive] = []
    finish: dict[str, float] = {}
    for p in graph.primitives:
        if p.op is not Op.PREFILLING:
            primitives.append(p)
            continue
        engine = profile.engine(p.engine)
        if not engine.prefix_reuse:
            reason = f"engine {p.engine!r} gains nothing from a prefix computed ahead"
            rewrites.append(Rewrite(NAME, p.id, False, reason))
            primitives.append(p)
            continue
        least = _least_tokens(engine)
        pieces = _pieces(graph, p, least)
        if len(pieces) == 1:
            reason = f"no prefix is known earlier that is worth a prefill ({least} tokens)"
            rewrites.append(Rewrite(NAME, p.id, False, reason))
            primitives.append(p)
            continue
        finish = finish or finish_times(graph, profile)
        if not _pays(graph, p, pieces, profile, finish):
            reason = "computing a prefix ahead would take longer than waiting for the rest"
            rewrites.append(Rewrite(NAME, p.id, False, reason))
            primitives.append(p)
            continue
        primitives += _split(graph, p, pieces)
        ahead = sum(len(piece) for piece in pieces[:-1])
        reason = f"{ahead} of {sum(map(len, pieces))} prompt parts are known before the rest"
        rewrites.append(Rewrite(NAME, p.id, True, reason))
    if not any(rewrite.applied for rewrite in rewrites):
        return graph, rewrites
    return Graph(graph.name, primitives, graph.outputs, graph.inputs), rewrites


def _least_tokens(engine: EngineProfile) -> int:
    """From how many tokens on a piece is worth a prefill: at least one KV block."""
    cost = engine.cost(Op.PREFILLING)
    if cost.per_token_s <= 0:
        return engine.block_tokens
    worth = LEAST_GAIN / (1 - LEAST_GAIN) * cost.base_s / cost.per_token_s
    return max(engine.block_tokens, ceil(worth))


def _pieces(graph: Graph, p: Primitive, least: int) -> list[tuple[Part, ...]]:
    """The prompt's parts, cut where the wait grows; pieces below `least` tokens join the next."""
    prompt = p.input("prompt")
    assert isinstance(prompt, Prompt)
    known = _closure(graph, (order.producer for order in p.after))
    guards = _closure(graph, (guard.condition for guard in p.guards))
    pieces: list[list[Part]] = [[]]
    last = len(prompt.parts) - 1
    for i, part in enumerate(prompt.parts):
        ref = part.content
        waits = _closure(graph, (ref.producer,)) if isinstance(ref, Ref) else frozenset()
        if i == last:
            waits |= guards
        if not waits <= known:
            known |= waits
            pieces.append([])
        pieces[-1].append(part)
    return _join_small(graph, pieces, least)


def _join_small(graph: Graph, pieces: list[list[Part]], least: int) -> list[tuple[Part, ...]]:
    found: list[tuple[Part, ...]] = []
    held: list[Part] = []
    for piece in pieces[:-1]:
        held += piece
        if sum(part_tokens(graph, part) for part in held) >= least:
            found.append(tuple(held))
            held = []
    return [*found, tuple(held + pieces[-1])]


def _pays(
    graph: Graph,
    p: Primitive,
    pieces: list[tuple[Part, ...]],
    profile: Profile,
    finish: dict[str, float],
) -> bool:
    """Whether the call is prefilled no later in pieces than whole, by the profile's times."""
    engine = profile.engine(p.engine)
    hop = profile.dispatch_s
    known = max((finish[order.producer] for order in p.after), default=0.0)
    whole = max((finish[parent] for parent in graph.parents[p.id]), default=0.0)
    whole += hop + engine.seconds(p.op, 1, sum(part_tokens(graph, x) for y in pieces for x in y))
    done = 0.0
    for i, piece in enumerate(pieces):
        last = i == len(pieces) - 1
        refs = [part.content for part in piece if isinstance(part.content, Ref)]
        waits = [finish[ref.producer] for ref in refs if ref.producer != QUERY]
        waits += [finish[guard.condition] for guard in p.guards] if last else []
        tokens = sum(part_tokens(graph, part) for part in piece)
        done = max([done, known, *waits]) + hop + engine.seconds(p.op, 1, tokens)
    return done <= whole


def _closure(graph: Graph, producers: object) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for producer in producers:  # type: ignore[attr-defined]
        if producer != QUERY:
            found |= graph.ancestors[producer] | {producer}
    return found


def _split(graph: Graph, p: Primitive, pieces: list[tuple[Part, ...]]) -> list[Primitive]:
    made: list[Primitive] = []
    guessed: dict[Guard, None] = {}
    for i, piece in enumerate(pieces):
        final = i == len(pieces) - 1
        guessed |= dict.fromkeys(_guessed(graph, piece))
        before = ((("sequence", Ref(made[-1].id, "sequence")),)) if made else ()
        made.append(
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
    return made


def _guessed(graph: Graph, piece: tuple[Part, ...]) -> list[Guard]:
    """Speculative guards of what the piece reads: standing there too, it need not wait for them."""
    refs = [part.content for part in piece if isinstance(part.content, Ref)]
    producers = [graph[ref.producer] for ref in refs if ref.producer != QUERY]
    return [guard for q in producers for guard in q.guards if guard.speculative]
