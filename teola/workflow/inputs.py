"""What an application takes from a query, declared and checked: its inputs, and overrides.

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
from typing import Any, Final

from teola.errors import InputError, TemplateError, UnknownName
from teola.filters import comparisons
from teola.workflow.kinds import Kind

NAMES: Final = ("databases", "hints")
SHOWN: Final = 40
"""Characters of a text that an error repeats."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input of an application.

    kind: "text", "texts", "documents" or "any". default: the value where a query gives none; None
    leaves it absent; without one the input must be given. Where an optional text is empty, or any
    optional input is None, it counts as not given. names: "databases" where the text says which
    database is read, "hints" where it says whose hints are: whoever asks over HTTP then gives the
    name of one in the configuration that is open to them, and no path or address. Raises
    UnknownName, TemplateError.
    """

    kind: str | Kind
    default: Any = ...
    names: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.kind, str):
            valid = {kind.value: kind for kind in Kind}
            if self.kind not in valid:
                raise UnknownName("kind", self.kind, valid)
            object.__setattr__(self, "kind", valid[self.kind])
        elif not isinstance(self.kind, Kind):
            raise TemplateError(f"an input's kind is a word such as 'text', not {self.kind!r}")
        if self.names and self.names not in NAMES:
            raise UnknownName("names", self.names, NAMES, "Input")
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
    parsed = {}
    for name, entry in inputs.items():
        try:
            parsed[name] = entry if isinstance(entry, Input) else Input(entry)
        except UnknownName as error:
            raise UnknownName("kind", error.name, error.valid, f"input {name!r}") from None
        except TemplateError as error:
            raise TemplateError(f"input {name!r}: {error}") from None
    return parsed


def kinds_of(inputs: Mapping[str, Input]) -> dict[str, Kind]:
    """The inputs by kind."""
    return {name: Kind(entry.kind) for name, entry in inputs.items()}


def completed(inputs: Mapping[str, Input], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with the defaults of what it leaves out, and without what stays absent."""
    values = {
        name: value
        for name, value in given.items()
        if name not in inputs or not inputs[name].left_out(value)
    }
    for name, entry in inputs.items():
        if entry.optional and entry.default is not None and name not in values:
            values[name] = deepcopy(entry.default)
    return values


def absent(
    inputs: Mapping[str, Input], given: Mapping[str, Any] = MappingProxyType({})
) -> frozenset[str]:
    """Inputs that have neither a default nor a value in `given`, and need none."""
    return frozenset(
        name for name, entry in inputs.items() if entry.default is None and name not in given
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


def check_inputs(given: Mapping[str, Any], inputs: Mapping[str, Input], app: str) -> None:
    """Raise InputError unless `given` fits the inputs that the application declares."""
    documents = any(entry.kind is Kind.DOCUMENTS for entry in inputs.values())
    extra = {"collection", "filters"} if documents else set()
    where = f"application {app!r}"
    for name, value in given.items():
        if name not in inputs and name not in extra:
            raise UnknownName("input", name, [*inputs, *extra], where)
        if name in inputs and not inputs[name].left_out(value):
            check_value(name, inputs[name].kind, value)
    for name, kind in kinds_of(inputs).items():
        needed = kind is not Kind.DOCUMENTS and not inputs[name].optional
        if needed and name not in given:
            raise InputError(f"{where} needs the input {name!r} ({kind.value})")
    if documents and given.get("filters") is not None:
        comparisons(given["filters"])
    if documents and given.get("documents") is None and given.get("collection") is None:
        raise InputError(f"{where} needs documents, a collection, or both")


def by_name(inputs: Mapping[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """What a query gives, as a mapping and by keyword. Raises InputError for anything else."""
    if inputs is not None and not isinstance(inputs, Mapping):
        example = repr(inputs) if isinstance(inputs, str) and len(inputs) <= SHOWN else "..."
        raise InputError(f"inputs go by name, such as question={example}, or in one mapping")
    return {**(inputs or {}), **more}


def nested(overrides: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """{"a.b": 1} and {"a": {"b": 1}} alike. Raises InputError."""
    by_component: dict[str, dict[str, Any]] = {}
    for key, value in (overrides or {}).items():
        component, dot, parameter = key.partition(".")
        if dot:
            by_component.setdefault(component, {})[parameter] = value
        elif isinstance(value, Mapping):
            by_component.setdefault(component, {}).update(value)
        else:
            raise InputError(
                f"override {key!r} must name a component and a parameter, such as search.top_k"
            )
    return by_component
