"""Tools of a server of the Model Context Protocol (MCP).

`mcp_tools(...)` only says where the server is. It is started, or connected to, on first use and
from each event loop that uses it; `mcp_connection.py` keeps it alive. What a server says of itself
is not believed: a tool of its is an effect unless the developer calls it pure, its schemas are
bounded and may refer to nothing outside, and its descriptions are cut.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from teola.errors import InputError, ToolError, UnknownName
from teola.extras import needs
from teola.tools.base import MOST_BYTES, MOST_CHARS, NAME, Tool, check_options
from teola.tools.context import ToolContext
from teola.tools.foreign_schema import LARGEST_SCHEMA, check_foreign
from teola.tools.gate import Gate
from teola.tools.json_size import json_size
from teola.tools.loop_life import here
from teola.tools.mcp_connection import McpConnection
from teola.tools.mcp_messages import MESSAGE_BYTES
from teola.tools.mcp_transport import ByCommand, ByUrl
from teola.tools.references import MOST_ARGUMENT_CHARS
from teola.tools.tool_result import Shown

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock
    from mcp.types import Tool as ListedTool

TIMEOUT_S: Final = 60.0
START_S: Final = 30.0
MOST_DESCRIPTION: Final = 4_000
"""Characters of a foreign tool's description."""
MOST_SERVER_TOOLS: Final = 512
MOST_LIST_CHARS: Final = 2**19
"""Tools of one server, and characters of their descriptions and schemas."""
NAMED: Final = 128
"""Characters of a foreign tool's name that are read: of names here, 64 are."""
TOLD: Final = 10
"""Tools that are left out of which the names are logged."""

SHORT: Final = 100
"""Parts of an answer that are put together on the event loop."""

log = logging.getLogger(__name__)


class _Made(NamedTuple):
    """A list that a server told, and the tools made of it."""

    listed: Sequence[ListedTool]
    tools: Sequence[Tool]


@dataclass(frozen=True, slots=True, eq=False)
class ToolServer:
    """A server's tools; see `mcp_tools`.

    name: goes before names that two servers have both.
    reached: how it is reached.
    pure, only: names of its tools, as it has them.
    approval: of all its tools, or names of those that need it.
    most_tools, most_list_chars: of its list; what is more is left out.
    gate: bounds its calls.
    """

    name: str
    reached: ByCommand | ByUrl
    pure: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    approval: bool | frozenset[str] = False
    timeout_s: float = TIMEOUT_S
    start_s: float = START_S
    retries: int | None = None
    most_chars: int = MOST_CHARS
    most_tools: int = MOST_SERVER_TOOLS
    most_list_chars: int = MOST_LIST_CHARS
    most_bytes: int = MOST_BYTES
    most_argument_chars: int = MOST_ARGUMENT_CHARS
    gate: Gate = field(default_factory=lambda: Gate(None), repr=False)
    _made: WeakKeyDictionary[McpConnection, _Made] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(f"tool server {self.name!r}: a name has letters, digits, _ and - only")

    async def tools(self) -> list[Tool]:
        """What it offers now, in its order. It is asked again only when it said that the list has
        changed. Raises MissingExtra, EngineUnavailable, UnknownName."""
        connection = await self._connection()
        listed = await connection.tools()
        cached = self._made.get(connection)
        if cached is None or cached.listed is not listed:
            if cached is None:
                self._check_names([tool.name for tool in listed])
            tools = await here().threads.run(partial(self._offered, listed))
            cached = self._made[connection] = _Made(listed, tools)
        return list(cached.tools)

    async def close(self) -> None:
        """End the connection from the loop that runs, before the runtime does; the next use begins
        anew."""
        await here().end(self)

    async def _connection(self) -> McpConnection:
        life = here()
        if not life.keeps(self):
            await life.threads.run(partial(_import_sdk, self.name))  # it takes its time
        return life.keep(self, lambda: McpConnection(self.name, self.reached.open, self.start_s))

    def _check_names(self, offered: Sequence[str]) -> None:
        needs_approval = self.approval if isinstance(self.approval, frozenset) else frozenset()
        for name in sorted({*self.pure, *(self.only or ()), *needs_approval}):
            if name not in offered:
                raise UnknownName("tool", name, offered, f"tool server {self.name!r}")

    def _offered(self, listed: Sequence[ListedTool]) -> list[Tool]:
        """Tools with names of their own: a server's may differ in what no name here can have. Runs
        in a thread: a list may be long."""
        tools: dict[str, Tool] = {}
        left_out: list[str] = []
        characters = self.most_list_chars
        for spec in listed:
            if self.only is not None and spec.name not in self.only:
                continue
            size = _size(spec, characters) if len(tools) < self.most_tools else characters + 1
            if size > characters:
                left_out.append(spec.name)
                continue
            tool = self._tool(spec)
            if tool is None:
                continue
            characters -= size
            name, number = tool.name, 1
            while name in tools:
                number += 1
                name = f"{tool.name[:60]}_{number}"
            tools[name] = replace(tool, name=name)
        if left_out:
            log.warning(
                "tool server %s: %d of its tools are left out, for they are more than the %d of "
                "most_tools or the %d characters of most_list_chars: %s",
                *(self.name, len(left_out), self.most_tools, self.most_list_chars),
                ", ".join(name[:NAMED] for name in left_out[:TOLD])
                + (", ..." if len(left_out) > TOLD else ""),
            )
        return list(tools.values())

    def _tool(self, listed: ListedTool) -> Tool | None:
        """None for one that cannot be offered."""
        named = listed.name[:NAMED]
        try:
            schema = check_foreign(listed.input_schema)
        except InputError as error:
            log.warning("tool server %s: tool %s is left out: %s", self.name, named, error)
            return None
        about = (listed.description or listed.title or named).strip()[:MOST_DESCRIPTION] or named
        return Tool(
            re.sub(r"[^a-zA-Z0-9_-]", "_", named)[:64] or "tool",
            about,
            schema,
            partial(self._call, listed.name),
            pure=listed.name in self.pure,
            timeout_s=self.timeout_s,
            retries=self.retries if listed.name in self.pure else None,
            gate=self.gate,
            approval=self._approval(listed.name),
            most_chars=self.most_chars,
            most_bytes=self.most_bytes,
            most_argument_chars=self.most_argument_chars,
            source=self.name,
        )

    def _approval(self, name: str) -> bool:
        return self.approval if isinstance(self.approval, bool) else name in self.approval

    async def _call(self, name: str, arguments: Mapping[str, Any], _: ToolContext) -> Any:
        connection = await self._connection()
        result = await connection.call(name, dict(arguments))
        if len(result.content) <= SHORT:
            return answer(result)
        return await here().threads.run(partial(answer, result))


def mcp_tools(
    *,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    name: str | None = None,
    pure: Collection[str] = (),
    only: Collection[str] | None = None,
    approval: bool | Collection[str] = False,
    timeout_s: float = TIMEOUT_S,
    start_s: float = START_S,
    retries: int | None = None,
    at_once: int | None = None,
    most_chars: int = MOST_CHARS,
    most_tools: int = MOST_SERVER_TOOLS,
    most_list_chars: int = MOST_LIST_CHARS,
    most_bytes: int = MOST_BYTES,
    most_argument_chars: int = MOST_ARGUMENT_CHARS,
    most_message_bytes: int = MESSAGE_BYTES,
) -> ToolServer:
    """The tools of an MCP server; nothing is started yet.

    command, env, cwd: a program that is run and talked to by its standard streams; of our
    environment it gets HOME, PATH and the like, and `env`. url, headers: or a server by streamable
    HTTP. pure: tools that change nothing; all others are effects, whatever the server says. only:
    tools to offer; by default all. approval: True, or the tools to which a person has to agree.
    timeout_s: of a try of a call. start_s: of a start, and of a list of tools. retries: of pure
    tools, after any failure. at_once: calls of this server that run at the same time. most_tools,
    most_list_chars: tools of its list, and characters of their descriptions and schemas together;
    what is more is left out. most_chars, most_bytes, most_argument_chars: see Tool.
    most_message_bytes: of one message of the server; a program that writes a longer one is ended.

    Raises InputError for what cannot be.
    """
    called = f"tool server {name!r}" if name else "mcp_tools"
    if (command is None) == (url is None):
        raise InputError(f"{called}: give a command or a url")
    for setting, way in ((env, "command"), (cwd, "command"), (headers, "url")):
        if setting is not None and (command if way == "command" else url) is None:
            raise InputError(f"{called}: env and cwd go with a command, headers with a url")
    check_options(called, timeout_s, retries, most_chars, most_bytes)
    if not (start_s > 0 and isfinite(start_s)):
        raise InputError(f"{called}: start_s must be positive, got {start_s}")
    for option, number in (("most_tools", most_tools), ("most_list_chars", most_list_chars)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise InputError(f"{called}: {option} must be 1, 2, 3, ..., got {number!r}")
    if command is not None:
        reached: ByCommand | ByUrl = ByCommand(
            _words(called, command), dict(env or {}), cwd, most_message_bytes
        )
    else:
        assert url is not None
        reached = ByUrl(url, dict(headers or {}), most_message_bytes)
    return ToolServer(
        name or re.sub(r"[^a-zA-Z0-9_-]", "_", reached.label)[:64],
        reached,
        frozenset(pure),
        None if only is None else frozenset(only),
        approval if isinstance(approval, bool) else frozenset(approval),
        timeout_s,
        start_s,
        retries,
        most_chars,
        most_tools,
        most_list_chars,
        most_bytes,
        most_argument_chars,
        Gate(at_once),
    )


def _words(called: str, command: Sequence[str]) -> tuple[str, ...]:
    if isinstance(command, str):
        raise InputError(f"{called}: command must be a list of texts, such as {command.split()}")
    return tuple(command)


def _size(listed: ListedTool, most: int) -> int:
    """Characters of what an agent is told of a tool; some number above `most` if it is more. A
    schema that is too large by itself is refused by itself."""
    about = min(len(listed.description or listed.title or ""), MOST_DESCRIPTION)
    schema = json_size(listed.input_schema, min(most, LARGEST_SCHEMA), str).characters
    return about if schema > LARGEST_SCHEMA else about + schema


def _import_sdk(name: str) -> None:
    with needs("mcp", f"tool server {name!r}"):
        import mcp  # noqa: F401


# --- what a server answers --------------------------------------------------------------------


def answer(result: CallToolResult) -> Any:
    """A result as text and value, or the value alone. Raises ToolError for one that is an error."""
    text = "\n".join(_told(block) for block in result.content)
    if result.is_error:
        raise ToolError(text or "the server gives no reason")
    structured = result.structured_content
    if structured is None:
        return Shown(text, text)
    return Shown(text, structured) if text else structured


def _told(block: ContentBlock) -> str:
    """A part of an answer as text; what is none is named."""
    match block.type:
        case "text":
            return block.text
        case "resource":
            inside = block.resource
            return getattr(inside, "text", None) or f"[resource {inside.uri}, not text]"
        case "resource_link":
            return f"[link to {block.uri}: {block.name}]"
        case _:
            return f"[{block.type}, {block.mime_type}, {len(block.data)} characters of base64]"
