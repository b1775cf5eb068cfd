"""The optimiser: an ordered pipeline of passes from p-graph to e-graph, and its cache's contents.

Each pass is a pure function in a file of its own. It is applied until it changes nothing more,
then the next one is. To add one: a file here and a line in PIPELINE, or an entry point in the
group `teola.passes` of any package (docs/add-a-pass.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Final

from teola.entry_points import offered
from teola.errors import GraphError, UnknownName
from teola.graph import Graph
from teola.passes.decompose_stages import decompose_stages
from teola.passes.pipeline_decoding import pipeline_decoding
from teola.passes.prune_dependencies import prune_dependencies
from teola.passes.rewrite import Pass, Rewrite
from teola.passes.split_prefilling import split_prefilling
from teola.passes.split_reranking import split_reranking
from teola.passes.verify import verify
from teola.profile import Profile

PIPELINE: Final[Mapping[str, Pass]] = {
    "prune_dependencies": prune_dependencies,
    "decompose_stages": decompose_stages,
    "split_prefilling": split_prefilling,
    "pipeline_decoding": pipeline_decoding,
    "split_reranking": split_reranking,
}
MAX_ROUNDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Optimised:
    """An e-graph, the p-graph it came from, and every decision on the way."""

    p_graph: Graph
    e_graph: Graph
    rewrites: tuple[Rewrite, ...]


@cache
def _installed() -> Mapping[str, Pass]:
    found = {name: point.load() for name, point in offered("teola.passes").items()}
    return {**found, **PIPELINE}


def available() -> Sequence[str]:
    """Names of all passes: the built-in pipeline in order, then installed ones."""
    return [*PIPELINE, *(name for name in _installed() if name not in PIPELINE)]


def select(names: Iterable[str] | str | None) -> tuple[str, ...]:
    """Pass names from "all" (the pipeline), "none", "a,b", "all,mine" or a sequence.

    Raises UnknownName.
    """
    if names is None or names == "none":
        return tuple(PIPELINE) if names is None else ()
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",") if name.strip()]
    spread = [PIPELINE if name == "all" else (name,) for name in names]
    chosen = tuple(dict.fromkeys(name for some in spread for name in some))
    for name in chosen:
        if name not in PIPELINE and name not in _installed():
            raise UnknownName("pass", name, [*available(), "all", "none"])
    return chosen


def optimise(
    graph: Graph,
    profile: Profile,
    passes: Sequence[str] | None = None,
    *,
    debug: bool = False,
    most_primitives: float = inf,
) -> Optimised:
    """Apply `passes` (default: the pipeline) in order. debug: verify after each step.

    A step that would make a graph of more than `most_primitives` is not taken.
    """
    current = graph
    rewrites: list[Rewrite] = []
    for name in select(passes):
        run = PIPELINE.get(name) or _installed()[name]
        for _ in range(MAX_ROUNDS):
            changed, decided = run(current, profile)
            if len(changed) > max(most_primitives, len(current)):
                rewrites += [_too_many(d, len(changed), most_primitives) for d in decided]
                break
            rewrites += [d for d in decided if d.applied]
            if debug and changed is not current:
                verify(graph, changed)
            if changed is current or not any(d.applied for d in decided):
                rewrites += [d for d in decided if not d.applied]
                current = changed
                break
            current = changed
        else:
            raise GraphError(f"pass {name!r} still changes the graph after {MAX_ROUNDS} rounds")
    return Optimised(graph, current, tuple(rewrites))


def _too_many(decided: Rewrite, primitives: int, most: float) -> Rewrite:
    if not decided.applied:
        return decided
    reason = f"the graph would have {primitives} primitives, more than the {most:.0f} allowed"
    return replace(decided, applied=False, reason=reason)
