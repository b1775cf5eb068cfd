"""What an agent may call: functions, tools of servers and of names, colleagues, a client's tools.

Servers, and tools by name, are asked for where the agent runs and when it begins. What a turn may
call is then a box of its own, and templates of turns are made for it, once for each box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from teola.errors import InputError
from teola.tools.base import Tool
from teola.tools.function_tool import tool
from teola.tools.mcp_server import ToolServer
from teola.tools.offered import checked_tools, chosen_of, known_tools, of_client, tools_digest
from teola.tools.toolbox import Toolbox

AgentToolSource = Tool | ToolServer | str | Callable[..., Any]
"""A text is the name of a tool, or of a server of tools, that is known where the agent runs."""
MOST_BOXES: Final = 64
_NO_NAMES: Final[Mapping[str, str]] = {}


class NamedTools(Protocol):
    """Tools and servers by name; see teola.tools.named_tools."""

    def __getitem__(self, name: str) -> Tool | ToolServer: ...


@dataclass(frozen=True)
class Box:
    """What one run may call.

    digest: of what was offered; "" of an agent's own tools.
    client: tools that the client calls, with the names by which it knows them.
    must: tools of which the first turn has to call one; (): none has to.
    """

    toolbox: Toolbox
    digest: str = ""
    client: Mapping[str, str] = field(default_factory=dict)
    must: tuple[str, ...] = ()


class AgentTools:
    """See the module. own: those that are known beforehand. asks: there are others. effect: some
    may change the world."""

    def __init__(self, sources: Iterable[AgentToolSource]) -> None:
        self.sources: tuple[Tool | ToolServer | str, ...] = tuple(
            source if isinstance(source, (Tool, ToolServer, str)) else tool(source)
            for source in sources
        )
        self.own = Toolbox(source for source in self.sources if isinstance(source, Tool))
        self.asks = len(self.own) < len(self.sources)
        self.effect = not all(_pure(source) for source in self.sources)
        self._boxes: dict[str, tuple[Toolbox, Mapping[str, str]]] = {}

    async def here(self, named: NamedTools | None) -> Toolbox:
        """All of them, servers being asked for what they offer now. Raises UnknownName, InputError,
        MissingExtra, EngineUnavailable."""
        if not self.asks:
            return self.own
        return await Toolbox.of(*(self._found(source, named) for source in self.sources))

    def _found(
        self, source: Tool | ToolServer | str, named: NamedTools | None
    ) -> Tool | ToolServer:
        if not isinstance(source, str):
            return source
        if named is None:
            raise InputError(f"tool {source!r} is not known where no runtime is")
        return named[source]

    def box(self, offered: Any, client: Mapping[str, Any] | None, choice: str) -> Box:
        """For one run. offered: what `Offering` found; None: `own`. client: its tools, and which of
        them it wants called. choice: see AgentConfig. Raises InputError, UnknownName."""
        box, names = self.own, _NO_NAMES
        key = tools_digest(offered) if offered is not None else ""
        if offered is not None:
            box, _ = self._kept(key, lambda: (known_tools(offered, self.own), _NO_NAMES))
        tool_choice = client.get("tool_choice") if client else None
        if client and client.get("tools") and tool_choice != "none":
            theirs, base = checked_tools(client["tools"]), box

            def made() -> tuple[Iterable[Tool], Mapping[str, str]]:
                client_tools = of_client(theirs, base)
                return [*base, *client_tools.tools], client_tools.names

            key = f"{key}/{theirs.digest}"
            box, names = self._kept(key, made)
        must = chosen_of(tool_choice, names)
        if not must and choice == "required":
            must = tuple(entry.name for entry in box)
        elif not must and choice not in ("auto", "none"):
            must = (box[choice].name,)
        return Box(box, key, names, must)

    def _kept(
        self, key: str, make: Callable[[], tuple[Iterable[Tool], Mapping[str, str]]]
    ) -> tuple[Toolbox, Mapping[str, str]]:
        """A box, and by which names a client knows its tools in it."""
        kept = self._boxes.get(key)
        if kept is None:
            if len(self._boxes) >= MOST_BOXES:
                self._boxes.clear()
            tools, names = make()
            kept = self._boxes[key] = Toolbox(tools), names
        return kept


def _pure(source: Tool | ToolServer | str) -> bool:
    """Whether the source certainly changes nothing."""
    if isinstance(source, Tool):
        return source.pure
    return isinstance(source, ToolServer) and source.only is not None and source.only <= source.pure
