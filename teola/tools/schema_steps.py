"""An end to how long a value is held against a JSON schema: references to references multiply the
keywords to look at, and a schema of a kilobyte can ask for more of them than there is time for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from teola.errors import InputError


@dataclass(slots=True)
class _Steps:
    """How many keywords may still be looked at."""

    left: int


_steps: Final[ContextVar[_Steps]] = ContextVar("teola_schema_steps")
"""Steps left for the value that is being checked in this context. The validators themselves are
shared, also by threads."""


@contextmanager
def at_most(steps: int) -> Iterator[None]:
    """Meanwhile validators of a class that was `counted` look at so many keywords."""
    before = _steps.set(_Steps(steps))
    try:
        yield
    finally:
        _steps.reset(before)


def counted(kind: Any, costs: Mapping[str, int] | None = None, **more: Any) -> Any:
    """The class of validators, with a step taken for each keyword that one looks at, which raises
    InputError after the last one. costs: steps of keywords that take more than one. more: as
    `jsonschema.validators.extend` takes it."""
    from teola.validators import extend

    costs = costs or {}
    checks = {name: _counting(check, costs.get(name, 1)) for name, check in kind.VALIDATORS.items()}
    return extend(kind, checks, **more)  # type: ignore[no-untyped-call]


def _counting(check: Callable[..., Any], cost: int) -> Callable[..., Any]:
    def looked_at(*arguments: Any) -> Any:
        steps = _steps.get()
        steps.left -= cost
        if steps.left < 0:
            raise InputError("the JSON schema is too involved; use fewer references in it")
        return check(*arguments)

    return looked_at
