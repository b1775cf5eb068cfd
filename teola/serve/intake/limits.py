"""What one query may ask for; more is refused before anything of it has been started."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from teola.app import App
from teola.errors import InputError
from teola.graph import Op
from teola.runtime.values import tokens_of
from teola.serve.intake.bodies import as_json
from teola.workflow.component import Kind

_prompted: WeakKeyDictionary[App, bool] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """prompt_tokens: of all texts that it gives to an application with an LLM, at four characters
    each. override_characters: of its overrides, as JSON: plans are kept with them. primitives: of
    its p-graph."""

    prompt_tokens: int = 65_536
    override_characters: int = 65_536
    primitives: int = 512

    def check(self, app: App, given: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
        """Raise InputError if a query asks for more; the graph is measured when it is built."""
        app.builder.most_primitives = self.primitives
        _check_scope(given.get("collection"), given.get("filters"))
        if overrides:
            self._check_overrides(overrides)
        named = (name for name, kind in app.inputs.items() if kind in _TEXTS)
        texts = [given[name] for name in named if name in given]
        tokens = sum(map(tokens_of, texts))
        if tokens > self.prompt_tokens and asks_a_model(app):
            raise InputError(
                f"the texts of this query have about {tokens} tokens, more than the "
                f"{self.prompt_tokens} that are taken; send long ones as documents"
            )

    def _check_overrides(self, overrides: Mapping[str, Any]) -> None:
        characters = len(json.dumps(overrides, default=str))
        if characters > self.override_characters:
            raise InputError(
                f"overrides have {characters} characters of JSON, more than the "
                f"{self.override_characters} that are taken; shorten them"
            )
        if any(map(_has_patterns, _schemas(overrides))):
            raise InputError(
                "a JSON schema may hold no pattern and no patternProperties here: some take forever"
            )


SCHEMA: Final = "json_schema"
"""Name of the parameters that are JSON schemas."""
_TEXTS: Final = (Kind.TEXT, Kind.TEXTS)


def _check_scope(collection: Any, filters: Any) -> None:
    """The inputs that say which documents are searched."""
    named = isinstance(collection, str) and collection.strip()
    if collection is not None and not named:
        raise InputError(f"collection must be a name, not {str(collection)[:80]!r}")
    if filters is not None and not isinstance(filters, Mapping):
        raise InputError(f"filters must be an object, not {type(filters).__name__}")


def _schemas(overrides: Mapping[str, Any]) -> Iterator[Any]:
    """The JSON schemas among overrides."""
    for key, value in overrides.items():
        if key.rpartition(".")[2] == SCHEMA:
            yield as_json(value, SCHEMA) if isinstance(value, str) else value
        elif isinstance(value, Mapping):
            yield from _schemas(value)


def _has_patterns(value: Any) -> bool:
    """Whether there is a regular expression in a JSON schema. (A property that is called `pattern`
    has a schema there and no text.)"""
    if isinstance(value, (list, tuple)):
        return any(map(_has_patterns, value))
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("pattern"), str) or "patternProperties" in value:
        return True
    return any(map(_has_patterns, value.values()))


def asks_a_model(app: App) -> bool:
    """Whether it has a component that prompts an LLM."""
    found = _prompted.get(app)
    if found is None:
        graph = app.builder.build(app.builder.configure({}), {})
        found = _prompted[app] = any(p.op is Op.PREFILLING for p in graph.primitives)
    return found
