"""JSON schemas that clients send, for answers and of tools: looked at before anything of a query is
started.

Whether a schema of answers is one takes up to a millisecond for each of its values, and seconds for
a few that are made for it, so that is found out off the event loop, for one client at a time. Who
checks an answer later finds it known (`structured`). Those of tools take less, and do not wait for
these.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from teola.errors import InputError
from teola.runtime.hosts.structured import check_schema
from teola.serve.intake.bodies import read_json
from teola.tools.offered import CheckedTools, ToolsCheck

SCHEMA_KIND: Final = "json_schema"
"""Name of the parameters that are JSON schemas."""
MOST_VALUES: Final = 2_000
"""Values in one schema: objects, lists, texts, numbers."""

_thread = ThreadPoolExecutor(1, thread_name_prefix="teola-schemas")
_tools_thread = ThreadPoolExecutor(1, thread_name_prefix="teola-client-tools")


async def check_schemas(overrides: Mapping[str, Any]) -> None:
    """Raise InputError if a schema among overrides is none, or one that is not taken."""
    for schema in schemas(overrides):
        if not isinstance(schema, Mapping):
            continue  # none at all, or for its component to refuse
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(_thread, _check_schema, schema)


def _check_schema(schema: Any) -> None:
    check_form(schema)
    check_schema(json.dumps(schema))


async def clients_tools(tools: list[Any], most: int, characters: int) -> CheckedTools:
    """Tools of a client, `most` of them and with so many `characters` as JSON. Raises InputError
    for what is none, or for a schema that is not taken."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_tools_thread, _tools.checked, tools, most, characters)


def schemas(overrides: Mapping[str, Any]) -> Iterator[Any]:
    """The JSON schemas among overrides."""
    for value in parameters(overrides, SCHEMA_KIND):
        yield read_json(value, SCHEMA_KIND) if isinstance(value, str) else value


def parameters(overrides: Mapping[str, Any], name: str) -> Iterator[Any]:
    """What overrides give to the parameters called so, of whichever component."""
    for key, value in overrides.items():
        if key.rpartition(".")[2] == name:
            yield value
        elif isinstance(value, Mapping):
            yield from parameters(value, name)


def check_form(schema: Any) -> None:
    """Raise InputError for a schema that takes too long to look at, or may take forever."""
    if _has_patterns(schema):
        raise InputError(
            "a JSON schema may hold no pattern and no patternProperties here: some take forever"
        )
    if _values(schema) > MOST_VALUES:
        raise InputError(f"a JSON schema may hold {MOST_VALUES} values here; send a simpler one")


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


def _values(value: Any) -> int:
    """How many values there are in it, itself included."""
    if isinstance(value, Mapping):
        return 1 + sum(map(_values, value.values()))
    return 1 + sum(map(_values, value)) if isinstance(value, (list, tuple)) else 1


_tools: Final = ToolsCheck(check_form)
