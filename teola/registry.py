"""What has a name: built-in things, what programs register as they run (`teola.register`), and what
installed packages offer as entry points. Things of every kind are found in this one way.

Nothing here waits or locks. A look-up sees a registration whole or not at all, and who has found a
thing keeps it. Writers take turns by themselves (`teola.registering`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from inspect import isfunction, signature
from typing import Any, Generic, TypeVar

from teola.entry_points import offered
from teola.errors import InputError, UnknownName

T = TypeVar("T")
Check = Callable[[str, Any], None]
"""Gets what to call a thing in a message, and the thing. Raises InputError if it is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Named(Generic[T]):
    """A thing under its name: another one each time that it is registered.

    after, before: the pass beside which a pass runs (both None: after all others). module: whose
    code registered it ("": nobody's, it is built in or installed).
    """

    name: str
    thing: T
    after: str | None = None
    before: str | None = None
    module: str = ""


class Registry(Generic[T]):
    """All things of one kind.

    what: the kind, in messages. group: of their entry points, whose names begin with `prefix`.
    """

    def __init__(
        self, what: str, group: str, built_in: Mapping[str, T], check: Check, prefix: str = ""
    ) -> None:
        self.what, self.group, self.prefix, self.check = what, group, prefix, check
        self.built_in = {name: Named(name, thing) for name, thing in built_in.items()}
        self._registered: dict[str, Named[T]] = {}
        self._loaded: dict[EntryPoint, Named[T]] = {}

    def ship(self, built_in: Mapping[str, T]) -> None:
        """Add built-in things. Called where they are defined."""
        self.built_in |= {name: Named(name, thing) for name, thing in built_in.items()}

    def get(self, name: str) -> Named[T]:
        """The thing called `name`, with its name. Raises UnknownName."""
        named = self.built_in.get(name) or self._registered.get(name)
        if named is not None:
            return named
        point = self.offered().get(name)
        if point is None:
            raise UnknownName(self.what, name, self.names())
        if point not in self._loaded:
            self._loaded.setdefault(point, Named(name, point.load()))
        return self._loaded[point]

    def find(self, name: str) -> T:
        """The thing called `name`. Raises UnknownName."""
        return self.get(name).thing

    def names(self) -> list[str]:
        """All names: the built-in ones in their order, then the others, sorted."""
        others = {*self.registered(), *self.offered()}
        return [*self.built_in, *sorted(others.difference(self.built_in))]

    def registered(self) -> dict[str, Named[T]]:
        """What is registered now, by name."""
        return self._registered.copy()

    def offered(self) -> dict[str, EntryPoint]:
        """What installed packages offer, by name."""
        start = len(self.prefix)
        points = offered(self.group)
        return {
            name[start:]: point for name, point in points.items() if name.startswith(self.prefix)
        }

    def called(self, name: str) -> str:
        """A thing of this kind in a message."""
        return f"{self.what} {name!r}"

    def put(self, named: Named[T]) -> None:
        """Register a thing, in the place of what was registered by its name."""
        self._registered[named.name] = named

    def drop(self, name: str) -> None:
        """Forget a registered thing."""
        del self._registered[name]


class Factories(Registry[Callable[..., T]]):
    """Things are made anew: classes, or functions that make one. shapes: protocols, one of which
    each has."""

    def __init__(
        self,
        what: str,
        group: str,
        built_in: Mapping[str, Callable[..., T]],
        shapes: Iterable[type],
        prefix: str = "",
    ) -> None:
        super().__init__(what, group, built_in, self._check, prefix)
        self._shapes = [methods_of(shape) for shape in shapes]

    def make(self, name: str, options: Mapping[str, Any]) -> T:
        """A fresh thing with `options`. Raises UnknownName, also for an option that it does not
        take, and InputError if what was made lacks methods."""
        factory = self.find(name)
        parameters = signature(factory).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            for option in options:
                if option not in parameters:
                    raise UnknownName("option", option, parameters, self.called(name))
        thing = factory(**options)
        self._check_methods(self.called(name), thing, type(thing).__name__)
        return thing

    def _check(self, called: str, thing: Any) -> None:
        if not callable(thing):
            hint = f"; give the class {type(thing).__name__} itself" if self._fits(thing) else ""
            raise InputError(
                f"{called} must be a class or a function that makes one, not {thing!r}{hint}"
            )
        if isinstance(thing, type):
            self._check_methods(called, thing, thing.__name__)

    def _fits(self, thing: Any) -> bool:
        return any(not lacking(thing, methods) for methods in self._shapes)

    def _check_methods(self, called: str, thing: Any, name: str) -> None:
        """Raise InputError unless the thing has the methods of the shape that it comes nearest
        to."""
        lacks = min((lacking(thing, methods) for methods in self._shapes), key=len)
        if lacks:
            methods = "the method" if len(lacks) == 1 else "the methods"
            raise InputError(f"{called}: {name} lacks {methods} {', '.join(lacks)}")


def methods_of(protocol: type) -> list[str]:
    """Names of the methods that a protocol asks for."""
    return [
        name
        for base in reversed(protocol.__mro__)
        for name, value in vars(base).items()
        if isfunction(value) and not name.startswith("_")
    ]


def lacking(thing: Any, methods: Iterable[str]) -> list[str]:
    """Those of the methods that a thing, or a class, has not."""
    return [name for name in methods if not callable(getattr(thing, name, None))]
