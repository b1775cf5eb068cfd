"""Whether what a factory made is an engine: it has a `spec`, and the methods of its kind."""

from __future__ import annotations

from typing import Any, Final

from teola.engine import BatchEngine, EngineKind, EngineSpec, LanguageModel, Loader
from teola.errors import InputError
from teola.registry import lacking, methods_of

_SHAPES: Final[dict[EngineKind, type]] = {
    EngineKind.LLM: LanguageModel,
    EngineKind.DOCUMENTS: Loader,
}
"""Engines of the other kinds are a BatchEngine."""


def check_shape(made: Any, name: str) -> None:
    """Raise InputError unless `made` can serve as the engine called `name`."""
    kind = type(made).__name__
    called = f"engine {name!r} ({kind})"
    spec = getattr(made, "spec", None)
    if spec is None:
        raise InputError(
            f"{called} has no `spec`: let __init__ set self.spec = teola.engine.EngineSpec(name, "
            "kind, ops)"
        )
    if not isinstance(spec, EngineSpec):
        raise InputError(f"{called}: its `spec` must be a teola.engine.EngineSpec, not {spec!r}")
    lacks = lacking(made, methods_of(_SHAPES.get(spec.kind, BatchEngine)))
    if lacks:
        methods = "the method" if len(lacks) == 1 else "the methods"
        raise InputError(
            f"{called} is of kind {spec.kind.value!r} and lacks {methods} {', '.join(lacks)}"
        )
