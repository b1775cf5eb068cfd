"""Finding policies by name: built-in ones, then entry points of the group `teola.policies`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from teola.entry_points import offered
from teola.errors import UnknownName


def find(kind: str, name: str, built_in: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The factory of policy `name` of `kind` (batching, routing). Raises UnknownName."""
    if name in built_in:
        return built_in[name]
    prefix = f"{kind}."
    others = {
        known.removeprefix(prefix): point
        for known, point in offered("teola.policies").items()
        if known.startswith(prefix)
    }
    if name not in others:
        raise UnknownName(f"{kind} policy", name, [*built_in, *others])
    factory: Callable[..., Any] = others[name].load()
    return factory


def with_options(
    kind: str, name: str, factory: Callable[..., Any], options: Mapping[str, Any]
) -> Any:
    """A policy made with `options`. Raises UnknownName for one that it does not take."""
    parameters = signature(factory).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for option in options:
            if option not in parameters:
                raise UnknownName("option", option, parameters, f"{kind} policy {name!r}")
    return factory(**options)
