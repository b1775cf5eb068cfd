"""What one query may ask for; more is refused before anything of it has been started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter, ValidationError

from teola.app import App
from teola.config import (
    CLIENT_TOOL_CHARACTERS,
    INTERMEDIATE_BYTES,
    MOST_CLIENT_TOOLS,
    OUTPUT_TOKENS,
    OVERRIDE_CHARACTERS,
    OWN_CALL_BYTES,
    OWN_CALL_TURNS,
    OWN_CALLS_S,
    PRIMITIVES,
    PROMPT_TOKENS,
)
from teola.engine import NAME_CHARACTERS, UNNAMED
from teola.errors import InputError
from teola.filters import comparisons
from teola.graph import Op
from teola.query.spec import Bounds
from teola.runtime.values import tokens_of
from teola.serve.intake.schemas import check_form, parameters, schemas
from teola.tools.json_size import json_size
from teola.workflow.kinds import Kind

LISTED: Final = 10_000
"""Items of one input."""
OURS: Final = ("ignore_eos",)
"""Parameters of components that no client sets: for measurements, in which a model must go on."""
_prompted: WeakKeyDictionary[App, bool] = WeakKeyDictionary()
_WHOLE: Final = TypeAdapter(int)


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """prompt_tokens: of all texts that it gives to an application with an LLM, at four characters
    each. output_tokens: of one answer of an LLM (`max_tokens`). override_characters: of its
    overrides, as JSON: plans are kept with them. primitives: of its p-graph. intermediate_bytes:
    computed for it and not read by all who need it. client_tools, client_tool_characters: number of
    the tools that it brings along, and characters of all of them as JSON."""

    prompt_tokens: int = PROMPT_TOKENS
    output_tokens: int = OUTPUT_TOKENS
    override_characters: int = OVERRIDE_CHARACTERS
    primitives: int = PRIMITIVES
    intermediate_bytes: int = INTERMEDIATE_BYTES
    client_tools: int = MOST_CLIENT_TOOLS
    client_tool_characters: int = CLIENT_TOOL_CHARACTERS

    @property
    def bounds(self) -> Bounds:
        """Those that hold while the query runs."""
        return Bounds(self.primitives, self.intermediate_bytes)

    def check(self, app: App, given: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
        """Raise InputError if a query asks for more; the graph is measured when it is built."""
        _check_scope(given.get("collection"), given.get("filters"))
        if overrides:
            self._check_overrides(overrides)
        for name, value in given.items():
            if isinstance(value, list) and len(value) > LISTED:
                raise InputError(f"input {name!r} has {len(value)} items; send {LISTED} at most")
        named = (name for name, kind in app.inputs.items() if kind in _TEXTS)
        texts = [given[name] for name in named if name in given]
        tokens = sum(map(tokens_of, texts))
        if tokens > self.prompt_tokens and asks_a_model(app):
            raise InputError(
                f"the texts of this query have about {tokens} tokens, more than the "
                f"{self.prompt_tokens} that are taken; send long ones as documents"
            )

    def _check_overrides(self, overrides: Mapping[str, Any]) -> None:
        most = self.override_characters
        if json_size(overrides, most, str).characters > most:
            raise InputError(
                f"overrides have more than the {most} characters of JSON of "
                "`max_override_characters`; shorten them"
            )
        for schema in schemas(overrides):
            check_form(schema)
        for tokens in parameters(overrides, "max_tokens"):
            number = _as_read(tokens)
            if number is not None and number > self.output_tokens:
                raise InputError(
                    f"max_tokens is {number}, more than the {self.output_tokens} that are taken"
                )
        for name in OURS:
            if list(parameters(overrides, name)):
                raise InputError(f"{name} cannot be set for a query; leave it out")


@dataclass(frozen=True, slots=True)
class OwnCallLimits:
    """How long what an agent did beside its client's calls is kept, in seconds since its last use,
    and how much of one tenant: turns, and bytes of them all."""

    kept_s: float = OWN_CALLS_S
    turns_of_tenant: int = OWN_CALL_TURNS
    bytes_of_tenant: int = OWN_CALL_BYTES


OWN_CALLS: Final = OwnCallLimits()
_TEXTS: Final = (Kind.TEXT, Kind.TEXTS)


def _check_scope(collection: Any, filters: Any) -> None:
    """The inputs that say which documents are searched."""
    named = isinstance(collection, str) and collection.strip()
    if collection is not None and not named:
        raise InputError(f"collection must be a name, not {str(collection)[:80]!r}")
    if collection == UNNAMED:
        raise InputError(
            f"collection {UNNAMED!r} is where documents lie that came without one, each for who "
            "sends it again; name another"
        )
    if named and len(collection) > NAME_CHARACTERS:
        raise InputError(
            f"collection has {len(collection)} characters, more than the {NAME_CHARACTERS} that "
            "its name may have; shorten it"
        )
    if filters is not None:
        comparisons(filters)


def _as_read(value: Any) -> int | None:
    """The number that a component makes of a parameter, such as of the text "9" or of 9.0; None:
    it will refuse it."""
    try:
        return _WHOLE.validate_python(value)
    except ValidationError:
        return None


def asks_a_model(app: App) -> bool:
    """Whether it has a component that prompts an LLM."""
    prompts = _prompted.get(app)
    if prompts is None:
        graph = app.builder.build(app.builder.configure({}), {})
        prompts = _prompted[app] = any(p.op is Op.PREFILLING for p in graph.primitives)
    return prompts
