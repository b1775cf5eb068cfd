"""`teola.register`: what a program adds as it runs, beside what installed packages offer.

with teola.register("batching", "mine", Mine):
    Runtime(batching="mine")

Whatever is registered is found where built-in things are: by Runtime and App, by the simulator, by
`teola serve` and every other command that loads the file which registers it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar, overload

from teola import catalogue, passes
from teola.errors import InputError, UnknownName
from teola.kv import policies as eviction
from teola.policies import batching, routing
from teola.registry import Named, Registry
from teola.runtime import engines
from teola.tools import Tool, named_tools
from teola.tools.function_tool import FunctionCall
from teola.workflow import components
from teola.workflow.components.function import Function, FunctionConfig

T = TypeVar("T")
Sort = Literal["pass", "batching", "routing", "eviction", "engine", "component", "app", "tool"]

REGISTRIES: Final[Mapping[str, Registry[Any]]] = {
    "pass": passes.REGISTRY,
    "batching": batching.REGISTRY,
    "routing": routing.REGISTRY,
    "eviction": eviction.REGISTRY,
    "engine": engines.ENGINE_TYPES,
    "component": components.COMPONENT_TYPES,
    "app": catalogue.REGISTRY,
    "tool": named_tools.REGISTRY,
}
RESERVED: Final = {"pass": ("all", "none")}
_NOT_GIVEN: Final = object()
_writing: Final = Lock()


class Registered:
    """What `register` returns: at the end of a `with` block the name is free again."""

    def __init__(self, kind: str, named: Named[Any]) -> None:
        self._kind, self._named = kind, named

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        registry, name = REGISTRIES[self._kind], self._named.name
        with _writing:
            if registry.registered().get(name) is self._named:
                _drop(registry, name)


@overload
def register(
    kind: Sort, name: str, *, after: str | None = None, before: str | None = None
) -> Callable[[T], T]: ...
@overload
def register(
    kind: Sort, name: str, thing: Any, *, after: str | None = None, before: str | None = None
) -> Registered: ...
def register(
    kind: str,
    name: str,
    thing: Any = _NOT_GIVEN,
    *,
    after: str | None = None,
    before: str | None = None,
) -> Any:
    """Let `thing` be found as the `kind` called `name`; without `thing`, a decorator.

    kind: "pass", "batching", "routing" or "eviction" (policies), "engine", "component", "app".
    after, before: of a pass, the one beside which it runs; by default it runs after all others.

    The same definition again replaces the earlier one: a class or a function of the same module
    and name, also under `@component` or `@tool`, as when a module is reloaded. What `__main__`
    registers (a notebook's cell, a shell) also replaces what it registered there of the same type
    and name, such as an App. Raises InputError for a name that is taken, a thing of another shape
    or two positions, and UnknownName for a kind or a position that does not exist.
    """
    registry = _registry(kind)
    called = registry.called(name)
    module = str(sys._getframe(1).f_globals.get("__name__", ""))
    if not re.fullmatch(r"\w[\w-]*", name):
        raise InputError(f"{called}: a name has letters, digits, _ and - only")
    if (after or before) and kind != "pass":
        raise InputError(f"{called}: only passes have a place, so leave out `after` and `before`")
    if after and before:
        raise InputError(f"{called}: give `after` or `before`, not both")

    def put(value: Any) -> Named[Any]:
        registry.check(called, value)
        named = Named(name, value, after, before, module)
        _put(kind, registry, named)
        return named

    def decorate(value: T) -> T:
        put(value)
        return value

    return decorate if thing is _NOT_GIVEN else Registered(kind, put(thing))


def unregister(kind: Sort, name: str) -> None:
    """Forget what `register` put under `name`. Queries that run keep what they have of it.

    Raises UnknownName, and InputError for a thing that was not registered and for a pass beside
    which another one was put.
    """
    registry = _registry(kind)
    with _writing:
        registered = registry.registered()
        if name not in registered:
            _refuse_fixed(kind, registry, name)
            raise UnknownName(f"registered {registry.what}", name, registered)
        _drop(registry, name)


def _registry(kind: str) -> Registry[Any]:
    if kind not in REGISTRIES:
        raise UnknownName("kind", kind, REGISTRIES, "register")
    return REGISTRIES[kind]


def _put(kind: str, registry: Registry[Any], named: Named[Any]) -> None:
    with _writing:
        _refuse_fixed(kind, registry, named.name)
        before = registry.registered().get(named.name)
        if before is not None and not _same(before, named):
            raise InputError(
                f"{registry.called(named.name)} is registered already: choose another name, or "
                f"teola.unregister({kind!r}, {named.name!r}) first"
            )
        _check_place(registry, named)
        registry.put(named)


def _drop(registry: Registry[Any], name: str) -> None:
    others = registry.registered().values()
    leaning = sorted(other.name for other in others if name in (other.after, other.before))
    if leaning:
        listed = ", ".join(map(repr, leaning))
        raise InputError(f"{registry.called(name)} has {listed} beside it: unregister that first")
    registry.drop(name)


def _refuse_fixed(kind: str, registry: Registry[Any], name: str) -> None:
    """Raise InputError if `name` is that of something which is not registered."""
    if name in registry.built_in or name in RESERVED.get(kind, ()):
        raise InputError(f"{registry.called(name)} is built in: choose another name")
    if point := registry.offered().get(name):
        raise InputError(
            f"{registry.called(name)} comes with an installed package ({point.value}): choose "
            "another name"
        )


def _check_place(registry: Registry[Any], named: Named[Any]) -> None:
    """Raise UnknownName if the pass beside which this one is to run is not in the pipeline, and
    InputError if that one was put beside this one."""
    beside = named.after or named.before
    registered = registry.registered()
    if beside is not None and beside not in registry.built_in and beside not in registered:
        there = [*registry.built_in, *registered]
        raise UnknownName(registry.what, beside, there, "the pipeline")
    link = registered.get(beside or "")
    while link is not None:
        if link.name == named.name:
            raise InputError(f"{registry.called(named.name)} would be put beside itself")
        link = registered.get(link.after or link.before or "")


def _same(earlier: Named[Any], later: Named[Any]) -> bool:
    """Whether two things are one, or come of one definition that was run twice."""
    if earlier.thing is later.thing:
        return True
    before, now = _definition(earlier.thing), _definition(later.thing)
    if before != now:
        return False
    if earlier.module == later.module == "__main__":
        return True
    return before.qualname is not None and "<lambda>" not in before.qualname


class _Definition(NamedTuple):
    """Where something stands in code. type: its own, by module and name. qualname: of the class or
    function that it is or wraps (None: it is neither). name: its own, if it has one."""

    type: tuple[str, str]
    module: str | None
    qualname: str | None
    name: str | None


def _definition(thing: Any) -> _Definition:
    code = thing
    if isinstance(thing, Function) and isinstance(thing.config, FunctionConfig):
        code = thing.config.function
    elif isinstance(thing, Tool) and isinstance(thing.carry_out, FunctionCall):
        code = thing.carry_out.function
    kind, name = type(thing), getattr(thing, "name", None)
    return _Definition(
        (kind.__module__, kind.__qualname__),
        getattr(code, "__module__", None),
        getattr(code, "__qualname__", None),
        name if isinstance(name, str) else None,
    )
