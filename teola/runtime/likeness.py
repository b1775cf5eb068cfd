"""What the instances of one engine must have in common, so that any of them can do its work.

A prefix that one instance computed has the same token ids on every other, and a vector from one can
be compared with a vector from another. Each instance is asked where it runs, after it has started.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from teola.engine import (
    Engine,
    EngineKind,
    EstimatesTokens,
    HasDimensions,
    HasIdentity,
    NamesModel,
    ReadsPrompts,
    Tokenizes,
)
from teola.errors import EngineUnavailable
from teola.runtime.pools import presentable

_SAMPLE: Final = "Two words.\n\n  naïve 東京 🦉 x=1;\t{ }"


class Likeness(NamedTuple):
    """What an instance tells of itself; None where it does not tell, or has nothing to tell.

    tokenizer, template: digests of the token ids that they make of some texts.
    block_tokens: of instances that keep prefixes.
    """

    kind: EngineKind
    ops: frozenset[str]
    model: str | None = None
    tokenizer: str | None = None
    template: str | None = None
    block_tokens: int | None = None
    dimensions: int | None = None


@runtime_checkable
class TellsLikeness(Protocol):
    """Stands for an engine elsewhere, which is asked there."""

    async def likeness(self) -> Likeness: ...


_CALLED: Final = {
    "kind": "kinds",
    "ops": "operations",
    "model": "models",
    "tokenizer": "tokenizers",
    "template": "chat templates",
    "block_tokens": "block sizes",
    "dimensions": "lengths of vectors",
}
_SHOWN: Final = ("model", "block_tokens", "dimensions")


def likeness(engine: Engine) -> Likeness:
    """What a started engine, which runs in this process, has to share with others of its pool."""
    spec = engine.spec
    ops = frozenset(op.value for op in spec.ops)
    if spec.kind not in (EngineKind.LLM, EngineKind.EMBEDDING):
        return Likeness(spec.kind, ops)
    model = engine.model if isinstance(engine, NamesModel) else None
    if model is None and isinstance(engine, HasIdentity):
        model = engine.identity or None
    reading = engine.reading if isinstance(engine, ReadsPrompts) else None
    dimensions = engine.dimensions if isinstance(engine, HasDimensions) else 0
    return Likeness(
        spec.kind,
        ops,
        model,
        reading.tokenizer if reading else _tokenizer(engine),
        reading.template if reading else None,
        spec.block_tokens if spec.kind is EngineKind.LLM and spec.prefix_reuse else None,
        dimensions or None,
    )


def _tokenizer(engine: Engine) -> str | None:
    if not isinstance(engine, Tokenizes):
        return None
    if isinstance(engine, EstimatesTokens) and engine.estimates:
        return None
    ids = engine.encode(_SAMPLE)
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()


async def check_alike(
    name: str, engines: Sequence[Engine], *, named: bool, by_text: bool = False
) -> None:
    """Ask the started instances of engine `name`; raise EngineUnavailable if they differ in what
    they must share.

    named: whether the pool names a model for each. Those of language models are then taken to be
    one model. by_text: they are declared to be alike in that they take the same texts, so they need
    to be of one kind and nothing else.
    """
    descriptions = [await _told(engine) for engine in engines]
    for at, key in enumerate(Likeness._fields[:2] if by_text else Likeness._fields):
        if key == "model" and named and descriptions[0].kind is EngineKind.LLM:
            continue
        named_values = [
            (i, description[at])
            for i, description in enumerate(descriptions)
            if description[at] is not None
        ]
        for differing in named_values[1:]:
            if differing[1] != named_values[0][1]:
                why = _difference(name, engines, key, named_values[0], differing)
                raise EngineUnavailable(why, retryable=False)


async def _told(engine: Engine) -> Likeness:
    return await engine.likeness() if isinstance(engine, TellsLikeness) else likeness(engine)


def _difference(
    name: str,
    engines: Sequence[Engine],
    key: str,
    mine: tuple[int, object],
    its: tuple[int, object],
) -> str:
    """What an error says of two instances, each with what it tells."""
    first, second = (
        f"instance {i} ({presentable(engines[i].spec.description) or 'no description'})"
        for i, _ in (mine, its)
    )
    shown = f" ({mine[1]!r} and {its[1]!r})" if key in _SHOWN else ""
    way = (
        "; one model under two names is named in each entry of the pool, as `model`; models that "
        'may answer for each other are declared so, by alike = "text"'
        if key == "model" and engines[0].spec.kind is EngineKind.LLM
        else ""
    )
    return (
        f"engine {name!r}: {first} and {second} have different {_CALLED[key]}{shown}: give both "
        f"the same, otherwise they are two engines{way}"
    )
