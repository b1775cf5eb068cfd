"""Tools as JSON values: what decides on calls knows them so, and what makes the calls has them.

An agent asks for the tools of servers when it runs. What they offer is kept with the run, so that
it goes on after a restart with what its model was told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from teola.errors import InputError, UnknownName
from teola.tools.base import NAME, Tool
from teola.tools.context import ToolContext
from teola.tools.foreign_schema import as_object, check_foreign
from teola.tools.json_size import json_size
from teola.tools.toolbox import Toolbox

CLIENT: Final = "client"
MOST_TOOLS: Final = 128
MOST_CHARACTERS: Final = 65_536
"""That a client may bring along, and of all of them as JSON, unless a server says otherwise."""
KNOWN: Final = 1024
"""Lists of tools that are known to be right."""
MOST_DESCRIPTION: Final = 4_000


def listed_tools(box: Toolbox) -> list[dict[str, Any]]:
    """The tools of a box as JSON values."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "schema": dict(tool.schema),
            "pure": tool.pure,
            "approval": tool.approval is not False,
            "source": tool.source,
        }
        for tool in box
    ]


def known_tools(offered: Iterable[Mapping[str, Any]], own: Toolbox) -> list[Tool]:
    """The tools of a list: the `own` ones among them as they are, others so that calls can be
    decided on and not made."""
    return [
        own[spec["name"]]
        if not spec["source"] and spec["name"] in own
        else Tool(
            spec["name"],
            spec["description"],
            spec["schema"],
            _elsewhere,
            pure=spec["pure"],
            approval=spec["approval"],
            source=spec["source"],
        )
        for spec in offered
    ]


async def _elsewhere(arguments: Mapping[str, Any], context: ToolContext) -> Any:
    raise InputError("this tool is not called here")


class CheckedTools(list[Any]):
    """A client's tools, as the client sent them, that were checked. digest: of them."""

    def __init__(self, specs: Iterable[Any], digest: str) -> None:
        super().__init__(specs)
        self.digest = digest

    @property
    def names(self) -> list[str]:
        """As the client has them."""
        return [spec["function"]["name"] for spec in self]


class ToolsCheck:
    """Checks tools as clients of OpenAI's API describe them. What it has found right it knows by
    its digest, and checks it no more. May be used on any thread.

    form: raises InputError for schemas that are not taken here, though they are some.
    """

    def __init__(self, form: Callable[[Any], None] = lambda schema: None) -> None:
        self._form = form
        self._known: dict[str, None] = {}

    def checked(
        self, specs: Any, most: int = MOST_TOOLS, characters: int = MOST_CHARACTERS
    ) -> CheckedTools:
        """The tools, checked. most: tools. characters: of all of them, as JSON. Raises InputError
        for what is no tool."""
        if not isinstance(specs, list):
            raise InputError("tools must be a list")
        if len(specs) > most:
            raise InputError(
                f"there are {len(specs)} tools, more than the {most} of `max_client_tools`; "
                "send fewer"
            )
        try:
            size = json_size(specs, characters)
        except (TypeError, ValueError):
            raise InputError("tools must be JSON") from None
        if size.characters > characters:
            raise InputError(
                f"tools have more than the {characters} characters of JSON of "
                "`max_client_tool_characters`; shorten their descriptions, or send fewer"
            )
        digest = tools_digest(specs)
        if digest not in self._known:
            self._check(specs)
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[digest] = None
        return CheckedTools(specs, digest)

    def _check(self, specs: Iterable[Any]) -> None:
        names = set[str]()
        for i, spec in enumerate(specs):
            name, _, schema = _described(i, spec)
            if name in names:
                raise InputError(f"tools.{i}: two tools are called {name!r}")
            names.add(name)
            try:
                self._form(check_foreign(schema))
            except InputError as error:
                raise InputError(f"tools.{i}: {error}") from None


_checks: Final = ToolsCheck()
"""Of agents whose client's tools nobody has checked before."""


class ClientTools(NamedTuple):
    """Tools that a client brings along and calls itself. names: in the box -> as the client has
    it."""

    tools: list[Tool]
    names: Mapping[str, str]


def checked_tools(specs: Any) -> CheckedTools:
    """A client's tools, checked unless they were. Raises InputError for what is none."""
    return specs if isinstance(specs, CheckedTools) else _checks.checked(specs)


def of_client(specs: CheckedTools, taken: Toolbox) -> ClientTools:
    """Tools that a client describes. Raises InputError for one whose name is `taken`."""
    tools: dict[str, Tool] = {}
    names: dict[str, str] = {}
    for i, spec in enumerate(specs):
        name, about, schema = _described(i, spec)
        if name in taken:
            raise InputError(
                f"tools.{i}: the application has a tool called {name!r} itself; give yours "
                "another name"
            )
        names[name] = name
        tools[name] = Tool(name, about, as_object(schema), _elsewhere, source=CLIENT)
    return ClientTools(list(tools.values()), names)


def _described(i: int, spec: Any) -> tuple[str, str, Any]:
    """Name, description and schema in the description of a tool. Raises InputError."""
    function = spec.get("function") if isinstance(spec, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or spec.get("type", "function") != "function":
        raise InputError(f'tools.{i} must be {{"type": "function", "function": {{...}}}}')
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"tools.{i}.function.name must be 1 to 64 letters, digits, _ and -")
    about = function.get("description") or name
    if not isinstance(about, str):
        raise InputError(f"tools.{i}.function.description must be a text")
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return name, about.strip()[:MOST_DESCRIPTION] or name, schema


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
    chosen = tuple(here for here, theirs in names.items() if theirs == name)
    if not chosen:
        raise UnknownName("tool", name, names.values())
    return chosen


def tools_digest(values: Iterable[Any]) -> str:
    """Digest of JSON values. Each is written by itself: one long write would hold everybody up."""
    digest = blake2b(digest_size=16)
    for value in values:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False)
        digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()
