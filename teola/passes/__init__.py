"""The optimiser: an ordered pipeline of passes from p-graph to e-graph, and its cache's contents.

Each pass is a pure function in a file of its own. It is applied until it changes nothing more,
then the next one is. To add one: a file here and a line in PIPELINE, `teola.register`, or an entry
point in the group `teola.passes` of any package (docs/add-a-pass.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from math import inf
from typing import Any, Final

from teola.errors import GraphError, InputError, UnknownName, reason_of
from teola.graph import Graph
from teola.passes.decompose_stages import decompose_stages
from teola.passes.pipeline_decoding import pipeline_decoding
from teola.passes.prune_dependencies import prune_dependencies
from teola.passes.rewrite import Pass, Rewrite
from teola.passes.split_prefilling import split_prefilling
from teola.passes.split_reranking import split_reranking
from teola.passes.verify import verify
from teola.profile import Profile
from teola.registry import Named, Registry

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


def _check(called: str, thing: Any) -> None:
    if not callable(thing) or isinstance(thing, type):
        raise InputError(f"{called} must be a function of a graph and a profile, not {thing!r}")
    try:
        signature(thing).bind(None, None)
    except TypeError as error:
        raise InputError(f"{called} must take a graph and a profile: {error}") from None


REGISTRY: Final = Registry("pass", "teola.passes", PIPELINE, _check)
PassSequence = tuple[Named[Pass], ...]
"""Passes in the order in which they run."""
_BUILT_IN: Final[PassSequence] = tuple(REGISTRY.built_in.values())


def pipeline() -> PassSequence:
    """The passes that run by default: the built-in ones and, where they were put, those that were
    registered. Passes that were put at the same place run in the order of their names."""
    registered = REGISTRY.registered()
    if not registered:
        return _BUILT_IN
    beside: dict[tuple[str | None, str | None], list[Named[Pass]]] = defaultdict(list)
    for _, step in sorted(registered.items()):
        beside[step.after, step.before].append(step)

    def around(step: Named[Pass]) -> Iterator[Named[Pass]]:
        for other in beside[None, step.name]:
            yield from around(other)
        yield step
        for other in beside[step.name, None]:
            yield from around(other)

    last = beside[None, None]
    return tuple(placed for step in (*_BUILT_IN, *last) for placed in around(step))


def available() -> Sequence[str]:
    """Names of all passes: the pipeline in order, then installed ones."""
    names = [step.name for step in pipeline()]
    return [*names, *(name for name in REGISTRY.names() if name not in names)]


def select(names: Iterable[str | Named[Pass]] | str | None) -> PassSequence:
    """Passes from "all" (the pipeline), "none", "a,b", "all,mine" or a sequence.

    Raises UnknownName.
    """
    if names is None or names == "all":
        return pipeline()
    if names == "none":
        return ()
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",") if name.strip()]
    chosen: dict[Named[Pass], None] = {}
    for name in names:
        if isinstance(name, Named):
            chosen[name] = None
        elif name == "all":
            chosen |= dict.fromkeys(pipeline())
        else:
            chosen[_step(name)] = None
    return tuple(chosen)


def _step(name: str) -> Named[Pass]:
    try:
        return REGISTRY.get(name)
    except UnknownName:
        raise UnknownName("pass", name, [*available(), "all", "none"]) from None


def optimise(
    graph: Graph,
    profile: Profile,
    passes: Sequence[str | Named[Pass]] | None = None,
    *,
    debug: bool = False,
    most_primitives: float = inf,
) -> Optimised:
    """Apply `passes` (default: the pipeline) in order. debug: verify after each step.

    A step that would make a graph of more than `most_primitives` is not taken. Raises GraphError,
    which names the pass, where one raises, returns something else, or is refused by `verify`.
    """
    current = graph
    rewrites: list[Rewrite] = []
    for step in select(passes):
        for _ in range(MAX_ROUNDS):
            changed, decided = _applied(step, current, profile)
            if len(changed) > max(most_primitives, len(current)):
                rewrites += [_too_many(d, len(changed), most_primitives) for d in decided]
                break
            rewrites += [d for d in decided if d.applied]
            if debug and changed is not current:
                _verify(step, graph, changed)
            if changed is current or not any(d.applied for d in decided):
                rewrites += [d for d in decided if not d.applied]
                current = changed
                break
            current = changed
        else:
            raise GraphError(
                f"pass {step.name!r} still changes the graph after {MAX_ROUNDS} rounds"
            )
    return Optimised(graph, current, tuple(rewrites))


def _applied(step: Named[Pass], graph: Graph, profile: Profile) -> tuple[Graph, Sequence[Rewrite]]:
    """What the pass makes of `graph`. Raises GraphError."""
    try:
        returned: Any = step.thing(graph, profile)
    except Exception as error:  # a pass may be anybody's; it is told by its name
        raise GraphError(f"pass {step.name!r}: {reason_of(error)}") from error
    match returned:
        case (Graph() as changed, [*decided]) if all(isinstance(d, Rewrite) for d in decided):
            return changed, decided
    raise GraphError(
        f"pass {step.name!r}: it must return a graph and a list of Rewrites, not "
        f"{_described(returned)}"
    )


def _described(returned: Any) -> str:
    if isinstance(returned, tuple):
        return f"({', '.join(type(value).__name__ for value in returned)})"
    return f"a {type(returned).__name__} alone" if isinstance(returned, Graph) else repr(returned)


def _verify(step: Named[Pass], before: Graph, after: Graph) -> None:
    try:
        verify(before, after)
    except GraphError as error:
        raise GraphError(f"pass {step.name!r}: {error}") from error


def _too_many(decided: Rewrite, primitives: int, most: float) -> Rewrite:
    if not decided.applied:
        return decided
    reason = f"the graph would have {primitives} primitives, more than the {most:.0f} allowed"
    return replace(decided, applied=False, reason=reason)
