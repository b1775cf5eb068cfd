"""Tools as JSON values: what decides on calls knows them so, and what makes the calls has them.

An agent asks for the tools of servers when it runs. What they offer is kept with the run, so that
it goes on after a restart with what its model was told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from teola.errors import InputError, UnknownName
from teola.tools.arguments import check_foreign
from teola.tools.base import NAME, Tool
from teola.tools.context import ToolContext
from teola.tools.toolbox import Toolbox

CLIENT: Final = "client"
MOST_TOOLS: Final = 128
"""That a client may bring along."""
MOST_DESCRIPTION: Final = 4_000


def listed(box: Toolbox) -> list[dict[str, Any]]:
    """The tools of a box as JSON values."""
    return [
        {
            "name": one.name,
            "description": one.description,
            "schema": dict(one.schema),
            "pure": one.pure,
            "approval": one.approval is not False,
            "source": one.source,
        }
        for one in box
    ]


def known(offered: Iterable[Mapping[str, Any]], own: Toolbox) -> list[Tool]:
    """The tools of a list: the `own` ones among them as they are, others so that calls can be
    decided on and not made."""
    return [
        own[one["name"]]
        if not one["source"] and one["name"] in own
        else Tool(
            one["name"],
            one["description"],
            one["schema"],
            _elsewhere,
            pure=one["pure"],
            approval=one["approval"],
            source=one["source"],
        )
        for one in offered
    ]


async def _elsewhere(arguments: Mapping[str, Any], context: ToolContext) -> Any:
    raise InputError("this tool is not called here")


class ClientTools(NamedTuple):
    """Tools that a client brings along and calls itself. names: in the box -> as the client has
    it."""

    tools: list[Tool]
    names: Mapping[str, str]


def of_client(specs: Any, taken: Toolbox) -> ClientTools:
    """Tools as clients of OpenAI's API describe them; one whose name is `taken` gets `client_` in
    front. Raises InputError for what is none."""
    if not isinstance(specs, list):
        raise InputError("tools must be a list")
    if len(specs) > MOST_TOOLS:
        raise InputError(f"there are {len(specs)} tools, and at most {MOST_TOOLS} are taken")
    found: dict[str, Tool] = {}
    names: dict[str, str] = {}
    for i, spec in enumerate(specs):
        function = spec.get("function") if isinstance(spec, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or spec.get("type", "function") != "function":
            raise InputError(f'tools.{i} must be {{"type": "function", "function": {{...}}}}')
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InputError(f"tools.{i}.function.name must be 1 to 64 letters, digits, _ and -")
        if name in names.values():
            raise InputError(f"tools.{i}: two tools are called {name!r}")
        about = function.get("description") or name
        if not isinstance(about, str):
            raise InputError(f"tools.{i}.function.description must be a text")
        given = function.get("parameters") or {"type": "object", "properties": {}}
        try:
            schema = check_foreign(given)
        except InputError as error:
            raise InputError(f"tools.{i}: {error}") from None
        here = f"{CLIENT}_{name}"[:64] if name in taken else name
        names[here] = name
        found[here] = Tool(
            here, about.strip()[:MOST_DESCRIPTION] or name, schema, _elsewhere, source=CLIENT
        )
    return ClientTools(list(found.values()), names)


def chosen_of(choice: Any, names: Mapping[str, str]) -> tuple[str, ...]:
    """Which of a client's tools has to be called first, by OpenAI's `tool_choice`; () if none has.
    Raises InputError, UnknownName."""
    if choice in (None, "auto", "none"):
        return ()
    if choice == "required":
        return tuple(names)
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise InputError(
            "tool_choice is none, auto, required, or "
            '{"type": "function", "function": {"name": ...}}'
        )
    found = tuple(here for here, theirs in names.items() if theirs == name)
    if not found:
        raise UnknownName("tool", name, names.values())
    return found


def digest_of(value: Any) -> str:
    """Of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
