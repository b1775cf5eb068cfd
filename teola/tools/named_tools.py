"""Tools by name: registered (`teola.register("tool", ...)`), or offered by installed packages as
entry points `teola.tools`. A runtime may have others under names of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from teola.errors import InputError, TeolaError, UnknownName
from teola.registry import Registry
from teola.tools.base import Tool
from teola.tools.loop_life import close_here
from teola.tools.mcp_server import ToolServer

NamedTool = Tool | ToolServer


def _check(called: str, thing: Any) -> None:
    if not isinstance(thing, (Tool, ToolServer)):
        raise InputError(
            f"{called} must be a tool (of a function: tool(function)) or mcp_tools(...), not "
            f"{thing!r}"
        )


REGISTRY: Final[Registry[NamedTool]] = Registry("tool", "teola.tools", {}, _check)


class ToolsByName:
    """What is registered, and a runtime's `own` tools, by their names there, which go first. Raises
    InputError for what is none."""

    def __init__(self, own: Mapping[str, NamedTool]) -> None:
        for name, thing in own.items():
            _check(f"tool {name!r}", thing)
        self.own = dict(own)

    def __getitem__(self, name: str) -> NamedTool:
        """The tool, or the server of tools, called `name`. Raises UnknownName."""
        if name in self.own:
            return self.own[name]
        names = {*self.own, *REGISTRY.names()}
        if name not in names:
            raise UnknownName("tool", name, names)
        return REGISTRY.find(name)

    async def start(self, sources: Iterable[NamedTool | str]) -> dict[str, Exception]:
        """Start the servers among these, side by side, or by their names. Returns why some could
        not be, by name."""
        failures: dict[str, Exception] = {}

        async def one(source: NamedTool | str) -> None:
            name = source if isinstance(source, str) else source.name
            try:
                server = self[source] if isinstance(source, str) else source
                if isinstance(server, ToolServer):
                    await server.tools()
            except TeolaError as error:
                failures[name] = error

        await asyncio.gather(*map(one, sources))
        return failures

    async def close(self) -> None:
        """End what tools have started on the loop that runs."""
        await close_here()
