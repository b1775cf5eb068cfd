"""Input: what an application takes from a query under one name, declared and checked.

    inputs={"question": "text", "history": Input("text", default=None)}

An input that is declared by its kind alone must be given. One with a default is optional: where a
query leaves it out, it has its default, and with the default None it is absent. The graph is then
built without it, as if the application did not declare it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from teola.errors import InputError, TemplateError, UnknownName
from teola.workflow.component import Kind


@dataclass(frozen=True, slots=True)
class Input:
    """An input of an application.

    kind: "text", "texts", "documents" or "any". default: the value where a query gives none; None
    leaves it absent; without one the input must be given. Where an optional text is empty, or any
    optional input is None, it counts as not given. Raises UnknownName, TemplateError.
    """

    kind: str | Kind
    default: Any = ...

    def __post_init__(self) -> None:
        if isinstance(self.kind, str):
            valid = {kind.value: kind for kind in Kind}
            if self.kind not in valid:
                raise UnknownName("kind", self.kind, valid)
            object.__setattr__(self, "kind", valid[self.kind])
        elif not isinstance(self.kind, Kind):
            raise TemplateError(f"an input's kind is a word such as 'text', not {self.kind!r}")
        if self.kind is Kind.DOCUMENTS and self.optional:
            raise TemplateError(
                "documents take no default: a query may name a collection in their place"
            )
        if self.optional and self.default is not None:
            try:
                check_value("default", self.kind, self.default, empty=True)
            except InputError as error:
                raise TemplateError(f"Input: {error}") from None

    @property
    def optional(self) -> bool:
        """Whether a query may leave it out."""
        return self.default is not ...

    def left_out(self, value: Any) -> bool:
        """Whether `value` counts as none."""
        blank = self.kind is Kind.TEXT and isinstance(value, str) and not value.strip()
        return self.optional and (value is None or blank)


def declared(inputs: Mapping[str, str | Kind | Input]) -> dict[str, Input]:
    """Inputs as an application declares them. Raises UnknownName, TemplateError."""
    found = {}
    for name, one in inputs.items():
        try:
            found[name] = one if isinstance(one, Input) else Input(one)
        except UnknownName as error:
            raise UnknownName("kind", error.name, error.valid, f"input {name!r}") from None
        except TemplateError as error:
            raise TemplateError(f"input {name!r}: {error}") from None
    return found


def kinds_of(inputs: Mapping[str, Input]) -> dict[str, Kind]:
    """The inputs by kind."""
    return {name: Kind(one.kind) for name, one in inputs.items()}


def completed(inputs: Mapping[str, Input], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with the defaults of what it leaves out, and without what stays absent."""
    found = {
        name: value
        for name, value in given.items()
        if name not in inputs or not inputs[name].left_out(value)
    }
    for name, one in inputs.items():
        if one.optional and one.default is not None and name not in found:
            found[name] = deepcopy(one.default)
    return found


def absent(
    inputs: Mapping[str, Input], given: Mapping[str, Any] = MappingProxyType({})
) -> frozenset[str]:
    """Inputs that have neither a default nor a value in `given`, and need none."""
    return frozenset(
        name for name, one in inputs.items() if one.default is None and name not in given
    )


def check_value(name: str, kind: Kind | str, value: Any, *, empty: bool = False) -> None:
    """Raise InputError if `value` is not of `kind`. empty: a text may be."""
    if kind is Kind.TEXT and not isinstance(value, str):
        raise InputError(f"input {name!r} must be a text, not {type(value).__name__}")
    if kind is Kind.TEXT and not empty and not value.strip():
        raise InputError(f"input {name!r} is empty; write something")
    if kind is Kind.TEXTS and not (
        isinstance(value, list) and all(isinstance(text, str) for text in value)
    ):
        raise InputError(f"input {name!r} must be a list of texts")
