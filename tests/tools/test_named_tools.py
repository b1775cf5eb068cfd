"""Tools by name: a runtime's own, those that are registered, and servers that are started."""

from __future__ import annotations

from typing import Any

import pytest

import teola
from teola.errors import EngineUnavailable, InputError, UnknownName
from teola.tools import ToolServer, mcp_tools, tool
from teola.tools.named_tools import ToolsByName


@tool(pure=True)
def look(what: str) -> str:
    """Look something up."""
    return what


@tool(pure=True)
def find(what: str) -> str:
    """Find something."""
    return what


def test_a_runtimes_own_tools_go_before_those_that_are_registered() -> None:
    by_name = ToolsByName({"mine": look})
    with teola.register("tool", "mine", find), teola.register("tool", "other", find):
        assert by_name["mine"] is look
        assert by_name["other"] is find
        with pytest.raises(UnknownName, match=r"'oter'; did you mean 'other'\?.*mine.*other"):
            by_name["oter"]
    with pytest.raises(UnknownName, match="unknown tool 'other'"):
        by_name["other"]


@pytest.mark.parametrize("thing", [3, "look", lambda what: what])
def test_what_is_no_tool_is_refused(thing: Any) -> None:
    with pytest.raises(InputError, match=r"tool 'mine' must be a tool .* or mcp_tools\(\.\.\.\)"):
        ToolsByName({"good": look, "mine": thing})


async def test_servers_are_started_and_why_some_could_not_be_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def tools(self: ToolServer) -> list[Any]:
        asked.append(self.name)
        if self.name == "away":
            raise EngineUnavailable("not there")
        return []

    monkeypatch.setattr(ToolServer, "tools", tools)
    servers = {name: mcp_tools(command=["x"], name=name) for name in ("good", "away", "third")}
    by_name = ToolsByName({**servers, "look": look})
    failures = await by_name.start(["away", "good", look, "look", servers["third"], "nobody"])
    assert sorted(asked) == ["away", "good", "third"]
    assert {name: type(error) for name, error in failures.items()} == {
        "away": EngineUnavailable,
        "nobody": UnknownName,
    }
    assert list(await by_name.start([servers["away"]])) == ["away"]
