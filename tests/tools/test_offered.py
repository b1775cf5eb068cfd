"""Tools that clients bring along, checked once."""

from __future__ import annotations

from typing import Any

import pytest

from teola.errors import InputError
from teola.tools.offered import CheckedTools, ToolsCheck, checked_tools


def described(name: str, schema: Any) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def test_what_was_checked_is_known() -> None:
    looked_at: list[Any] = []
    check = ToolsCheck(looked_at.append)
    tools = [described("a", {"type": "object"}), described("b", {"properties": {}})]
    first, again = check.checked(tools), check.checked([dict(one) for one in tools])
    assert first.digest == again.digest
    assert first.names == ["a", "b"]
    assert len(looked_at) == 2, "the second time nothing is looked at"
    check.checked([tools[0]])
    assert len(looked_at) == 3


def test_an_agent_does_not_check_again_what_a_server_has_checked() -> None:
    tools = CheckedTools([described("a", {"type": "array"})], "digest")
    assert checked_tools(tools) is tools
    with pytest.raises(InputError, match=r"tools\.0: its arguments are 'array'"):
        checked_tools(list(tools))


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ({}, "must be a list"),
        ([described("a", {})] * 3, "3 tools, more than the 2 of `max_client_tools`"),
        ([described("a", {"title": "x" * 200})], "200 characters of JSON of `max_client_tool_ch"),
        ([described("a", {"default": object()})], "must be JSON"),
        ([described("a", {})] * 2, "tools.1: two tools are called 'a'"),
    ],
)
def test_limits_are_named(tools: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        ToolsCheck().checked(tools, most=2, characters=200)
